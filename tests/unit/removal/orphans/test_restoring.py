"""What a removal deleted in a bucket with versions comes back, by its own delete markers and no others."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from delegation.removal.errors import PlanTampered
from delegation.removal.orphans.context import OrphanResult
from delegation.removal.orphans.index import Candidate, Hidden, record_markers
from delegation.removal.orphans.quarantine import FileState, Restoration, RestoreRun, state_of
from delegation.removal.orphans.run import remove_orphan_files
from delegation.storage.base import ObjectStoreDenied, ObjectStoreUnavailable
from delegation.storage.listing.model import KeyVersions, ListedObject, StoredVersion
from delegation.storage.memory import Faults, Killed
from tests.effort import THOROUGH, apart
from tests.kit.stories.orphans import SweptTables
from tests.kit.stories.tables import StoryTable

NAMES = ("a.parquet", "p=1/b b%.parquet", "p=2/ü\u2028.parquet", "c.parquet", "d.parquet")


class Shoal(SweptTables):
    """A beach in a bucket with versions."""

    hidden: dict[Any, Any]

    def context(self, table: StoryTable, **more: Any) -> Any:
        ctx = super().context(table, **more)
        self.store._versioned = frozenset({"lake"})
        self.hidden = self.store.hidden = getattr(self, "hidden", {})
        return ctx

    def restore(self, result: OrphanResult, **more: Any) -> Restoration:
        return RestoreRun(self.store, self.plans, result.plan_ids, result.location, **more).run()


def swept() -> tuple[Shoal, StoryTable, set[str], OrphanResult]:
    """Sweep a table with orphan files; return what was deleted."""
    world = Shoal()
    table = world.table()
    planted = {world.orphan(f"s3://lake/wh/t/data/{name}", name.encode()) for name in NAMES}
    world.lake.pass_days(4)
    result = world.sweep(table)
    assert (result.files_deleted, result.bytes_freed) == (5, None)
    assert not planted & world.lake.uris()
    return world, table, planted, result


def files(found: Restoration) -> dict[str, int]:
    return {str(state): one.files for state, one in found.amounts.items() if one.files}


def test_all_that_was_deleted_is_back_as_it_was() -> None:
    world, table, planted, result = swept()
    before, modified = dict(world.lake.objects), dict(world.lake.modified)
    seen: list[int] = []
    found = world.restore(result, seen=lambda one: seen.append(one.files))
    assert (files(found), found.is_complete, seen[-1]) == ({"restored": 5}, True, 5)
    assert planted <= world.lake.uris()
    assert {key: data for key, data in world.lake.objects.items() if key in before} == before
    assert modified == {key: at for key, at in world.lake.modified.items() if key in modified}
    # They are orphan files again.
    assert world.sweep(table).files_deleted == 5


def test_a_second_restore_checks_nothing_again_and_a_dry_run_changes_nothing() -> None:
    world, _, planted, result = swept()
    looked = world.restore(result, dry_run=True)
    assert files(looked) == {"restored": 5}
    assert not planted & world.lake.uris()
    world.restore(result)
    calls = world.store.faults.calls
    assert files(world.restore(result)) == {"present": 5}
    assert world.store.faults.names[calls:].count("versions") == 0


def test_what_others_did_with_a_key_meanwhile_is_left_alone_and_reported() -> None:
    world, _, _, result = swept()
    rewritten = world.lake.put("s3://lake/wh/t/data/a.parquet", b"new")
    again = world.lake.put("s3://lake/wh/t/data/c.parquet", b"newer")
    [listed] = list(world.store.page("lake", "wh/t/data/c").objects)
    world.store.delete_unchanged("lake", [listed])
    below = world.hidden["lake", "wh/t/data/d.parquet"]
    below[:] = below[-1:]  # a lifecycle rule expired it

    found = world.restore(result)

    assert files(found) == {"restored": 2, "rewritten": 1, "deleted_again": 1, "gone": 1}
    assert not found.is_complete
    assert {state for _, state in found.left} == {FileState.REWRITTEN, FileState.DELETED_AGAIN, FileState.GONE}
    assert world.lake.objects["lake", "wh/t/data/a.parquet"] == b"new"
    assert {rewritten} <= world.lake.uris()
    assert again not in world.lake.uris()
    assert len(world.hidden["lake", "wh/t/data/c.parquet"]) == 4
    # What is not complete is looked at again.
    assert files(world.restore(result)) == {"present": 2, "rewritten": 1, "deleted_again": 1, "gone": 1}


def test_markers_of_another_run_of_the_same_files_stay() -> None:
    world, table, planted, first = swept()
    world.restore(first)
    second = world.sweep(table)
    assert second.files_deleted == 5
    other = RestoreRun(world.store, world.plans, first.plan_ids, first.location)
    assert files(other.run()) == {"present": 5}  # as it was then; nothing is touched
    for key in [key for key in world.plans.objects if "/restored/" in key]:
        del world.plans.objects[key]
    assert files(other.run()) == {"deleted_again": 5}
    assert not planted & world.lake.uris()
    assert files(world.restore(second)) == {"restored": 5}


def test_a_write_between_the_check_and_the_removal_of_the_marker_stays() -> None:
    world, _, _, result = swept()
    remove = world.store.remove_version

    def late(bucket: str, key: str, version: str) -> None:
        if key.endswith("a.parquet"):
            world.lake.put(f"s3://{bucket}/{key}", b"new")
        remove(bucket, key, version)

    world.store.remove_version = late  # type: ignore[method-assign]
    world.restore(result)
    assert world.lake.objects["lake", "wh/t/data/a.parquet"] == b"new"


def test_a_restore_can_be_killed_at_every_call_and_resumes() -> None:
    kills = 0
    for after in (False, True):
        for at in range(1 + after, 200, 2):
            world, _, planted, result = swept()
            faults = Faults(kill_at=at, after=after)
            world.store.faults = world.plans.faults = faults
            try:
                world.restore(result)
            except Killed:
                world.store.faults = world.plans.faults = Faults()
                found = world.restore(result)
                assert found.is_complete
                assert found.files == 5
                assert planted <= world.lake.uris()
                kills += 1
                continue
            break
    assert kills > 10


def test_a_removal_that_was_killed_knows_the_markers_of_its_earlier_attempts() -> None:
    """At every call; what a killed attempt deleted and could not record any more is the only thing that may stay."""
    kills, unrecorded = 0, 0
    for after in (False, True):
        for at in range(1 + after, 300, 2 * apart(3)):
            world = Shoal()
            table = world.table()
            planted = {world.orphan(f"s3://lake/wh/t/data/{number}") for number in range(7)}
            world.lake.pass_days(4)
            faults = Faults(kill_at=at, after=after)
            try:
                remove_orphan_files(world.context(table, faults=faults))
                break
            except Killed:
                result = remove_orphan_files(world.context(table))
            found = world.restore(result)
            died_with = faults.names[-1]
            # A thread reads the next chunk of a lot while another one deletes and records.
            lost = 3 if died_with == "plan put" or "delete" in faults.names[-3:] else 0
            assert len(planted - world.lake.uris()) <= lost, died_with
            unrecorded += bool(planted - world.lake.uris())
            assert found.files >= 7 - lost
            kills += 1
    assert kills > 30 / apart(3)
    assert unrecorded or not THOROUGH


def test_without_the_right_to_record_progress_it_restores_all_the_same() -> None:
    world, _, planted, result = swept()
    put = world.plans.put
    world.plans.put = _denied  # type: ignore[method-assign]
    found = world.restore(result)
    assert (found.is_complete, found.resumes) == (True, False)
    assert planted <= world.lake.uris()
    world.plans.put = put  # type: ignore[method-assign]
    assert files(world.restore(result)) == {"present": 5}


def _denied(*_: Any) -> None:
    raise ObjectStoreDenied("no")


def test_a_store_that_fails_in_between_leaves_that_file_and_the_next_run_resumes() -> None:
    world, _, planted, result = swept()
    usual, calls = world.store.versions, iter(range(99))

    def failing(bucket: str, key: str) -> KeyVersions:
        if next(calls) == 3:
            raise ObjectStoreUnavailable("503")
        return usual(bucket, key)

    world.store.versions = failing  # type: ignore[method-assign]
    found = world.restore(result)
    assert (files(found), found.is_complete) == ({"restored": 4, "failed": 1}, False)
    assert [reason for _, reason in found.failed] == ["STORAGE_UNAVAILABLE: 503"]
    assert world.restore(result).is_complete
    assert planted <= world.lake.uris()


def test_a_record_of_files_elsewhere_or_one_that_cannot_be_read_removes_nothing() -> None:
    world, _, planted, result = swept()
    with pytest.raises(PlanTampered):
        world.restore(replace(result, location="s3://lake/wh/t2/"))
    [name, *_] = [key for key in world.plans.objects if "/markers/" in key]
    world.plans.objects[name] = b"x"
    found = world.restore(result)
    assert [what for what, _ in found.failed] == [name]
    assert not found.is_complete
    assert planted & world.lake.uris()
    assert not planted <= world.lake.uris()


def test_credentials_that_may_do_nothing_are_one_error_and_not_each_files() -> None:
    world, _, _, result = swept()
    world.store.versions = _denied  # type: ignore[method-assign, assignment]
    with pytest.raises(ObjectStoreDenied):
        world.restore(result)


def test_markers_without_a_version_of_their_own_are_not_recorded() -> None:
    """Where versioning is suspended the object is gone."""
    world = Shoal()
    listed = [("s3://lake/t/a", ListedObject("t/a", 1, '"e"', 5))]
    record_markers(world.plans, "p", "n", listed, {"t/a": "null"})
    record_markers(world.plans, "p", "n", listed, {})
    assert world.plans.objects == {}


HIDDEN = Hidden(Candidate("s3://lake/t/a", 1, '"e"', 5), "m1")
LISTED = HIDDEN.file.listed()
BELOW = StoredVersion("v1", LISTED)
CHANGES: list[Callable[[ListedObject], ListedObject]] = [
    lambda one: one._replace(etag='"f"'),
    lambda one: one._replace(modified=6),
    lambda one: one._replace(size=2),
]


@pytest.mark.parametrize("change", CHANGES)
def test_only_the_very_object_that_was_listed_comes_back(change: Callable[[ListedObject], ListedObject]) -> None:
    other = StoredVersion("v2", change(LISTED))
    assert state_of(HIDDEN, KeyVersions(StoredVersion("m1", None), BELOW)) is FileState.RESTORED
    assert state_of(HIDDEN, KeyVersions(StoredVersion("m1", None), other)) is FileState.GONE
    assert state_of(HIDDEN, KeyVersions(StoredVersion("m1", None), None)) is FileState.GONE
    assert state_of(HIDDEN, KeyVersions(StoredVersion("m2", None), BELOW)) is FileState.DELETED_AGAIN
    assert state_of(HIDDEN, KeyVersions(other, other)) is FileState.REWRITTEN
    assert state_of(HIDDEN, KeyVersions(BELOW, BELOW)) is FileState.PRESENT
    assert state_of(HIDDEN, KeyVersions()) is FileState.GONE
