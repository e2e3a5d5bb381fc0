"""A damaged table is refused by default and purged with the operator's setting; the receipt names what stays."""

import dataclasses
import gzip
import io
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import fastavro
import pytest

from delegation.polaris.answers import PolarisForbidden
from delegation.polaris.model import LoadedTable
from delegation.removal.attempt import PlanHead
from delegation.removal.errors import NeighbourUnreadable
from delegation.removal.neighbourhood import Neighbour
from delegation.removal.purge.behavior import estimate
from delegation.removal.purge.context import PurgeContext, PurgeResult
from delegation.removal.purge.requests import Limits, PurgeOptions
from delegation.storage.base import ObjectStoreDenied
from delegation.storage.memory import Faults
from tests.kit.lakes.lake import Lake, LakeSource, PurgedTables, filled, kept
from tests.kit.worlds.indexed import IndexedWorld
from tests.unit.removal.purge.planning.executors_here import ENGINES, engines
from tests.unit.removal.purge.planning.test_neighbours import Unreadable
from tests.unit.removal.purge.test_hostile import (
    Spoil,
    file_path,
    former,
    list_is,
    log,
    meta,
    snapshot,
    statistics,
    stray_manifest,
)

ALL: Final = ("s3://lake/",)
OURS: Final = "s3://lake/wh/t/"


Beside = Callable[[PurgedTables, PurgeContext], tuple[PurgeContext, set[str]]]


class Maps:
    """What the manifest lists and manifests of a table name, read by fastavro before anything is damaged."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        snapshots = lake.metadata("t")["snapshots"]
        self.lists = {one["manifest-list"]: self._read(one["manifest-list"], "manifest_path") for one in snapshots}
        manifests = sorted(set().union(*self.lists.values()))
        self.manifests = {path: self._read(path, "data_file") for path in manifests}

    def _read(self, path: str, field: str) -> set[str]:
        found = fastavro.reader(io.BytesIO(self._lake.read(path)))
        values = [dict(one)[field] for one in found]  # type: ignore[call-overload]
        return {one["file_path"] if isinstance(one, dict) else str(one) for one in values}

    def only_by(self, *maps: str) -> set[str]:
        """Return what no other list or manifest names: the files that cannot be found without these."""
        lists = {path for path in self.lists if path not in maps}
        reached = set().union(*(self.lists[path] for path in lists)) - set(maps)
        lost = set(self.manifests) - reached
        files = set().union(*(self.manifests[path] for path in reached))
        return (lost | set().union(*self.manifests.values()) - files) - set(maps)

    def dearest(self, kind: str = "manifests") -> str:
        """Return the manifest or the list that alone names most files."""
        path = max(getattr(self, kind), key=lambda one: len(self.only_by(one)))
        assert self.only_by(path), "its damage would show nothing"
        return str(path)


Damage = Callable[[PurgedTables], tuple[set[str], set[str]]]
"""What a damage returns: what stays, and of that what the receipt names."""


class Case(NamedTuple):
    """A damage; `code` refuses it by default."""

    code: str
    setting: str
    spoil: Damage


def lost(kind: str) -> Damage:
    def spoil(bench: PurgedTables) -> tuple[set[str], set[str]]:
        maps = Maps(bench.lake)
        path = maps.dearest(kind)
        bench.lake.io.delete(path)
        return maps.only_by(path), {path}

    return spoil


def manifest_is(change: Callable[[bytes], bytes]) -> Damage:
    def spoil(bench: PurgedTables) -> tuple[set[str], set[str]]:
        maps = Maps(bench.lake)
        path = maps.dearest()
        bench.lake.write(path, change(bench.lake.read(path)))
        return maps.only_by(path) | {path}, {path}

    return spoil


def first_list_is(change: Spoil, path: str = "") -> Damage:
    """Damage the first manifest list, or let `path` be its name; it stays with what it names."""

    def spoil(bench: PurgedTables) -> tuple[set[str], set[str]]:
        maps = Maps(bench.lake)
        first = bench.lake.metadata("t")["snapshots"][0]["manifest-list"]
        change(bench.lake)
        return maps.only_by(first) | {first}, {path or first}

    return spoil


def named(path: str, change: Callable[[str], Spoil]) -> Damage:
    """One path that names no object of this storage; nothing of the table stays."""

    def spoil(bench: PurgedTables) -> tuple[set[str], set[str]]:
        change(path)(bench.lake)
        return set(), {path.encode("ascii", "backslashreplace").decode()}

    return spoil


def renamed_data_file(path: str) -> Damage:
    """A path instead of the first data file's in the manifests: that file is not reached any more."""

    def spoil(bench: PurgedTables) -> tuple[set[str], set[str]]:
        before = set().union(*Maps(bench.lake).manifests.values())
        file_path(path)(bench.lake)
        return before - set().union(*Maps(bench.lake).manifests.values()), {path}

    return spoil


