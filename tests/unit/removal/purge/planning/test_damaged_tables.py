"""A damaged table is refused by default and purged with the operator's setting; the receipt names what stays."""

import dataclasses
import gzip
import io
import json
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import fastavro
import pytest

from delegation.identifiers import TableIdentifier
from delegation.polaris.answers import PolarisForbidden
from delegation.polaris.model import LoadedTable
from delegation.removal.neighbourhood import Neighbour, Neighbourhood, Pace
from delegation.removal.purge.behavior import estimate
from delegation.removal.purge.context import PurgeContext
from delegation.removal.purge.requests import Limits, PurgeOptions
from delegation.storage.base import ObjectStoreDenied
from delegation.storage.locations import ObjectLocation, parse
from delegation.storage.memory import Faults, MemoryObjectStore
from polaris_common.errors import DelegationError
from tests.kit.lakes.lake import Lake, LakeSource, PurgedTables, busy_table, filled, identifier
from tests.kit.worlds.indexed import IndexedWorld
from tests.unit.removal.purge.planning.executors_here import ENGINES
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
    where,
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
        found = fastavro.reader(io.BytesIO(self._lake.objects[where(path)]))
        values = [dict(one)[field] for one in found]  # type: ignore[call-overload]
        return {one["file_path"] if isinstance(one, dict) else str(one) for one in values}

    def only_by(self, *maps: str) -> set[str]:
        """Return what no other list or manifest names: the files that cannot be found without these."""
        lists = {path for path in self.lists if path not in maps}
        reached = set().union(*(self.lists[path] for path in lists)) - set(maps)
        lost = set(self.manifests) - reached
        files = set().union(*(self.manifests[path] for path in reached))
        return (lost | set().union(*self.manifests.values()) - files) - set(maps)

    def dearest(self) -> str:
        """Return the manifest that alone names most files."""
        return max(self.manifests, key=lambda path: len(self.only_by(path)))


class Case(NamedTuple):
    """A damage: it returns what stays, and of that what the receipt names. `code` refuses it by default."""

    code: str
    setting: str
    spoil: Callable[[PurgedTables], tuple[set[str], set[str]]]


def lost_manifest(bench: PurgedTables) -> tuple[set[str], set[str]]:
    maps = Maps(bench.lake)
    path = maps.dearest()
    del bench.lake.objects[where(path)]
    return maps.only_by(path), {path}


def lost_list(bench: PurgedTables) -> tuple[set[str], set[str]]:
    maps = Maps(bench.lake)
    path = max(maps.lists, key=lambda one: len(maps.only_by(one)))
    del bench.lake.objects[where(path)]
    return maps.only_by(path), {path}


def manifest_is(change: Callable[[bytes], bytes]) -> Callable[[PurgedTables], tuple[set[str], set[str]]]:
    def spoil(bench: PurgedTables) -> tuple[set[str], set[str]]:
        maps = Maps(bench.lake)
        path = maps.dearest()
        bench.lake.objects[where(path)] = change(bench.lake.objects[where(path)])
        return maps.only_by(path) | {path}, {path}

    return spoil


def first_list_is(change: Spoil) -> Callable[[PurgedTables], tuple[set[str], set[str]]]:
    def spoil(bench: PurgedTables) -> tuple[set[str], set[str]]:
        maps = Maps(bench.lake)
        path = bench.lake.metadata("t")["snapshots"][0]["manifest-list"]
        change(bench.lake)
        return maps.only_by(path) | {path}, {path}

    return spoil


def named(path: str, change: Spoil) -> Callable[[PurgedTables], tuple[set[str], set[str]]]:
    """One path that names no object of this storage; nothing of the table stays."""

    def spoil(bench: PurgedTables) -> tuple[set[str], set[str]]:
        change(bench.lake)
        return set(), {path}

    return spoil


def renamed_data_file(path: str) -> Callable[[PurgedTables], tuple[set[str], set[str]]]:
    """A path instead of the first data file's in the manifests: that file is not reached any more."""

    def spoil(bench: PurgedTables) -> tuple[set[str], set[str]]:
        before = set().union(*Maps(bench.lake).manifests.values())
        file_path(path)(bench.lake)
        return before - set().union(*Maps(bench.lake).manifests.values()), {path}

    return spoil


