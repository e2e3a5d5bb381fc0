"""What a pause covers, who changes the record, and how often a process reads it."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegation.tasks.errors import MalformedRecord, StoreUnavailable, TaskError
from delegation.tasks.life.declared import TaskType, TaskTypes
from delegation.tasks.life.model import Caller, Labels
from delegation.tasks.pauses import (
    EVERYTHING,
    LONGEST_REASON,
    MOST_PAUSES,
    MemoryPauseStore,
    PauseControl,
    PauseMode,
    PauseRecord,
    PauseScope,
    ReadPauses,
    WorkPause,
    pause_of,
    pauses_item,
    pauses_of,
)
from tests.kit.errors import coded
from tests.kit.tasks.builders import NOW, Clock, submitted

OPS = Caller(client_id="ops", subject="CN=ops")
ORDERS = PauseScope(table="lake.sales.orders")
REALM = PauseScope(realm="POLARIS")
LABELS = Labels("lake.sales.orders", None, "POLARIS")
scopes = st.one_of(
    st.just(EVERYTHING),
    st.sampled_from(["POLARIS", "other"]).map(lambda realm: PauseScope(realm=realm)),
    st.sampled_from(["lake.sales.orders", "lake.x"]).map(lambda table: PauseScope(table=table)),
)
pauses = st.builds(WorkPause, scopes, st.just(NOW), st.just(OPS), st.text(max_size=9), st.sampled_from(PauseMode))


@pytest.mark.parametrize(
    ("scope", "labels", "covered"),
    [
        (EVERYTHING, Labels(), True),
        (REALM, LABELS, True),
        (REALM, Labels(), False),
        (REALM, Labels("lake.sales.orders", None, "other"), False),
        (ORDERS, LABELS, True),
        (ORDERS, Labels("lake.sales.items", None, "POLARIS"), False),
        (ORDERS, Labels(), False),
    ],
)
def test_a_scope_covers_the_tasks_with_its_labels(scope: PauseScope, labels: Labels, covered: bool) -> None:
    assert scope.covers(labels) is covered


@given(st.lists(pauses, max_size=6))
def test_a_record_survives_its_stored_form_and_holds_one_pause_a_scope(many: list[WorkPause]) -> None:
    record = PauseRecord()
    for one in many:
        record = record.with_pause(one)
    assert pauses_of(pauses_item(record)) == record
    assert len({one.scope for one in record.pauses}) == len(record.pauses)
    assert [pause_of(one.document()) for one in record.pauses] == list(record.pauses)
    covering = [one for one in record.pauses if one.scope.covers(LABELS)]
    found = record.of(LABELS)
    assert (found is None) == (covering == [])
    if found is not None:
        assert found.mode is min((one.mode for one in covering), key=lambda mode: mode is PauseMode.DRAIN)
    for one in many:
        record = record.without(one.scope)
    assert record.pauses == ()


@pytest.mark.parametrize("item", [{}, {"format": 2}, {"format": 1}, {"format": 1, "revision": 1, "pauses": [{}]}])
def test_another_record_is_malformed(item: dict[str, Any]) -> None:
    with pytest.raises(MalformedRecord):
        pauses_of(item)


class RacingPauseStore(MemoryPauseStore):
    """Another operator pauses a table just before each of the first writes."""

    def __init__(self, races: int) -> None:
        super().__init__()
        self.races = races

    def write(self, record: PauseRecord) -> bool:
        if self.races:
            self.races -= 1
            now = self.read()
            pause = WorkPause(PauseScope(table=f"t{self.races}"), NOW, OPS)
            assert super().write(now.with_pause(pause))
        return super().write(record)


def test_a_pause_keeps_who_began_it_and_a_repeat_changes_nothing() -> None:
    clock, store = Clock(), MemoryPauseStore()
    control = PauseControl(store, clock)
    first = control.pause(EVERYTHING, by=OPS, reason=" upgrade ")
    clock.advance(timedelta(minutes=5))
    assert control.pause(EVERYTHING, by=Caller(client_id="other"), reason="me too") == first == control.shown()
    assert first.of_everything.text == "paused by ops (CN=ops) since 2026-11-21T12:00:00Z (all): upgrade"
    drained = control.pause(EVERYTHING, by=OPS, mode=PauseMode.DRAIN)
    assert (drained.revision, len(drained.pauses), drained.pauses[0].mode) == (2, 1, PauseMode.DRAIN)
    assert control.resume(ORDERS) == drained
    assert control.resume(EVERYTHING).pauses == ()


def test_operators_that_race_lose_nothing() -> None:
    store = RacingPauseStore(3)
    control = PauseControl(store, Clock())
    found = control.pause(ORDERS, by=OPS, reason="x" * 999)
    assert {one.scope.table for one in found.pauses} == {"t0", "t1", "t2", "lake.sales.orders"}
    assert len(found.pauses[-1].reason) == LONGEST_REASON
    store.races = 99
    with pytest.raises(StoreUnavailable, match="nothing was written"):
        control.resume(ORDERS)


def test_the_record_stays_small() -> None:
    store = MemoryPauseStore()
    many = tuple(WorkPause(PauseScope(table=f"t{n}"), NOW, OPS) for n in range(MOST_PAUSES))
    assert store.write(PauseRecord(1, many))
    control = PauseControl(store, Clock())
    with pytest.raises(TaskError, check=coded("TOO_MANY_PAUSES")):
        control.pause(ORDERS, by=OPS)
    assert len(control.resume(many[0].scope).pauses) == MOST_PAUSES - 1


class CountedReads:
    """Reads of a record, counted; `trouble` is raised by the next ones."""

    def __init__(self) -> None:
        self.record, self.reads, self.at = PauseRecord(), 0, 0.0
        self.trouble: Exception | None = None
        types = TaskTypes([TaskType(name="TABLE_PURGE", labels=lambda _payload: LABELS)])
        self.lookout = ReadPauses(self.read, types, monotonic=lambda: self.at)

    def read(self) -> PauseRecord:
        self.reads += 1
        if self.trouble is not None:
            raise self.trouble
        return self.record

    def paused(self, scope: PauseScope, mode: PauseMode = PauseMode.STOP) -> None:
        self.record = self.record.with_pause(WorkPause(scope, NOW, OPS, mode=mode))


def test_a_process_reads_the_record_three_times_a_minute_whatever_it_does() -> None:
    counted = CountedReads()
    for _ in range(600):
        counted.lookout.work(submitted())
        counted.lookout.everything()
        counted.at += 0.1
    assert counted.reads == 3
    counted.paused(EVERYTHING)
    assert counted.lookout.everything() is not None


def test_a_drain_keeps_tasks_from_beginning_and_lets_work_continue() -> None:
    counted = CountedReads()
    counted.paused(ORDERS, PauseMode.DRAIN)
    assert counted.lookout.start(submitted()) is not None
    assert counted.lookout.work(submitted()) is None
    assert counted.lookout.start(submitted(task_type="store-maintenance")) is None
    counted.paused(REALM)
    counted.at += 20
    assert counted.lookout.work(submitted()) is not None


def test_an_unreachable_store_leaves_the_last_record_in_force() -> None:
    counted = CountedReads()
    counted.trouble = StoreUnavailable("away")
    with pytest.raises(StoreUnavailable):
        counted.lookout.everything()
    counted.trouble = None
    counted.paused(EVERYTHING)
    assert counted.lookout.everything() is not None
    counted.trouble, counted.at = StoreUnavailable("away"), 60.0
    assert counted.lookout.everything() is not None


def test_a_record_of_a_newer_release_pauses_everything() -> None:
    counted = CountedReads()
    counted.trouble = MalformedRecord("format: 2 is not 1")
    pause = counted.lookout.work(submitted(task_type="store-maintenance"))
    assert "newer" in pause.text
