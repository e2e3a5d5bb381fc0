"""What operators do with tombstones: restoring in any race with the purge, and purging before the grace period ends."""

import contextlib
from dataclasses import replace
from datetime import timedelta

import pytest

from delegation.gateway.drop.errors import DropError, NameTaken, RestoreRefused
from delegation.gateway.drop.purge_tasks import RESTORED
from delegation.gateway.drop.tombstones import TombstoneState
from delegation.identifiers import TableIdentifier
from delegation.storage.memory import Faults, Killed
from delegation.tasks.life.model import Status
from delegation.tasks.life.policy import Lease
from infra.local.catalog.privileges import Privilege
from tests.kit.errors import coded
from tests.unit.gateway.drop.world import HIDDEN

S = TombstoneState
AGAIN = TableIdentifier("lake", ("ns",), "orders_again")


def restore(here, to=None):
    return here.tombstones.restore(here.record().tombstone_id, to)


def held(here):
    """Have a worker acquire the purge."""
    (task,) = here.drop_tasks()
    here.clock.advance(timedelta(days=8))
    return here.tasks.leases.acquire(task.task_id, "worker", lambda now: Lease.lasting(timedelta(minutes=10), now))


def test_a_table_in_its_grace_period_gets_its_name_back(graced):
    assert restore(graced).state is S.RESTORED
    assert (graced.uuid(), graced.hidden()) == (graced.own, [])
    (task,) = graced.drop_tasks()
    assert (task.status, task.error_code, task.attempt_count) == (Status.FAILURE, RESTORED, 0)
    graced.clock.advance(timedelta(days=9))
    graced.settle()
    assert (graced.uuid(), graced.data()) == (graced.own, graced.files_before)
    assert restore(graced).state is S.RESTORED


def test_a_restore_after_an_attempt_has_begun_is_refused(graced):
    task = held(graced)
    with pytest.raises(RestoreRefused, match="has begun"):
        restore(graced)
    assert graced.record().state is S.RENAMED
    assert graced.behavior.prepare(task) == "inline"
    with pytest.raises(RestoreRefused, match="PURGING"):
        restore(graced)
    graced.behavior.run(task, hand_over_at=None)
    with pytest.raises(RestoreRefused, match="deleted"):
        restore(graced)
    assert (graced.data(), graced.hidden(), graced.record().state) == (set(), [], S.DROPPED)


def test_a_purge_whose_table_is_being_restored_never_begins(graced):
    """The other order: the restore takes the task before the worker does."""
    graced.clock.advance(timedelta(days=8))
    (task,) = graced.drop_tasks()
    assert restore(graced).state is S.RESTORED
    late = graced.tasks.leases.acquire(task.task_id, "worker", lambda now: Lease.lasting(timedelta(minutes=10), now))
    assert (late.status, late.lease.owner) == (Status.FAILURE, None)
    assert graced.uuid() == graced.own


def test_a_worker_that_holds_a_retry_does_not_purge_what_is_being_restored(graced):
    """A person retried the task meanwhile; the record decides."""
    restore(graced)
    (task,) = graced.drop_tasks()
    graced.tasks.operators.retry(task.task_id)
    graced.work()
    assert graced.tasks.reads.get(task.task_id).error_code == "TOMBSTONE_REFUSED"
    assert (graced.uuid(), graced.data()) == (graced.own, graced.files_before)
    assert graced.record().state is S.RESTORED


def test_a_name_that_is_taken_again_can_be_replaced_by_another(graced):
    second = graced.table()
    with pytest.raises(NameTaken, match="--to"):
        restore(graced)
    assert graced.record().state is S.FAILED
    graced.tombstones.run_now(graced.record().tombstone_id)
    assert restore(graced, AGAIN).state is S.RESTORED
    assert (graced.uuid(), graced.uuid("orders_again")) == (second, graced.own)
    assert graced.record().problem is None  # that the name was taken is over


def test_a_clone_that_was_registered_under_the_name_is_the_table_and_leaves_no_stray_entry(graced):
    graced.register(graced.record().metadata_location, "orders")
    record = restore(graced)
    assert (record.state, "registered" in record.problem) == (S.RESTORED, True)
    assert (graced.uuid(), graced.hidden()) == (graced.own, [])
    graced.clock.advance(timedelta(days=9))
    graced.settle()
    assert (graced.uuid(), graced.data()) == (graced.own, graced.files_before)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("call", range(1, 12))
def test_a_restore_over_a_clone_that_is_killed_is_finished(graced, call, after):
    graced.register(graced.record().metadata_location, "orders")
    graced.restart(Faults(kill_at=call, after=after))
    with contextlib.suppress(Killed):
        restore(graced)
    graced.restart()
    assert restore(graced).state is S.RESTORED
    assert (graced.uuid(), graced.hidden()) == (graced.own, [])


def test_a_clone_of_a_former_state_is_another_table_of_the_name(graced):
    record = graced.record()
    older = min(uri for uri in graced.files_before if uri.endswith(".metadata.json"))
    assert older != record.metadata_location
    graced.register(older, "orders")
    with pytest.raises(NameTaken, match="clone"):
        restore(graced)
    assert (graced.record().state, len(graced.hidden())) == (S.FAILED, 1)
    assert restore(graced, AGAIN).state is S.RESTORED
    assert (graced.uuid(), graced.uuid("orders_again"), graced.hidden()) == (graced.own, graced.own, [])