def list_elsewhere(path: str) -> Callable[[PurgedTables], tuple[set[str], set[str]]]:
    def spoil(bench: PurgedTables) -> tuple[set[str], set[str]]:
        maps = Maps(bench.lake)
        ours = bench.lake.metadata("t")["snapshots"][0]["manifest-list"]
        snapshot(manifest_list=path)(bench.lake)
        return maps.only_by(ours) | {ours}, {path}

    return spoil


def encrypted(bench: PurgedTables) -> tuple[set[str], set[str]]:
    return first_list_is(snapshot(key_id="key-1"))(bench)


GS: Final = "gs://lake/wh/t/x"
DOTS: Final = "s3://lake/wh/t/data/../../victim/x"
CASES: Final[dict[str, Case]] = {
    "a lost manifest": Case("MANIFEST_MISSING", "damaged", lost_manifest),
    "a lost manifest list": Case("MANIFEST_MISSING", "damaged", lost_list),
    "a manifest of zeros": Case("CORRUPT_MANIFEST", "damaged", manifest_is(lambda data: bytes(len(data)))),
    "a manifest cut off": Case("MANIFEST_MISMATCH", "damaged", manifest_is(lambda data: data[:-1])),
    "a manifest list of zeros": Case("CORRUPT_MANIFEST", "damaged", first_list_is(list_is(bytes(99)))),
    "an empty manifest list": Case("CORRUPT_MANIFEST", "damaged", first_list_is(list_is(b""))),
    "statistics on another scheme": Case("UNSUPPORTED_LOCATION", "unsupported", named(GS, statistics(GS))),
    "statistics of S3 Tables": Case(
        "UNSUPPORTED_LOCATION", "unsupported", named("s3://x--table-s3/s", statistics("s3://x--table-s3/s"))
    ),
    "statistics on a disk": Case(
        "UNSUPPORTED_LOCATION", "unsupported", named("file:///etc/passwd", statistics("file:///etc/passwd"))
    ),
    "a data file on another scheme": Case("UNSUPPORTED_LOCATION", "unsupported", renamed_data_file(GS)),
    "a manifest on another scheme": Case("UNSUPPORTED_LOCATION", "unsupported", named(GS, stray_manifest(GS))),
    "a manifest list on another scheme": Case("UNSUPPORTED_LOCATION", "unsupported", list_elsewhere(GS)),
    "former metadata on another scheme": Case("UNSUPPORTED_LOCATION", "unsupported", named(GS, log(GS))),
    "a manifest list that is encrypted": Case("UNSUPPORTED", "unsupported", encrypted),
    "statistics with #": Case("AMBIGUOUS_PATH", "ambiguous", named(f"{OURS}a#b", statistics(f"{OURS}a#b"))),
    "statistics with half a character": Case(
        "AMBIGUOUS_PATH", "ambiguous", named(f"{OURS}a\\ud800", statistics(f"{OURS}a\ud800"))
    ),
    "a data file with ..": Case("AMBIGUOUS_PATH", "ambiguous", renamed_data_file(DOTS)),
    "a manifest with ..": Case("AMBIGUOUS_PATH", "ambiguous", named(DOTS, stray_manifest(DOTS))),
    "a manifest list with ..": Case("AMBIGUOUS_PATH", "ambiguous", list_elsewhere(DOTS)),
}


@pytest.fixture(scope="module")
def world() -> Lake:
    lake = Lake()
    busy_table(lake, "t")
    busy_table(lake, "victim")
    lake.objects["lake", "wh/victim/x"] = b"x"
    return lake


@pytest.fixture
def bench(world: Lake) -> PurgedTables:
    return PurgedTables.of(world)


def operators(*settings: str) -> PurgeOptions:
    """Return the options of a request that chooses nothing, with these settings of the operator."""
    return Limits.from_properties({f"delegation.purge.{one}": value for one, _, value in map(parts, settings)}).base


def parts(setting: str) -> tuple[str, str, str]:
    return setting.partition("=")


def receipt(bench: PurgedTables, plan_id: str) -> dict[str, Any]:
    return dict(json.loads(bench.plans.objects[f"{plan_id}/receipt.json"]))


