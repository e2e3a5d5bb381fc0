"""Guards that the operator or a request can set, each setting tried on the same table."""

import dataclasses
from typing import Any

import pytest

from delegation.errors import GuardRefused
from delegation.removal.attempt import MemoryAttempt, PlanHead
from delegation.removal.errors import FilesNotDeleted
from delegation.removal.purge.behavior import estimate
from delegation.removal.purge.errors import PathsOutsideTable, PlanNotAllowed
from delegation.removal.purge.requests import PurgeOptions
from delegation.removal.purge.run import purge_table
from delegation.storage.locations import UnsupportedLocation
from tests.kit.errors import coded, made_with_code
from tests.kit.lakes.lake import Lake, PurgedTables, busy_table, rows
from tests.paths import DOCS

ALL = ("s3://lake/",)
ELSEWHERE = "s3://lake/elsewhere/stats.puffin"


@pytest.fixture(scope="module")
def world() -> Lake:
    lake = Lake()
    busy_table(lake, "t")
    busy_table(lake, "sibling")
    return lake


@pytest.fixture
def bench(world: Lake) -> PurgedTables:
    return PurgedTables.of(world)


def ours(bench: PurgedTables) -> set[str]:
    return bench.lake.below("s3://lake/wh/t/")


def planned(bench: PurgedTables, name: str = "t", **options: Any) -> str:
    """Make a dry run and return its plan's id."""
    ctx = bench.context(name, options=PurgeOptions(dry_run=True, **options), prefixes=ALL)
    return purge_table(dataclasses.replace(ctx, attempt=MemoryAttempt("dry", head=PlanHead()))).plan_ids[0]


def with_a_file_outside(bench: PurgedTables) -> None:
    bench.lake.rewrite_metadata("t", {"statistics": [{"statistics-path": ELSEWHERE, "file-size-in-bytes": 3}]})
    bench.lake.objects["lake", "elsewhere/stats.puffin"] = b"abc"


def test_gc_disabled_is_ignored_with_the_operators_setting(bench: PurgedTables) -> None:
    bench.lake.rewrite_metadata("t", {"properties": {"gc.enabled": "false"}})
    with pytest.raises(GuardRefused, check=coded("GC_DISABLED")):
        purge_table(bench.context("t"))
    ignoring = PurgeOptions(gc_disabled="ignore")
    assert estimate(bench.context("t", options=ignoring)).files
    assert purge_table(bench.context("t", options=ignoring)).status == "PURGED"
    assert ours(bench) == set()


def test_a_versioned_bucket_can_be_refused_before_the_first_delete(bench: PurgedTables) -> None:
    before = set(bench.lake.uris())
    ctx = bench.context("t", options=PurgeOptions(versioned="refuse"), versioned_buckets=["lake"])
    with pytest.raises(GuardRefused, check=coded("VERSIONED_BUCKET"), match="frees nothing in s3://lake/, "):
        purge_table(ctx)
    assert set(bench.lake.uris()) == before
    assert not ctx.attempt.deleting


def test_a_versioned_bucket_is_refused_although_the_bucket_may_not_be_asked(bench: PurgedTables) -> None:
    # Issue 24, line 10: vended credentials usually do not allow GetBucketVersioning.
    before = set(bench.lake.uris())
    store: dict[str, Any] = {"versioned_buckets": ["lake"], "versioning_denied": True}
    with pytest.raises(GuardRefused, check=coded("VERSIONED_BUCKET")):
        purge_table(bench.context("t", options=PurgeOptions(versioned="refuse"), **store))
    assert set(bench.lake.uris()) == before
    plan = purge_table(bench.context("t", options=PurgeOptions(dry_run=True), **store))
    assert {finding.code: finding.sample for finding in plan.findings} == {"VERSIONED_BUCKET": ("s3://lake/",)}


def test_versions_of_a_bucket_with_only_data_files_are_found_through_one_of_them() -> None:
    bench = PurgedTables()
    bench.lake.create("t", **{"write.data.path": "s3://data/t"}).append(rows(1, 2))
    prefixes = ("s3://lake/", "s3://data/")
    store: dict[str, Any] = {"versioned_buckets": ["data"], "versioning_denied": True, "prefixes": prefixes}
    with pytest.raises(GuardRefused, check=coded("VERSIONED_BUCKET"), match="nothing in s3://data/, "):
        purge_table(bench.context("t", options=PurgeOptions(versioned="refuse"), **store))


def test_without_the_probe_each_key_that_cannot_be_deleted_is_reported(bench: PurgedTables) -> None:
    before = set(bench.lake.uris())
    ctx = bench.context("t", options=PurgeOptions(probe=False), denied=["s3://lake/"])
    with pytest.raises(FilesNotDeleted):
        purge_table(ctx)
    assert "probe" not in ctx.store.faults.names
    assert set(bench.lake.uris()) == before


