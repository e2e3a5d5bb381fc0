"""What the plan of an expiry has: the files that only expired snapshots reach."""

import pytest

from delegation.removal.chunks import Phase
from delegation.removal.expiry.retention import Retention
from delegation.removal.expiry.run import expire_snapshots
from delegation.removal.index import planned_paths
from tests.kit.stories.expiries import ExpiringTables
from tests.kit.stories.tables import DELETES, StoryTable


@pytest.fixture
def world() -> ExpiringTables:
    return ExpiringTables()


@pytest.mark.parametrize("version", [1, 2, 3])
def test_what_only_expired_snapshots_reach_is_deleted_and_the_rest_reads_as_before(
    world: ExpiringTables, version: int
) -> None:
    table = StoryTable.create(world.lake, version=version)
    first = table.append(3)
    gone = table.live()[0]
    second = table.delete(gone)
    table.append(2)
    before, document = world.lake.uris(), table.document
    needed = world.lake.read_by(document, [table.refs["main"]])

    result = world.expire(table)

    expected = world.lake.named_by(document, [first, second]) - needed
    assert gone in expected
    assert before - world.lake.uris() == expected
    assert world.lake.readable() == {"t": set()}
    assert (result.status, result.files_deleted, set(result.snapshot_ids)) == (
        "EXPIRED",
        len(expected),
        {first, second},
    )


def test_a_file_that_only_an_entry_marked_deleted_names_goes_after_an_expiry_that_kept_files(
    world: ExpiringTables,
) -> None:
    table = StoryTable.create(world.lake)
    first = table.append(2)
    gone = table.live()[0]
    table.delete(gone)
    table.rewrite_manifests()
    table.remove_snapshots(first)

    world.expire(table)

    assert gone not in world.lake.uris()


def test_delete_files_are_planned_before_manifests_and_manifests_before_lists(world: ExpiringTables) -> None:
    table = StoryTable.create(world.lake)
    first = table.append(2)
    table.append(content=DELETES)
    table.rewrite_manifests()
    ctx = world.context(table)

    expire_snapshots(ctx)

    deleted = [uri for uri in ctx.store.deleted if not uri.endswith("delegation-probe")]  # type: ignore[attr-defined]
    lists = [at for at, uri in enumerate(deleted) if "/snap" in uri]
    manifests = [at for at, uri in enumerate(deleted) if "/metadata/m" in uri]
    assert min(lists) > max(manifests)
    assert first not in table.ids


def test_nothing_is_planned_and_no_commit_is_made_without_expired_snapshots(world: ExpiringTables) -> None:
    table = StoryTable.create(world.lake)
    table.append()

    assert world.expire(table, Retention()).status == "NOTHING"
    assert (world.commits(), world.plans.objects) == (0, {})


def test_files_outside_the_table_and_the_credentials_are_kept_and_listed(world: ExpiringTables) -> None:
    table = StoryTable.create(world.lake)
    outside = world.lake.put("s3://lake/elsewhere/imported.parquet")
    odd = "s3://lake/wh/t/data/odd#1.parquet"
    table.append(paths=[outside, odd])
    table.delete(outside, odd)

    result = world.expire(table)

    assert outside in world.lake.uris()
    assert {finding.code for finding in result.findings} == {"PATHS_OUTSIDE_TABLE", "AMBIGUOUS_PATH"}
    kept = set(planned_paths(world.plans, [world.plan()], (Phase.KEPT,)))
    assert kept == {outside, f"ambiguous:{odd}"}


def test_files_that_no_credential_covers_are_kept_and_listed(world: ExpiringTables) -> None:
    table = StoryTable.create(world.lake)
    table.append()
    moved = StoryTable(world.lake, "t", "s3://lake/moved/t")
    moved.apply({"action": "set-properties", "updates": {"written": "there"}})
    moved.apply({"action": "set-location", "location": moved.folder})
    moved.snapshot([world.lake.manifest(moved.folder, [])])
    before = world.lake.uris()

    result = world.expire(moved, prefixes=("s3://lake/moved/t",))

    assert before - world.lake.uris() == set()
    assert [finding.code for finding in result.findings] == ["CREDENTIALS_DO_NOT_COVER"]
    assert len(moved.ids) == 1


def test_old_metadata_files_go_where_the_table_says_so(world: ExpiringTables) -> None:
    keeps = {"write.metadata.previous-versions-max": "2", "write.metadata.delete-after-commit.enabled": "true"}
    table = StoryTable.create(world.lake, **keeps)
    for _ in range(4):
        table.append()

    world.expire(table)

    left = {uri for uri in world.lake.uris() if uri.endswith(".metadata.json")}
    log = {one["metadata-file"] for one in table.document["metadata-log"]}
    assert left == {table.pointer, *log}
    assert len(log) == 2


def test_an_old_metadata_file_that_is_a_clones_present_one_stays_with_all_that_it_names(world: ExpiringTables) -> None:
    keeps = {"write.metadata.previous-versions-max": "1", "write.metadata.delete-after-commit.enabled": "true"}
    table = StoryTable.create(world.lake, **keeps)
    table.append()
    world.lake.pointers["clone"] = table.pointer
    for _ in range(3):
        table.rewrite_manifests()

    result = world.expire(table)

    assert world.lake.readable() == {"t": set(), "clone": set()}
    assert [finding.code for finding in result.findings] == ["FILES_SHARED"]


@pytest.mark.parametrize("enabled", ["false", ""])
def test_old_metadata_files_stay_where_the_table_does_not_say_so(world: ExpiringTables, enabled: str) -> None:
    more = {"write.metadata.delete-after-commit.enabled": enabled} if enabled else {}
    table = StoryTable.create(world.lake, **{"write.metadata.previous-versions-max": "2"}, **more)
    for _ in range(4):
        table.append()
    before = {uri for uri in world.lake.uris() if uri.endswith(".metadata.json")}

    world.expire(table)

    assert before <= world.lake.uris()
