"""The recurring task under trouble: what cannot be finished backs off, is counted, and starves nobody."""

from datetime import timedelta

import pytest

from delegation.gateway.drop import tombstones as records
from delegation.gateway.drop.errors import DropError, RestoreRefused
from delegation.gateway.drop.steps import OTHER_TABLE
from delegation.gateway.drop.tombstones import Tombstone, TombstoneState, backoff
from delegation.identifiers import TableIdentifier
from delegation.storage.memory import Faults, Killed
from delegation.tasks.life.model import Status
from tests.kit.errors import coded
from tests.unit.gateway.drop.world import HIDDEN, REALM, DropWorld

S = TombstoneState
DAY = timedelta(days=1)
RENAME = 10
"""The number of the rename among the calls of a drop."""
TABLES = "/api/catalog/v1/lake/namespaces/delegation_tombstones/tables"


def poisoned(here: DropWorld, number: int) -> Tombstone:
    """Put a record whose destination the service may not load."""
    table = TableIdentifier("lake", ("ns",), f"poisoned_{number}")
    record = records.pending(REALM, table, HIDDEN, here.clock(), expected_uuid="u", caller="principal:bob", waits=False)
    here.records.put(record)
    answer = (403, "ForbiddenException", "Principal 'service' is not authorized")
    here.requests.fake = {**here.requests.fake, f"GET {TABLES}/{record.destination_name}": answer}
    return record


def looks(here: DropWorld, record: Tombstone) -> int:
    return here.faults.names.count(f"GET {TABLES}/{record.destination_name}")


def left_behind(here: DropWorld) -> Tombstone:
    """A drop whose process was killed right after the rename, and whose caller never comes back."""
    here.table()
    here.restart(Faults(kill_at=RENAME, after=True))
    with pytest.raises(Killed):
        here.drop()
    assert here.faults.names[-1].endswith("tables/rename")
    here.restart()
    assert here.record().state is S.PENDING
    return here.record()


def pass_time(here: DropWorld, hours: float) -> None:
    """Run the recurring task every five minutes."""
    for _ in range(int(hours * 12)):
        here.clock.advance(timedelta(minutes=5))
        here.upkeep()


def test_troubled_tombstones_do_not_keep_another_from_being_finished(here):
    for number in range(250):
        poisoned(here, number)
    here.clock.advance(timedelta(seconds=1))
    record = left_behind(here)
    pass_time(here, hours=0.5)
    assert here.records.get(record.tombstone_id).state is S.RENAMED
    here.settle()
    assert (here.records.get(record.tombstone_id).state, here.data()) == (S.DROPPED, set())


def test_a_troubled_tombstone_is_looked_at_ever_less_often_and_says_why(here):
    record = poisoned(here, 1)
    pass_time(here, hours=24)
    after = here.records.get(record.tombstone_id)
    assert looks(here, record) < 15
    assert after.attempts == looks(here, record)
    assert "is not authorized" in after.trouble
    assert here.clock() < after.check_at <= here.clock() + records.LONGEST_BACKOFF
    here.requests.fake = {}
    here.clock.advance(records.LONGEST_BACKOFF)
    here.upkeep()
    healed = here.records.get(record.tombstone_id)
    assert (healed.state, healed.attempts, healed.trouble) == (S.CLEARED, 0, None)


def test_pauses_grow_to_six_hours():
    pauses = [backoff(attempts) for attempts in range(1, 300)]
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (timedelta(minutes=4), timedelta(hours=6))


def test_a_tombstone_is_stuck_after_three_looks_and_counted_in_every_run_until_it_is_not(here):
    poisoned(here, 1)
    assert here.stuck == []
    pass_time(here, hours=2)
    assert here.stuck[0] == 0
    assert here.stuck[-6:] == [1] * 6  # most runs do not look at it
    assert here.upkeep().stuck == 1
    here.requests.fake = {}
    pass_time(here, hours=8)
    assert here.stuck[-1] == 0


def test_a_wrong_table_whose_name_is_taken_gets_it_back_when_it_is_free(here):
    here.table()

    def swap(request):
        if request.url.path.endswith("tables/rename"):
            here.requests.lose = lambda _request: None
            here.send("DELETE", "namespaces/ns/tables/orders")
            here.wrong = here.table()

    here.requests.lose = swap
    here.restart(Faults(kill_at=RENAME, after=True))
    with pytest.raises(Killed):
        here.drop()
    here.restart()
    assert here.uuid() is None
    third = here.table()
    pass_time(here, hours=3)
    record = here.record()
    assert (record.state, record.attempts >= 3, here.stuck[-1]) == (S.FAILED, True, 1)
    assert (here.uuid(), here.hidden()) == (third, [record.destination_name])
    here.rename("orders", ("ns",), "third")
    pass_time(here, hours=7)
    assert (here.uuid(), here.hidden(), here.record().state) == (here.wrong, [], S.RESTORED)
    assert here.record().problem.startswith(OTHER_TABLE)


def test_a_wrong_table_that_is_not_at_its_destination_any_more_is_closed_without_advice_to_purge_it(here):
    here.table()
    here.drop()
    wrong = here.record().model_copy(update={"expected_uuid": "another", "nonce": "n"})
    here.records.replace(wrong, here.record())
    third = here.table()
    pass_time(here, hours=1)
    assert (here.record().state, here.uuid()) == (S.FAILED, third)
    here.send("DELETE", f"namespaces/{HIDDEN[0]}/tables/{wrong.destination_name}")
    pass_time(here, hours=7)
    closed = here.record()
    assert (closed.is_ended, closed.check_at, here.stuck[-1]) == (True, None, 0)
    assert "delegation purge" not in closed.problem