def test_a_restore_into_another_catalog_or_a_missing_namespace_is_refused(graced):
    with pytest.raises(RestoreRefused, match="catalog lake"):
        restore(graced, TableIdentifier("other", ("ns",), "orders"))
    assert graced.drop_tasks()[0].status is Status.SUBMITTED
    with pytest.raises(RestoreRefused, match="namespace"):
        restore(graced, TableIdentifier("lake", ("gone",), "orders"))
    assert restore(graced).state is S.RESTORED


def test_a_rename_back_whose_answer_was_lost_is_found_to_be_done(graced):
    graced.requests.lose = lambda request: "answer" if request.url.path.endswith("tables/rename") else None
    assert restore(graced).state is S.RESTORED
    assert graced.uuid() == graced.own


@pytest.mark.parametrize("after", [False, True])
def test_two_restores_at_once_both_say_that_it_is_restored(graced, after):
    """Another restore, or the recurring task, finishes while this one is at its rename."""

    class Slow:
        def __getattr__(self, name):
            return getattr(graced.polaris, name)

        def rename_table(self, identifier, destination):
            if not after:
                assert restore(graced).state is S.RESTORED
            graced.polaris.rename_table(identifier, destination)
            if after:
                assert restore(graced).state is S.RESTORED

    slow = replace(graced.tombstones, catalog=Slow())
    assert slow.restore(graced.record().tombstone_id).state is S.RESTORED
    assert (graced.uuid(), graced.hidden()) == (graced.own, [])


def test_a_stranger_in_the_place_of_a_tombstone_is_not_restored(graced):
    name = graced.record().destination_name
    graced.send("DELETE", f"namespaces/{HIDDEN[0]}/tables/{name}")
    graced.table("stranger")
    graced.rename("stranger", HIDDEN, name)
    with pytest.raises(RestoreRefused, check=coded("RESTORE_REFUSED")):
        restore(graced)
    assert (graced.uuid(), graced.hidden()) == (None, [name])


def test_a_purge_brought_forward_begins_at_once(graced):
    graced.upkeep()
    graced.run_due()
    assert graced.data() == graced.files_before
    assert graced.tombstones.run_now(graced.record().tombstone_id).state is S.RENAMED
    graced.run_due()
    assert (graced.data(), graced.record().state) == (set(), S.DROPPED)
    assert graced.tombstones.run_now(graced.record().tombstone_id).state is S.DROPPED


def test_a_purge_that_failed_is_purged_again_on_request(here):
    here.table()
    manifest = next(where for where in here.lake.objects if where[1].endswith("-m0.avro"))
    whole, here.lake.objects[manifest] = here.lake.objects[manifest], b"damaged"
    here.drop()
    here.work()
    record = here.record()
    assert record.state is S.FAILED
    here.lake.objects[manifest] = whole
    here.tombstones.run_now(record.tombstone_id)
    here.work()
    assert (here.data(), here.hidden(), here.record().state) == (set(), [], S.DROPPED)


def test_another_table_than_was_dropped_is_not_purged_on_request_either(graced):
    wrong = graced.record().model_copy(update={"expected_uuid": "another", "nonce": "n"})
    graced.records.replace(wrong, graced.record())
    with pytest.raises(DropError, check=coded("PURGE_NOT_POSSIBLE")):
        graced.tombstones.run_now(wrong.tombstone_id)


def test_what_is_restored_is_not_purged(graced):
    restore(graced)
    with pytest.raises(DropError, match="RESTORED", check=coded("PURGE_NOT_POSSIBLE")):
        graced.tombstones.run_now(graced.record().tombstone_id)


def test_a_tombstone_that_never_was_is_not_found(world):
    with pytest.raises(DropError, match="tombstones list", check=coded("TOMBSTONE_NOT_FOUND")):
        world().tombstones.get("nothing")


def test_a_service_that_may_not_drop_leaves_a_failed_tombstone_which_a_retry_finishes(here):
    here.table()
    here.drop()
    here.catalog.access.revoke("service", Privilege.TABLE_DROP)
    here.work()
    record = here.record()
    assert (record.state, here.data()) == (S.FAILED, set())
    assert "TABLE_DROP" in record.problem
    with pytest.raises(RestoreRefused, match="has deleted files"):
        restore(here)
    here.catalog.access.grant("service", Privilege.TABLE_DROP)
    here.tombstones.run_now(record.tombstone_id)
    here.work()
    assert (here.hidden(), here.record().state) == ([], S.DROPPED)


def test_a_table_that_is_renamed_by_hand_after_its_first_files_were_deleted_loses_no_more_and_is_reported(here):
    """The catalog cannot refuse this rename, and no file comes back; the record says what is left to delete."""
    own, before = here.table(), here.data()
    assert here.drop().status == 204
    here.requests.lose = lambda _request: None if here.data() == before else "503 instead"
    here.run_due()
    here.requests.lose = lambda _request: None
    (hidden,) = here.hidden()
    left = here.data()
    assert (here.record().state, left < before) == (S.PURGING, True)
    ends = {"namespace": list(HIDDEN), "name": hidden}, {"namespace": ["ns"], "name": "orders"}
    here.send("POST", "tables/rename", dict(zip(("source", "destination"), ends, strict=True)))
    here.clock.advance(timedelta(hours=4))
    here.settle()
    assert (here.uuid(), here.data(), here.record().state) == (own, left, S.FAILED)
    assert "TABLE_GONE" in here.record().problem