def kept(bench: PurgedTables, plan_id: str) -> dict[str, str]:
    """Return the reason for each path that the plan keeps."""
    chunks = [data for key, data in sorted(bench.plans.objects.items()) if key.startswith(f"{plan_id}/KEPT-")]
    lines = b"".join(gzip.decompress(data) for data in chunks).decode().splitlines()
    return {one["path"]: one["kept"] for one in map(json.loads, lines)}


def refused(bench: PurgedTables, ctx: PurgeContext, engine: str) -> DelegationError:
    before = dict(bench.lake.objects)
    with pytest.raises(DelegationError) as raised:
        ENGINES[engine](ctx)
    assert bench.lake.objects == before
    assert not ctx.attempt.deleting
    return raised.value


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", CASES)
def test_a_damaged_table_is_refused_by_default_and_finished_with_the_operators_setting(
    bench: PurgedTables, name: str, engine: str
) -> None:
    code, setting, spoil = CASES[name]
    others = bench.lake.below("s3://lake/wh/victim/")
    stays, names = spoil(bench)
    error = refused(bench, bench.context("t", prefixes=ALL), engine)
    assert (error.code, error.retryable) == (code, False)

    options = operators(f"{setting}=keep")
    assert estimate(bench.context("t", options=options, prefixes=ALL)).files
    bench.head = type(bench.head)()
    result = ENGINES[engine](bench.context("t", options=options, prefixes=ALL))

    assert result.status == "PURGED"
    assert set(bench.lake.uris()) == others | stays
    written = receipt(bench, result.plan_ids[0])
    assert written["options"][setting] == "keep"
    [finding] = written["findings"]
    assert (finding["code"], finding["count"], set(finding["sample"])) == (code, len(names), names)
    assert {path.removeprefix(f"{setting}:") for path in kept(bench, result.plan_ids[0])} == names


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


FORMER: Final = f"{OURS}metadata/former.metadata.json"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", gzip.compress(b"{}")[:-6], b"{}"],
    ids=["empty", "no JSON", "a list", "cut off", "no location"],
)
def test_former_metadata_that_cannot_be_read_is_a_finding(bench: PurgedTables, data: bytes, engine: str) -> None:
    others = bench.lake.below("s3://lake/wh/victim/")
    former(data)(bench.lake)
    result = ENGINES[engine](bench.context("t"))
    assert set(bench.lake.uris()) == others
    findings = receipt(bench, result.plan_ids[0])["findings"]
    assert findings == [{"code": "FORMER_METADATA_UNREADABLE", "count": 1, "sample": [FORMER]}]


class Unreadable(MemoryObjectStore):
    """A store that denies every read."""

    def read(self, location: ObjectLocation, *, limit: int) -> bytes:
        raise ObjectStoreDenied("denied")


def a_denied_clone(bench: PurgedTables, ctx: PurgeContext) -> tuple[PurgeContext, set[str]]:
    """What its metadata names is known, and what its lists name, which the purged table has too."""
    table = _clone(bench)
    store = Unreadable()
    manifests = {uri for uri in bench.lake.below(OURS) if re.search(r"-m\d+\.avro$", uri)}
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


