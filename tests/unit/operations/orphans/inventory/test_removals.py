"""A removal that reads an S3 Inventory report: what it finds, and what happens between the report and its deletes."""

import json
from dataclasses import replace
from typing import Any

import pytest

from delegation.errors import GuardRefused
from delegation.operations.orphans.errors import OrphansError
from delegation.operations.orphans.inventory.reading import read_report
from delegation.operations.orphans.phases import remove_orphan_files
from delegation.storage.memory import Faults, Killed
from delegation.worksets.attempt import PlanHead
from tests.kit.errors import coded
from tests.kit.stories.tables import StoryTable
from tests.unit.operations.orphans.inventory.reports import COLUMNS, PLACE, VERSIONS, Depot, row
from tests.unit.operations.orphans.test_orders import before_deleting, during_listing

NAMES = ("a b+c%.parquet", "p=1/é\u2028.parquet", "x.parquet", "y/z.parquet")


def depot(**properties: str) -> tuple[Depot, StoryTable, set[str]]:
    """Return a table with orphan files, the table and the files ten days old."""
    world = Depot()
    table = world.table(**properties)
    planted = {world.orphan(f"s3://lake/wh/t/data/{name}", name.encode()) for name in NAMES}
    world.lake.pass_days(10)
    return world, table, planted


def test_what_a_report_lists_is_removed_as_what_a_listing_does() -> None:
    world, table, planted = depot()
    beside = {world.orphan("s3://lake/wh/t2/a"), world.orphan("s3://lake/wh/t/data/_hidden")}
    world.lake.pass_days(4)
    world.orphan("s3://lake/wh/t/data/young.parquet")
    report = world.report()
    later = world.orphan("s3://lake/wh/t/data/later.parquet")
    world.lake.pass_days(10)
    before = world.lake.uris()
    listed = [uri for uri in before - {later} if uri.startswith("s3://lake/wh/t/")]

    result = world.remove(table, report)

    assert (result.status, result.files_deleted, result.files_listed) == ("SWEPT", 4, len(listed))
    assert world.removed(before) == planted
    assert beside <= world.lake.uris()
    assert not world.missing()
    receipt = json.loads(world.plans.get(result.receipt or ""))
    assert (receipt["inventory"], receipt["files_listed"]) == (report, len(listed))
    assert world.sweep(table).files_deleted == 2


def test_the_age_counts_to_the_beginning_of_the_report_and_not_to_the_reading() -> None:
    """A file that was two days old then may be of a job that commits after it, however old it is by now."""
    world, table, planted = depot()
    young = world.orphan("s3://lake/wh/t/data/two.parquet")
    world.lake.pass_days(2)
    report = world.report()
    world.lake.pass_days(5)
    before = world.lake.uris()
    assert world.remove(table, report).files_deleted == len(planted)
    assert world.removed(before) == planted
    assert young in world.lake.uris()


@pytest.mark.parametrize("days", [1, 5, 20])
def test_a_file_that_a_table_took_after_the_report_stays(days: float) -> None:
    """However long the report is older than the age: the references are those of a pass after it was read."""
    world, table, planted = depot()
    report = world.report()
    taken = "s3://lake/wh/t/data/x.parquet"
    table.append(paths=[taken])
    world.lake.pass_days(days)
    before = world.lake.uris()
    world.remove(table, report)
    assert world.removed(before) == planted - {taken}
    assert not world.missing()


def test_what_a_table_needs_that_no_catalog_lists_stays_and_so_does_what_it_took_since_the_report() -> None:
    world, table, planted = depot()
    below = StoryTable.create(world.lake, "t/below")
    below.append(2)
    pointer = world.lake.pointers.pop("t/below")
    world.lake.pass_days(4)
    report = world.report()
    taken = "s3://lake/wh/t/data/x.parquet"
    world.lake.pointers["t/below"] = pointer
    below.append(paths=[taken])
    theirs = world.unlist("t/below")
    world.lake.pass_days(5)
    before = world.lake.uris()
    world.remove(table, report)
    assert world.removed(before) == planted - {taken}
    assert theirs <= world.lake.uris()