GS: Final = "gs://lake/wh/t/x"
DOTS: Final = "s3://lake/wh/t/data/../../victim/x"


def list_elsewhere(path: str) -> Damage:
    return first_list_is(snapshot(manifest_list=path), path)


UNSUPPORTED, AMBIGUOUS = ("UNSUPPORTED_LOCATION", "unsupported"), ("AMBIGUOUS_PATH", "ambiguous")
CASES: Final[dict[str, Case]] = {
    "a lost manifest": Case("MANIFEST_MISSING", "damaged", lost("manifests")),
    "a lost manifest list": Case("MANIFEST_MISSING", "damaged", lost("lists")),
    "a manifest of zeros": Case("CORRUPT_MANIFEST", "damaged", manifest_is(lambda data: bytes(len(data)))),
    "a manifest cut off": Case("MANIFEST_MISMATCH", "damaged", manifest_is(lambda data: data[:-1])),
    "a manifest list of zeros": Case("CORRUPT_MANIFEST", "damaged", first_list_is(list_is(bytes(99)))),
    "a manifest list that is encrypted": Case("UNSUPPORTED", "unsupported", first_list_is(snapshot(key_id="key-1"))),
    "statistics on another scheme": Case(*UNSUPPORTED, named(GS, statistics)),
    "statistics on a disk": Case(*UNSUPPORTED, named("file:///etc/passwd", statistics)),
    "a data file on another scheme": Case(*UNSUPPORTED, renamed_data_file(GS)),
    "a manifest on another scheme": Case(*UNSUPPORTED, named(GS, stray_manifest)),
    "a manifest list on another scheme": Case(*UNSUPPORTED, list_elsewhere(GS)),
    "former metadata on another scheme": Case(*UNSUPPORTED, named(GS, log)),
    "statistics with #": Case(*AMBIGUOUS, named(f"{OURS}a#b", statistics)),
    "statistics with half a character": Case(*AMBIGUOUS, named(f"{OURS}a\ud800", statistics)),
    "a data file with ..": Case(*AMBIGUOUS, renamed_data_file(DOTS)),
    "a manifest with ..": Case(*AMBIGUOUS, named(DOTS, stray_manifest)),
    "a manifest list with ..": Case(*AMBIGUOUS, list_elsewhere(DOTS)),
}


def operators(setting: str) -> PurgeOptions:
    """Return the options of a request that chooses nothing, with this setting of the operator."""
    name, _, value = setting.partition("=")
    return Limits.from_properties({f"delegation.purge.{name}": value}).base


@pytest.fixture
def bench(bench: PurgedTables) -> PurgedTables:
    return filled(bench, "victim")


def findings(bench: PurgedTables, result: PurgeResult) -> dict[str, Any]:
    return {one["code"]: one for one in bench.receipt(result)["findings"]}