BESIDE = [
    (a_denied_clone, "NEIGHBOUR_UNREADABLE", "STORAGE_ACCESS_DENIED"),
    (a_clone_without_a_list, "NEIGHBOUR_UNREADABLE", "MANIFEST_MISSING"),
]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("beside", "by_default", "why"), BESIDE)
def test_a_neighbour_that_cannot_be_read_refuses_by_default_and_is_reported_with_the_operators_setting(
    bench: PurgedTables, beside: Beside, by_default: str, why: str, engine: str
) -> None:
    others = bench.lake.below("s3://lake/wh/victim/")
    assert refused(bench, beside(bench, bench.context("t"))[0], engine).code == by_default
    bench.head = type(bench.head)()
    ctx, known = beside(bench, bench.context("t", options=operators("neighbour=report")))
    result = ENGINES[engine](ctx)
    assert result.status == "PURGED"
    assert set(bench.lake.uris()) == others | known
    findings = {one["code"]: one for one in receipt(bench, result.plan_ids[0])["findings"]}
    assert findings["NEIGHBOUR_UNREADABLE"]["sample"] == [f"cat.ns.clone: {why}"]
    assert findings["FILES_SHARED"]["count"] == len(known)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_neighbour_that_may_not_be_loaded_is_reported_and_the_next_one_is_still_read(
    bench: PurgedTables, engine: str
) -> None:
    class Catalog:
        def list_tables(self, catalog: str, namespace: tuple[str, ...]) -> list[TableIdentifier]:
            return [identifier("denied"), identifier("clone")]

        def load_table(self, name: TableIdentifier, *, vend: bool = True, snapshots: str = "all") -> LoadedTable:
            if name.name == "denied":
                raise PolarisForbidden("no")
            return _clone(bench)

    def beside(options: PurgeOptions) -> PurgeContext:
        ctx = bench.context("t", options=options)
        pace = Pace(10.0, now=lambda: 0.0, sleep=lambda _seconds: None)
        found: Any = Neighbourhood(Catalog(), ctx.identifier, lambda _: ctx.store, "namespace", lambda: None, pace)  # type: ignore[arg-type]
        return dataclasses.replace(ctx, neighbours=found)

    before = set(bench.lake.uris())
    assert refused(bench, beside(PurgeOptions()), engine).code == "NEIGHBOUR_UNREADABLE"
    bench.head = type(bench.head)()
    result = ENGINES[engine](beside(operators("neighbour=report")))
    assert set(bench.lake.uris()) == before
    findings = {one["code"]: one for one in receipt(bench, result.plan_ids[0])["findings"]}
    assert findings["NEIGHBOUR_UNREADABLE"]["sample"] == [f"cat.ns.denied: {PolarisForbidden.code}"]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_neighbour_that_commits_while_it_is_read_is_not_reported_but_read_again_later(
    bench: PurgedTables, engine: str
) -> None:
    """Its lost manifest list was expired, and its new metadata protects what it needs."""
    ctx, _ = a_clone_without_a_list(bench, bench.context("t", options=operators("neighbour=report")))
    [first] = ctx.neighbours(None)
    newer = dataclasses.replace(first, table=dataclasses.replace(first.table, metadata_location=f"{OURS}newer.json"))
    answers = iter([[first], [newer]])
    error = refused(bench, dataclasses.replace(ctx, neighbours=lambda _roots: next(answers)), engine)
    assert (error.code, error.retryable) == ("NEIGHBOUR_CHANGED", True)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("path", "code", "setting"),
    [("gs://lake/d", "UNSUPPORTED_LOCATION", "unsupported"), ("s3://lake/wh/t/a#b", "AMBIGUOUS_PATH", "ambiguous")],
)
def test_a_write_path_that_names_no_location_is_left_out_with_the_operators_setting(
    bench: PurgedTables, path: str, code: str, setting: str, engine: str
) -> None:
    others = bench.lake.below("s3://lake/wh/victim/")
    meta(properties={"write.data.path": path})(bench.lake)
    assert refused(bench, bench.context("t", prefixes=()), engine).code == code
    bench.head = type(bench.head)()
    ENGINES[engine](bench.context("t", options=operators(f"{setting}=keep")))
    assert set(bench.lake.uris()) == others


@pytest.mark.parametrize("setting", ["damaged=keep", "unsupported=keep", "ambiguous=keep"])
def test_a_plan_made_under_a_looser_setting_is_not_executed_after_it_became_stricter(
    bench: PurgedTables, setting: str
) -> None:
    name = {"damaged": "a lost manifest", "unsupported": "statistics on a disk", "ambiguous": "statistics with #"}
    CASES[name[parts(setting)[0]]].spoil(bench)
    loose = dataclasses.replace(operators(setting), dry_run=True)
    plan = ENGINES["inline"](bench.context("t", options=loose, prefixes=ALL)).plan_ids[0]
    bench.head = type(bench.head)()
    strict = bench.context("t", options=PurgeOptions(execute_plan=plan), prefixes=ALL)
    assert refused(bench, strict, "inline").code == "PLAN_NOT_ALLOWED"


def test_every_case_names_files_that_exist_or_are_lost(world: Lake) -> None:
    """The damages leave something that only the damaged map names, or the test would show nothing."""
    maps = Maps(world)
    assert maps.only_by(maps.dearest())
    assert any(maps.only_by(one) for one in maps.lists)
    assert all(parse(path).bucket == "lake" for path in maps.manifests)