@pytest.mark.parametrize("when", [during_listing, before_deleting])
def test_a_file_that_another_table_takes_while_it_runs_stays(when: Any) -> None:
    world, table, planted = depot()
    other = world.table("far")
    taken = "s3://lake/wh/t/data/x.parquet"
    report = world.report()
    world.lake.pass_days(5)
    before = world.lake.uris()
    ctx = world.context(table, inventory=report, inventories=(PLACE,))
    when(world, lambda: other.append(paths=[taken]))(ctx)
    remove_orphan_files(ctx)
    assert world.removed(before) == planted - {taken}
    assert not world.missing()


def test_the_references_are_of_a_pass_that_began_after_the_report_was_read() -> None:
    world, table, _ = depot()
    report = world.report()
    ctx = world.context(table, inventory=report, inventories=(PLACE,))
    names = world.store.faults.names
    renew = world.passes.renew
    world.passes.renew = lambda: names.append("renew") or renew()  # type: ignore[func-returns-value,method-assign]
    remove_orphan_files(ctx)
    first, second = (at for at, name in enumerate(names) if name == "renew")
    assert "pieces" in names[:first]
    assert "pieces" not in names[first:]
    assert names[first:second].count("delete") == 0 < names[second:].count("delete")


def test_an_object_that_was_written_again_or_is_gone_since_the_report() -> None:
    world, table, planted = depot()
    report = world.report()
    again = world.lake.put("s3://lake/wh/t/data/x.parquet", b"another")
    same = world.lake.put("s3://lake/wh/t/data/y/z.parquet", b"y/z.parquet")
    world.lake.pass_days(10)
    [*_, gone] = sorted(planted - {again, same})
    del world.lake.objects["lake", gone.removeprefix("s3://lake/")]
    before = world.lake.uris()
    result = world.remove(table, report)
    assert (result.files_deleted, result.files_absent, result.files_changed) == (2, 1, 2)
    assert world.removed(before) == planted - {again, same, gone}


def test_only_latest_versions_count_and_no_delete_markers() -> None:
    world, table, planted = depot()
    x, z = "wh/t/data/x.parquet", "wh/t/data/y/z.parquet"

    def versions(rows: list[Any]) -> list[Any]:
        old = row("wh/t/data/old.parquet", b"o", 0, IsLatest="false")
        hidden = [row(x, b"", 0, IsDeleteMarker="true", Size="", ETag=""), row(x, b"x", 0, IsLatest="false")]
        former = row(z, b"former", 0, IsLatest="false")
        return [old, former, *hidden, *(one for one in rows if one["Key"] != x)]

    world.columns, world.rows = VERSIONS, versions
    world.orphan("s3://lake/wh/t/data/old.parquet", b"o")
    report = world.report()
    before = world.lake.uris()
    assert world.remove(table, report).files_deleted == 3
    assert world.removed(before) == planted - {f"s3://lake/{x}"}


def test_a_key_that_a_report_has_twice_is_left_out() -> None:
    world, table, planted = depot()
    x = "wh/t/data/x.parquet"
    world.rows = lambda rows: [row(x, b"forged", 0), *rows]
    before = world.lake.uris()
    assert world.remove(table, world.report()).files_deleted == 3
    assert world.removed(before) == planted - {f"s3://lake/{x}"}


def test_an_object_without_an_etag_is_left_out() -> None:
    world, table, planted = depot()
    x = "wh/t/data/x.parquet"
    world.rows = lambda rows: [{**one, "ETag": ""} if one["Key"] == x else one for one in rows]
    assert world.remove(table, world.report()).files_deleted == 3
    assert f"s3://lake/{x}" in world.lake.uris()
    assert len(planted) == 4


@pytest.mark.parametrize("prefix", ["wh/t/data/", "wh/t/metadata/", "other/", "wh/t/data/p"])
def test_a_report_of_another_prefix_is_refused_instead_of_seeing_less(prefix: str) -> None:
    world, table, _ = depot()
    report = world.report(prefix=prefix)
    before = world.lake.uris()
    with pytest.raises(GuardRefused, check=coded("INVENTORY_REFUSED"), match=r"it lacks wh/t/.* is of another prefix"):
        world.remove(table, report)
    assert world.lake.uris() == before


@pytest.mark.parametrize("prefix", ["", "wh/", "wh/t/"])
def test_a_report_that_has_the_whole_location_is_read(prefix: str) -> None:
    world, table, planted = depot()
    assert world.remove(table, world.report(prefix=prefix)).files_deleted == len(planted)