@engines
@pytest.mark.parametrize("name", CASES)
def test_a_damaged_table_is_refused_by_default_and_finished_with_the_operators_setting(
    bench: PurgedTables, name: str, engine: str
) -> None:
    code, setting, spoil = CASES[name]
    others = bench.left("victim")
    stays, names = spoil(bench)
    refused = bench.refused(bench.context("t", prefixes=ALL), ENGINES[engine])
    assert (refused.code, refused.retryable) == (code, False)

    options = operators(f"{setting}=keep")
    assert estimate(bench.context("t", options=options, prefixes=ALL)).files
    bench.head = PlanHead()
    result = ENGINES[engine](bench.context("t", options=options, prefixes=ALL))

    assert result.status == "PURGED"
    assert set(bench.lake.uris()) == others | stays
    assert bench.receipt(result)["options"][setting] == "keep"
    [finding] = bench.receipt(result)["findings"]
    assert (finding["code"], finding["count"], set(finding["sample"])) == (code, len(names), names)
    assert {path.removeprefix(f"{setting}:") for path in kept(bench.plans, result.plan_ids[0])} == names


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("a lost manifest", "delegation.purge.damaged=keep"),
        ("a manifest cut off", "delegation.purge.damaged=keep"),
        ("a manifest list that is encrypted", "delegation.purge.unsupported=keep"),
    ],
)
def test_the_outcome_of_a_purge_says_what_to_do_about_a_file_that_cannot_be_read(name: str, setting: str) -> None:
    world = filled(IndexedWorld(), "t")
    CASES[name].spoil(PurgedTables(world.lake))
    summary = world.purge("t").result_summary or ""
    assert summary.count(setting) == 1
    assert ("restore it" in summary.lower()) == (name == "a lost manifest")
    assert summary.count("delegation.purge.") == 1


@engines
@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", gzip.compress(b"{}")[:-6], b"{}"],
    ids=["empty", "no JSON", "a list", "cut off", "no location"],
)
def test_former_metadata_that_cannot_be_read_is_a_finding(bench: PurgedTables, data: bytes, engine: str) -> None:
    others = bench.left("victim")
    former(data)(bench.lake)
    result = ENGINES[engine](bench.context("t"))
    assert set(bench.lake.uris()) == others
    found = {"code": "FORMER_METADATA_UNREADABLE", "count": 1, "sample": [f"{OURS}metadata/former.metadata.json"]}
    assert bench.receipt(result)["findings"] == [found]


def a_denied_clone(bench: PurgedTables, ctx: PurgeContext) -> tuple[PurgeContext, set[str]]:
    """What its metadata names is known, and what its lists name, which the purged table has too."""
    table = _clone(bench)
    store = Unreadable(ObjectStoreDenied("denied"))
    manifests = {uri for uri in bench.left() if re.search(r"-m\d+\.avro$", uri)}
    lists = {one["manifest-list"] for one in table.metadata["snapshots"]}
    log = {one["metadata-file"] for one in table.metadata["metadata-log"]}
    known = lists | manifests | log | {table.metadata_location}
    return dataclasses.replace(ctx, neighbours=lambda _roots: [Neighbour(table, store)]), known


def a_clone_without_a_list(bench: PurgedTables, ctx: PurgeContext) -> tuple[PurgeContext, set[str]]:
    """What its other lists name is known."""
    table, maps, before = _clone(bench), Maps(bench.lake), bench.lake.below(OURS)
    path = table.metadata["snapshots"][-1]["manifest-list"]
    snapshots = [*table.metadata["snapshots"][:-1], {"snapshot-id": 7, "manifest-list": f"{OURS}metadata/lost.avro"}]
    table = dataclasses.replace(table, metadata={**table.metadata, "snapshots": snapshots})
    beside = dataclasses.replace(ctx, neighbours=lambda _roots: [Neighbour(table, ctx.store)])
    return beside, before - maps.only_by(path) - {path}


def _clone(bench: PurgedTables) -> LoadedTable:
    bench.lake.pointers["clone"] = bench.lake.pointers["t"]
    return LakeSource(bench.lake, "clone", Faults()).load()