@pytest.mark.parametrize("code", ["AccessDenied", "ObjectLocked", "InvalidRequest"])
def test_each_locked_object_is_reported(bench: PurgedTables, code: str) -> None:
    locked = sorted(uri for uri in ours(bench) if uri.endswith(".parquet"))[:2]
    lock = lambda _bucket, key, _nth: code if f"s3://lake/{key}" in locked else None  # noqa: E731
    with pytest.raises(FilesNotDeleted) as failed:
        purge_table(bench.context("t", refuse=lock))
    assert failed.value.sample == tuple((uri, code) for uri in locked)
    assert not failed.value.retryable


def test_a_plan_made_with_outside_delete_is_not_executed_by_a_request_without_it(bench: PurgedTables) -> None:
    with_a_file_outside(bench)
    plan = planned(bench, outside="delete")
    before = set(bench.lake.uris())
    with pytest.raises(PlanNotAllowed) as refused:
        purge_table(bench.context("t", options=PurgeOptions(execute_plan=plan), prefixes=ALL))
    assert refused.value.code == "PLAN_NOT_ALLOWED"
    assert set(bench.lake.uris()) == before
    purge_table(bench.context("t", options=PurgeOptions(execute_plan=plan, outside="delete"), prefixes=ALL))
    assert ours(bench) == set()
    assert ELSEWHERE not in set(bench.lake.uris())


def test_a_plan_with_directory_markers_is_not_executed_by_a_request_without_them(bench: PurgedTables) -> None:
    bench.lake.objects["lake", "wh/t/data/"] = b""
    plan = planned(bench, remove_directory_markers=True)
    before = set(bench.lake.uris())
    with pytest.raises(PlanNotAllowed):
        purge_table(bench.context("t", options=PurgeOptions(execute_plan=plan)))
    assert set(bench.lake.uris()) == before
    purge_table(bench.context("t", options=PurgeOptions(execute_plan=plan, remove_directory_markers=True)))
    assert ours(bench) == set()


def test_a_plan_that_kept_files_outside_is_not_executed_with_outside_refuse(bench: PurgedTables) -> None:
    with_a_file_outside(bench)
    plan = planned(bench)
    before = set(bench.lake.uris())
    with pytest.raises(PathsOutsideTable) as refused:
        purge_table(bench.context("t", options=PurgeOptions(execute_plan=plan, outside="refuse")))
    assert refused.value.sample == (ELSEWHERE,)
    assert set(bench.lake.uris()) == before


@pytest.mark.parametrize("path", ["file:///etc/passwd", "file:/etc/passwd"])
def test_outside_delete_never_deletes_from_another_kind_of_storage(bench: PurgedTables, path: str) -> None:
    bench.lake.rewrite_metadata("t", {"statistics": [{"statistics-path": path, "file-size-in-bytes": 3}]})
    before = set(bench.lake.uris())
    settings = dataclasses.replace(bench.context("t").settings, vended=False)
    with pytest.raises(UnsupportedLocation):
        purge_table(bench.context("t", options=PurgeOptions(outside="delete"), settings=settings))
    assert set(bench.lake.uris()) == before


def test_a_clones_plan_is_refused_although_the_uuid_is_the_same(bench: PurgedTables) -> None:
    bench.lake.pointers["clone"] = bench.lake.pointers["t"]
    before = set(bench.lake.uris())
    with pytest.raises(GuardRefused, check=coded("PLAN_OF_ANOTHER_TABLE"), match=r"cat\.ns\.clone"):
        purge_table(bench.context("t", options=PurgeOptions(execute_plan=planned(bench, "clone"))))
    assert set(bench.lake.uris()) == before


def test_every_refusal_of_a_guard_is_in_the_documentation() -> None:
    pages = [
        *(f"architecture/{name}" for name in ("guards", "purging", "references")),
        *("compaction", "expiry", "expiry-reference", "orphans", "orphans-reference"),
    ]
    page = "".join((DOCS / f"{name}.md").read_text(encoding="utf-8") for name in pages)
    direct = GuardRefused.__subclasses__()
    classes = {kind.code for kind in (*direct, *(below for kind in direct for below in kind.__subclasses__()))}
    raised = {made.code for made in made_with_code() if made.kind == "GuardRefused"}
    assert {code for code in (classes | raised) - {GuardRefused.code} if f"`{code}`" not in page} == set()


def test_every_setting_of_a_guard_is_in_the_documentation() -> None:
    page = "".join((DOCS / "architecture" / name).read_text(encoding="utf-8") for name in ("guards.md", "purging.md"))
    settings = {"outside", "uncovered", "shared", "overlap-scan", "versioned", "delete-marker-files", "gc-disabled"}
    settings |= {"delete-probe", "experimental-format", "`damaged`", "`unsupported`", "`ambiguous`", "`neighbour`"}
    assert {name for name in settings if name not in page} == set()