def failed(here: DropWorld) -> Tombstone:
    """A tombstone whose purge was refused."""
    here.table()
    here.damage()
    here.drop()
    here.work()
    assert here.record().state is S.FAILED
    return here.record()


def test_a_failed_tombstone_whose_entry_is_gone_is_closed_and_names_its_metadata_file(here):
    record = failed(here)
    files = here.data()
    pass_time(here, hours=1)
    assert not here.record().is_ended
    here.send("DELETE", f"namespaces/{HIDDEN[0]}/tables/{record.destination_name}")
    here.clock.advance(DAY)
    here.upkeep()
    closed = here.record()
    assert (closed.is_ended, closed.check_at, here.data()) == (True, None, files)
    assert closed.expires_at is not None
    assert f"delegation purge {record.metadata_location}" in closed.problem
    assert closed.public()["state"] == "DISMISSED"


def test_a_failed_tombstone_that_somebody_renamed_back_is_closed(here):
    record = failed(here)
    ends = {"source": {"namespace": [*HIDDEN], "name": record.destination_name}}
    here.send("POST", "tables/rename", {**ends, "destination": {"namespace": ["ns"], "name": "orders"}})
    here.clock.advance(DAY)
    here.upkeep()
    assert here.record().is_ended
    assert str(here.record().identifier) in here.record().problem
    assert "delegation purge" not in here.record().problem


def test_a_failed_tombstone_without_its_metadata_file_is_dismissed_by_command(here):
    record = failed(here)
    del here.lake.objects[tuple(record.metadata_location.removeprefix("s3://").split("/", 1))]
    files = here.data()
    here.clock.advance(DAY)
    here.upkeep()
    assert not here.record().is_ended
    assert "delegation tombstones dismiss" in here.record().trouble
    dismissed = here.tombstones.dismiss(record.tombstone_id)
    assert (dismissed.is_ended, here.hidden(), here.data()) == (True, [], files)
    assert here.tombstones.dismiss(record.tombstone_id).is_ended
    for act, refused in ((here.tombstones.restore, RestoreRefused), (here.tombstones.run_now, DropError)):
        with pytest.raises(refused, match="dismissed"):
            act(record.tombstone_id)


def test_a_purge_that_was_retried_deletes_nothing_once_its_tombstone_is_dismissed(here):
    record = failed(here)
    files = here.data()
    (task,) = here.drop_tasks()
    here.tasks.operators.retry(task.task_id)
    here.tombstones.dismiss(record.tombstone_id)
    here.work()
    (ended,) = here.drop_tasks()
    assert (ended.status, ended.error_code, here.data()) == (Status.FAILURE, "TOMBSTONE_REFUSED", files)


def test_an_attempt_that_could_not_drop_the_entry_is_finished_by_the_next_one(here):
    here.table()
    here.drop()
    here.clock.advance(DAY)
    here.requests.lose = lambda request: "request" if request.method == "DELETE" else None
    here.run_due()
    assert (here.record().state, here.data(), len(here.hidden())) == (S.PURGED, set(), 1)
    here.requests.lose = lambda _request: None
    here.clock.advance(timedelta(hours=1))
    here.work()
    (task,) = here.drop_tasks()
    assert (task.status, here.record().state, here.hidden()) == (Status.SUCCESS, S.DROPPED, [])
    assert "an earlier attempt deleted all files" in task.result_summary


def test_a_purge_is_not_begun_by_command_while_a_restore_has_stopped_it(world):
    here = world(grace="1d")
    here.table()
    here.drop()
    record = here.record()
    for call in range(1, 20):
        here.restart(Faults(kill_at=call))
        with pytest.raises(Killed):
            here.tombstones.restore(record.tombstone_id)
        here.restart()
        if here.drop_tasks()[0].is_terminal:
            break
    assert here.record().state is S.RENAMED
    with pytest.raises(DropError, match="is being restored", check=coded("PURGE_NOT_POSSIBLE")):
        here.tombstones.run_now(record.tombstone_id)
    here.tombstones.restore(record.tombstone_id)
    here.settle()
    assert (here.uuid(), here.hidden()) == (record.table_uuid, [])


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("call", [1, 2, 3, 4, 5])
def test_a_killed_dismissal_is_finished_by_its_repeat_or_the_recurring_task(here, call, after):
    record = failed(here)
    here.restart(Faults(kill_at=call, after=after))
    with pytest.raises(Killed):
        here.tombstones.dismiss(record.tombstone_id)
    here.restart()
    if here.record().dismissed_at is None:
        here.tombstones.dismiss(record.tombstone_id)
    here.clock.advance(DAY)
    here.upkeep()
    assert (here.record().is_ended, here.hidden(), here.record().check_at) == (True, [], None)


def test_what_is_still_to_be_purged_or_is_another_s_table_is_not_dismissed(world):
    here = world(grace="1d")
    here.table()
    here.drop()
    with pytest.raises(DropError, match="RENAMED", check=coded("DISMISSAL_REFUSED")):
        here.tombstones.dismiss(here.record().tombstone_id)
    wrong = records.failed(here.record(), here.clock(), "why").model_copy(update={"expected_uuid": "another"})
    here.records.replace(wrong, here.record())
    with pytest.raises(DropError, check=coded("DISMISSAL_REFUSED")):
        here.tombstones.dismiss(wrong.tombstone_id)
    assert len(here.hidden()) == 1


def test_a_purge_that_is_retried_after_the_dismissal_deletes_nothing(here):
    record = failed(here)
    files = here.data()
    here.tombstones.dismiss(record.tombstone_id)
    here.tasks.operators.retry(record.task_id)
    here.work()
    assert (here.data(), here.tasks.reads.get(record.task_id).error_code) == (files, "TOMBSTONE_REFUSED")
    assert here.record().is_ended
