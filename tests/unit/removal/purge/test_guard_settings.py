"""Guards that the operator or a request can set, each setting tried on the same table."""

import dataclasses
from typing import Any

import pytest

from delegation.errors import GuardRefused
from delegation.removal.errors import FilesNotDeleted
from delegation.removal.purge.behavior import estimate
from delegation.removal.purge.requests import PurgeOptions
from delegation.removal.purge.run import purge_table
from tests.kit.errors import coded, made_with_code
from tests.kit.lakes.lake import PurgedTables, rows
from tests.paths import DOCS


def test_gc_disabled_is_ignored_with_the_operators_setting(bench: PurgedTables) -> None:
    bench.lake.rewrite_metadata("t", {"properties": {"gc.enabled": "false"}})
    for work in (estimate, purge_table):
        assert bench.refused(bench.context("t"), work).code == "GC_DISABLED"
    ignoring = PurgeOptions(gc_disabled="ignore")
    assert estimate(bench.context("t", options=ignoring)).files
    assert purge_table(bench.context("t", options=ignoring)).status == "PURGED"
    assert bench.left() == set()


@pytest.mark.parametrize("denied", [False, True])
def test_a_versioned_bucket_can_be_refused_although_the_bucket_may_not_be_asked(
    bench: PurgedTables, *, denied: bool
) -> None:
    # Issue 24, line 10: vended credentials usually do not allow GetBucketVersioning.
    store: dict[str, Any] = {"versioned_buckets": ["lake"], "versioning_denied": denied}
    ctx = bench.context("t", options=PurgeOptions(versioned="refuse"), **store)
    refused = bench.refused(ctx)
    assert refused.code == "VERSIONED_BUCKET"
    assert "frees nothing in s3://lake/, " in str(refused)
    assert not ctx.attempt.deleting
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
    ctx = bench.context("t", options=PurgeOptions(probe=False), denied=["s3://lake/"])
    assert isinstance(bench.refused(ctx), FilesNotDeleted)
    assert "probe" not in ctx.store.faults.names


@pytest.mark.parametrize("path", ["file:///etc/passwd", "file:/etc/passwd"])
def test_outside_delete_never_deletes_from_another_kind_of_storage(bench: PurgedTables, path: str) -> None:
    bench.lake.rewrite_metadata("t", {"statistics": [{"statistics-path": path, "file-size-in-bytes": 3}]})
    settings = dataclasses.replace(bench.context("t").settings, vended=False)
    ctx = bench.context("t", options=PurgeOptions(outside="delete"), settings=settings)
    assert bench.refused(ctx).code == "UNSUPPORTED_LOCATION"


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