def test_a_file_that_came_back_after_the_report_does_not_make_its_key_missing_forever() -> None:
    """A delete marker was removed since: the next report has the file."""
    world, table, _ = depot()
    x = "wh/t/data/x.parquet"
    world.rows = lambda rows: [one for one in rows if one["Key"] != x]
    with pytest.raises(GuardRefused, check=coded("INVENTORY_REFUSED"), match="from before a restore"):
        world.remove(table, world.report())
    world.rows = lambda rows: rows
    assert world.remove(table, world.report()).files_deleted == 4


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"sourceBucket": "other"}, "it is of the bucket other, and the table is in lake"),
        ({"destinationBucket": "arn:aws:s3:::elsewhere"}, "written to another bucket"),
        ({"fileFormat": "Parquet"}, "its format is Parquet; only CSV is read"),
        ({"fileFormat": "ORC"}, "its format is ORC"),
        ({"version": "2030-01-01"}, "its version is 2030-01-01"),
        ({"fileSchema": "Bucket, Key, Size"}, "it lacks LastModifiedDate, ETag"),
        ({"fileSchema": f"{', '.join(COLUMNS)}, IsLatest"}, "it lacks VersionId, IsDeleteMarker"),
        ({"fileSchema": f"{', '.join(COLUMNS)}, VersionId"}, "it lacks IsLatest, IsDeleteMarker"),
        ({"creationTimestamp": "1999999999999"}, "from the future"),
        ({"creationTimestamp": "1600000000000"}, "days old, and 30 are allowed"),
    ],
)
def test_a_report_that_cannot_serve_is_refused_with_the_reason(changed: dict[str, str], why: str) -> None:
    world, table, _ = depot()
    world.manifest = changed
    report = world.report()
    before = world.lake.uris()
    with pytest.raises(GuardRefused, check=coded("INVENTORY_REFUSED"), match=why):
        world.remove(table, report)
    assert world.lake.uris() == before


def test_a_report_of_which_no_checksum_is_there_yet_is_refused() -> None:
    world, table, _ = depot()
    report = world.report()
    beside = report.removeprefix("s3://reports/").replace("manifest.json", "manifest.checksum")
    del world.lake.objects["reports", beside]
    with pytest.raises(GuardRefused, check=coded("INVENTORY_REFUSED"), match="not complete yet"):
        world.remove(table, report)


Damage = Any


def _cut(files: dict[str, bytes]) -> None:
    [first, *_] = files
    files[first] = files[first][:-9]


def _altered(files: dict[str, bytes]) -> None:
    [*_, last] = files
    files[last] = files[last][:-1] + bytes([files[last][-1] ^ 1])


def _longer(files: dict[str, bytes]) -> None:
    [first, *_] = files
    files[first] += b"more"


def _absent(files: dict[str, bytes]) -> None:
    del files[next(reversed(files))]


@pytest.mark.parametrize("damage", [_cut, _altered, _longer, _absent])
def test_a_report_whose_files_are_not_those_of_its_manifest_deletes_nothing(damage: Damage) -> None:
    world, table, _ = depot()
    world.files = damage
    report = world.report()
    before = world.lake.uris()
    with pytest.raises(OrphansError, check=coded("INVENTORY_DAMAGED")):
        world.remove(table, report)
    assert world.lake.uris() == before
    assert not [key for key in world.plans.objects if key.endswith("index.json")]


@pytest.mark.parametrize(
    "changed",
    [
        {"Bucket": "other"},
        {"Size": "-1"},
        {"Size": "many"},
        {"LastModifiedDate": "yesterday"},
        {"LastModifiedDate": "2020-01-01T00:00:00.000"},
        {"Key": "wh/t/%ff"},
        {"Size": "", "ETag": ""},
    ],
)
def test_a_row_that_s3_never_writes_deletes_nothing(changed: dict[str, str]) -> None:
    world, table, _ = depot()
    x = "wh/t/data/x.parquet"
    world.rows = lambda rows: [{**one, **changed} if one["Key"] == x else one for one in rows]
    before = world.lake.uris()
    report = world.report()
    with pytest.raises(OrphansError, check=coded("INVENTORY_DAMAGED")):
        world.remove(table, report)
    assert world.lake.uris() - {uri for uri in world.lake.uris() if "reports" in uri} == before


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b'{"files": 3}', b'{"sourceBucket": "lake"', b"\xff", b"null", b"[" * 5_000]
)
def test_a_manifest_that_is_none_is_damaged(data: bytes) -> None:
    world, table, _ = depot()
    with pytest.raises(OrphansError, check=coded("INVENTORY_DAMAGED"), match="is no manifest"):
        world.remove(table, world.write_manifest("lake/daily/x", data))