@engines
@pytest.mark.parametrize(
    ("beside", "why"), [(a_denied_clone, "STORAGE_ACCESS_DENIED"), (a_clone_without_a_list, "MANIFEST_MISSING")]
)
def test_a_neighbour_that_cannot_be_read_refuses_by_default_and_is_reported_with_the_operators_setting(
    bench: PurgedTables, beside: Beside, why: str, engine: str
) -> None:
    others = bench.left("victim")
    refused = bench.refused(beside(bench, bench.context("t"))[0], ENGINES[engine])
    assert refused.code == "NEIGHBOUR_UNREADABLE"
    bench.head = PlanHead()
    ctx, known = beside(bench, bench.context("t", options=operators("neighbour=report")))
    result = ENGINES[engine](ctx)
    assert result.status == "PURGED"
    assert set(bench.lake.uris()) == others | known
    found = findings(bench, result)
    assert found["NEIGHBOUR_UNREADABLE"]["sample"] == [f"cat.ns.clone: {why}"]
    assert found["FILES_SHARED"]["count"] == len(known)


@engines
def test_a_neighbour_that_may_not_be_loaded_is_reported_and_the_next_one_is_still_read(
    bench: PurgedTables, engine: str
) -> None:
    def beside(options: PurgeOptions) -> PurgeContext:
        denied = NeighbourUnreadable("cat.ns.denied", PolarisForbidden("no"))
        ctx = bench.context("t", options=options)
        return dataclasses.replace(ctx, neighbours=lambda _roots: [denied, Neighbour(_clone(bench), ctx.store)])

    before = set(bench.lake.uris())
    assert bench.refused(beside(PurgeOptions()), ENGINES[engine]).code == "NEIGHBOUR_UNREADABLE"
    bench.head = PlanHead()
    result = ENGINES[engine](beside(operators("neighbour=report")))
    assert set(bench.lake.uris()) == before
    assert findings(bench, result)["NEIGHBOUR_UNREADABLE"]["sample"] == [f"cat.ns.denied: {PolarisForbidden.code}"]


@engines
def test_a_neighbour_that_commits_while_it_is_read_is_not_reported_but_read_again_later(
    bench: PurgedTables, engine: str
) -> None:
    """Its lost manifest list was expired, and its new metadata protects what it needs."""
    ctx, _ = a_clone_without_a_list(bench, bench.context("t", options=operators("neighbour=report")))
    [first] = ctx.neighbours(None)
    newer = dataclasses.replace(first, table=dataclasses.replace(first.table, metadata_location=f"{OURS}newer.json"))
    answers = iter([[first], [newer]])
    ctx = dataclasses.replace(ctx, neighbours=lambda _roots: next(answers))
    refused = bench.refused(ctx, ENGINES[engine])
    assert (refused.code, refused.retryable) == ("NEIGHBOUR_CHANGED", True)


@engines
@pytest.mark.parametrize(("path", "code", "setting"), [("gs://lake/d", *UNSUPPORTED), (f"{OURS}a#b", *AMBIGUOUS)])
def test_a_write_path_that_names_no_location_is_left_out_with_the_operators_setting(
    bench: PurgedTables, path: str, code: str, setting: str, engine: str
) -> None:
    others = bench.left("victim")
    meta(properties={"write.data.path": path})(bench.lake)
    assert bench.refused(bench.context("t", prefixes=()), ENGINES[engine]).code == code
    bench.head = PlanHead()
    ENGINES[engine](bench.context("t", options=operators(f"{setting}=keep")))
    assert set(bench.lake.uris()) == others


@pytest.mark.parametrize("name", ["a lost manifest", "statistics on a disk", "statistics with #"])
def test_a_plan_made_under_a_looser_setting_is_not_executed_after_it_became_stricter(
    bench: PurgedTables, name: str
) -> None:
    CASES[name].spoil(bench)
    plan = bench.dry_run(options=operators(f"{CASES[name].setting}=keep"), prefixes=ALL)
    strict = bench.context("t", options=PurgeOptions(execute_plan=plan), prefixes=ALL)
    assert bench.refused(strict).code == "PLAN_NOT_ALLOWED"