def test_a_manifest_that_was_altered_after_s3_wrote_it_is_damaged() -> None:
    world, table, _ = depot()
    report = world.report()
    key = ("reports", report.removeprefix("s3://reports/"))
    world.lake.objects[key] = world.lake.objects[key].replace(b"CSV", b"csv")
    with pytest.raises(OrphansError, check=coded("INVENTORY_DAMAGED"), match="has not the MD5"):
        world.remove(table, report)


@pytest.mark.parametrize("key", ["plans/secret", "lake", "lakes/x", "/lake/x"])
def test_a_manifest_cannot_make_the_service_read_what_the_operator_did_not_name(key: str) -> None:
    """Its role may read more than reports, such as the plans of others."""
    world, table, _ = depot()
    world.manifest = {"files": [{"key": key, "size": 1, "MD5checksum": "0" * 32}]}
    report = world.report()
    world.lake.objects["reports", key] = b"x"
    with pytest.raises(OrphansError, check=coded("INVENTORY_DAMAGED"), match="allow"):
        world.remove(table, report)
    assert "pieces" not in world.store.faults.names


def test_a_report_can_be_read_in_many_attempts_that_die_at_every_call() -> None:
    kills = 0
    for after in (False, True):
        for at in range(1 + after, 400, 2):
            world, table, planted = depot()
            world.head = PlanHead()
            options: dict[str, Any] = {"inventory": world.report(), "inventories": (PLACE,)}
            try:
                remove_orphan_files(world.context(table, faults=Faults(kill_at=at, after=after), **options))
            except Killed:
                kills += 1
                before = world.lake.uris()
                result = remove_orphan_files(world.context(table, **options))
                assert result.files_listed, at
                assert world.removed(before) <= planted, at
                assert not planted & world.lake.uris(), at
                assert not world.missing()
                continue
            break
        else:
            pytest.fail("it was never killed late enough")
    assert kills > 60


def test_an_attempt_reads_no_file_again_that_an_earlier_one_recorded() -> None:
    world, table, _ = depot()
    world.per_file = 1
    options: dict[str, Any] = {"inventory": world.report(), "inventories": (PLACE,)}
    world.head = PlanHead()
    first = world.context(table, dry_run=True, task_id="other", **options)
    remove_orphan_files(first)
    pieces = [at for at, name in enumerate(world.store.faults.names, 1) if name == "pieces"]
    world.head = PlanHead()
    with pytest.raises(Killed):
        remove_orphan_files(world.context(table, faults=Faults(kill_at=pieces[5]), **options))
    remove_orphan_files(world.context(table, **options))
    assert world.store.faults.names.count("pieces") == len(pieces) - 5


def test_another_report_under_the_same_name_is_read_anew() -> None:
    """S3 says that manifests may be overwritten; what was recorded of the former one is not of this one."""
    world, table, planted = depot()
    report = world.report()
    options: dict[str, Any] = {"inventories": (PLACE,), "inventory": report}
    world.head = PlanHead()
    first = world.context(table, task_id="other", dry_run=True, **options)
    remove_orphan_files(first)
    last = len(world.store.faults.names) - world.store.faults.names[::-1].index("pieces")
    world.head = PlanHead()
    with pytest.raises(Killed):
        remove_orphan_files(world.context(table, faults=Faults(kill_at=last), **options))
    x = "wh/t/data/x.parquet"
    world.rows = lambda rows: [{**one, "ETag": "0" * 32} if one["Key"] == x else one for one in rows]
    assert world.report() == report
    result = remove_orphan_files(world.context(table, **options))
    assert (result.files_changed, result.files_deleted) == (1, 3)
    assert planted & world.lake.uris() == {f"s3://lake/{x}"}


def test_a_process_without_a_store_of_reports_reads_none() -> None:
    world, table, _ = depot()
    ctx = world.context(table, inventory=world.report(), inventories=(PLACE,))
    with pytest.raises(GuardRefused, check=coded("INVENTORY_REFUSED"), match="reads no reports"):
        remove_orphan_files(replace(ctx, reports=None))
    assert callable(read_report)
