"""The contract of an IdempotencyStore, with the store of the tasks that its records name."""

from datetime import timedelta
from typing import Any, Final

import pytest

from delegation.idempotency import store as records
from delegation.idempotency.keys import Scope, State
from delegation.idempotency.service import bind
from delegation.idempotency.store import (
    IdempotencyStore,
    Record,
    RecordConflict,
    RecordPage,
    RecordUpkeep,
    RecordWrite,
    StoredAnswer,
    start_expiry,
)
from delegation.tasks.contract.support import (
    NOW,
    acquired,
    failed,
    nonce,
    resubmitted,
    submitted,
    written_by_a_newer_release,
)
from delegation.tasks.errors import MalformedRecord, StaleTask, TaskExists
from delegation.tasks.life.model import Task
from delegation.tasks.stores.base import Advance, Create, Expect, TaskStore

SCOPE: Final = Scope("polaris", "POLARIS", "POST", "/v1/tasks", "key-1")
ANSWER: Final = StoredAnswer(202, '{"status":"QUEUED"}')
Stores = tuple[TaskStore, IdempotencyStore]


def bound(task: Task, **changes: Any) -> Record:
    values: dict[str, Any] = {"payload_hash": "a" * 64, "answer": None, "now": NOW, "nonce": nonce()}
    return bind(SCOPE, task=task, **{**values, **changes})


def bound_to(scope: Scope, task: Task | None = None) -> Record:
    return bind(scope, task=task or submitted(), payload_hash="a" * 64, answer=None, now=NOW, nonce=nonce())


def unexpiring(idempotency: IdempotencyStore) -> list[Record]:
    return [record for page in pages(idempotency) for record in page.records]


def pages(idempotency: IdempotencyStore) -> list[RecordPage]:
    read = [idempotency.without_expiry(limit=2)]
    while read[-1].cursor is not None:
        read.append(idempotency.without_expiry(cursor=read[-1].cursor, limit=2))
    return read


class IdempotencyStoreContract:
    """The contract as tests of one store. A subclass overrides the fixture `stores`."""

    @pytest.fixture
    def stores(self) -> Stores:
        """Return a new, empty store of tasks and one of records, which are written together."""
        raise NotImplementedError(f"{type(self).__name__} needs a fixture `stores`")

    def test_a_key_and_its_task_appear_together(self, stores: Stores) -> None:
        tasks, idempotency = stores
        task = submitted()
        record = bound(task, answer=ANSWER)
        assert idempotency.accept(Create(task), RecordWrite(record)) == task
        assert tasks.get(task.task_id) == task
        stored = idempotency.get(SCOPE.id)
        assert stored == record
        assert stored is not None
        assert (stored.state, stored.answer) == (State.FINALIZED, ANSWER)

    def test_the_number_of_resubmits_is_stored(self, stores: Stores) -> None:
        _tasks, idempotency = stores
        task = submitted()
        first = bound(task)
        idempotency.accept(Create(task), RecordWrite(first))
        again = bound(task, resubmits=3)
        idempotency.put(RecordWrite(again, replaces=first))
        assert idempotency.get(SCOPE.id) == again
        assert (first.resubmits, again.resubmits) == (None, 3)

    def test_a_taken_key_leaves_no_task(self, stores: Stores) -> None:
        tasks, idempotency = stores
        first, second = submitted(), submitted()
        record = bound(first)
        idempotency.accept(Create(first), RecordWrite(record))
        with pytest.raises(RecordConflict) as conflict:
            idempotency.accept(Create(second), RecordWrite(bound(second)))
        assert conflict.value.stored == record
        assert tasks.get(second.task_id) is None

    def test_a_refused_task_leaves_no_key(self, stores: Stores) -> None:
        tasks, idempotency = stores
        task = submitted()
        tasks.apply(Create(task))
        with pytest.raises(TaskExists):
            idempotency.accept(Create(submitted(task.task_id)), RecordWrite(bound(task)))
        held = acquired(task)
        tasks.apply(Advance(task, held))
        with pytest.raises(StaleTask):
            idempotency.accept(Advance(task, acquired(task)), RecordWrite(bound(task)))
        with pytest.raises(StaleTask):
            idempotency.accept(Expect(task), RecordWrite(bound(task)))
        assert idempotency.get(SCOPE.id) is None

    def test_the_same_write_again_is_its_own(self, stores: Stores) -> None:
        tasks, idempotency = stores
        task = submitted()
        write = RecordWrite(bound(task))
        idempotency.accept(Create(task), write)
        assert idempotency.accept(Create(task), write) == task
        held = tasks.apply(Advance(task, acquired(task)))
        assert idempotency.accept(Create(task), write) in (task, held)  # the first answer, or the present one
        attached = RecordWrite(bound(held, nonce=nonce()), replaces=write.record)
        idempotency.accept(Expect(held), attached)
        tasks.apply(Advance(held, failed(held)))
        assert idempotency.accept(Expect(held), attached).task_id == task.task_id
        assert idempotency.get(SCOPE.id) == attached.record

    def test_attaching_binds_the_current_version(self, stores: Stores) -> None:
        tasks, idempotency = stores
        task = submitted()
        tasks.apply(Create(task))
        held = tasks.apply(Advance(task, acquired(task)))
        idempotency.accept(Expect(held), RecordWrite(bound(held)))
        stored = idempotency.get(SCOPE.id)
        assert stored is not None
        assert stored.bound_version == 2

    def test_a_takeover_resubmits_and_rebinds_in_one_write(self, stores: Stores) -> None:
        tasks, idempotency = stores
        task = submitted()
        record = bound(task)
        idempotency.accept(Create(task), RecordWrite(record))
        held = tasks.apply(Advance(task, acquired(task)))
        broken = tasks.apply(Advance(held, failed(held)))
        again = resubmitted(broken)
        rebound = bound(again, nonce=nonce())
        idempotency.accept(Advance(broken, again), RecordWrite(rebound, replaces=record))
        stored = idempotency.get(SCOPE.id)
        assert stored is not None
        assert stored.bound_version == again.version == 4
        late = RecordWrite(bound(again, nonce=nonce()), replaces=record)
        with pytest.raises(RecordConflict):
            idempotency.accept(Expect(again), late)

    def test_finalizing_is_conditional_on_what_was_read(self, stores: Stores) -> None:
        _tasks, idempotency = stores
        task = submitted()
        record = bound(task)
        idempotency.accept(Create(task), RecordWrite(record))
        lifetime = timedelta(minutes=30)
        final = records.finalize(record, ANSWER, NOW, lifetime=lifetime, nonce=nonce())
        assert idempotency.put(RecordWrite(final, replaces=record)) == final
        assert idempotency.put(RecordWrite(final, replaces=record)) == final
        rival = records.finalize(record, StoredAnswer(200, "{}"), NOW, lifetime=lifetime, nonce=nonce())
        with pytest.raises(RecordConflict) as conflict:
            idempotency.put(RecordWrite(rival, replaces=record))
        assert conflict.value.stored == final
        assert final.expires_at == NOW + lifetime

    def test_an_expired_record_may_be_replaced_even_when_it_is_gone(self, stores: Stores) -> None:
        _tasks, idempotency = stores
        gone = bound(submitted())
        task = submitted()
        idempotency.accept(Create(task), RecordWrite(bound(task), replaces=gone))
        stored = idempotency.get(SCOPE.id)
        assert stored is not None
        assert stored.task_id == task.task_id

    def test_only_expired_records_are_removed(self, stores: Stores) -> None:
        _tasks, idempotency = stores
        lifetime = timedelta(minutes=30)
        scopes = [Scope("polaris", "POLARIS", "POST", "/v1/tasks", f"key-{n}") for n in range(5)]
        kept = [idempotency.put(RecordWrite(bound_to(scope))) for scope in scopes]
        for record in kept[:3]:
            assert start_expiry(idempotency, record, NOW, lifetime=lifetime, nonce=nonce())
        assert {record.scope for record in unexpiring(idempotency)} == {scope.id for scope in scopes[3:]}
        assert idempotency.remove_expired(NOW + lifetime - timedelta(seconds=1), 10) == 0
        assert idempotency.remove_expired(NOW + lifetime, 2) == 2
        assert idempotency.remove_expired(NOW + lifetime, 2) == 1
        assert idempotency.remove_expired(NOW + lifetime, 2) == 0
        assert [idempotency.get(scope.id) for scope in scopes] == [None, None, None, *kept[3:]]

    def test_without_cleanup_expired_records_stay(self, stores: Stores) -> None:
        tasks, idempotency = stores
        lifetime = timedelta(minutes=30)
        record = idempotency.put(RecordWrite(bound_to(SCOPE)))
        assert start_expiry(idempotency, record, NOW, lifetime=lifetime, nonce=nonce())
        for cleanup, removed in ((False, 0), (True, 1)):
            upkeep = RecordUpkeep(tasks, idempotency, lifetime=lifetime, nonce=nonce, cleanup=cleanup)
            assert upkeep.remove_expired(NOW + lifetime, 10) == removed

    def test_expiry_starts_when_the_task_is_over_or_gone(self, stores: Stores) -> None:
        tasks, idempotency = stores
        live, over, gone = submitted(), submitted(), submitted()
        bindings = {}
        for name, task in (("live", live), ("over", over), ("gone", gone)):
            scope = Scope("polaris", "POLARIS", "POST", "/v1/tasks", name)
            bindings[name] = bound_to(scope, task)
            idempotency.accept(Create(task), RecordWrite(bindings[name]))
        tasks.apply(Advance(over, failed(over)))
        done = tasks.apply(Advance(gone, failed(gone)))
        assert tasks.remove(done)
        upkeep = RecordUpkeep(tasks, idempotency, lifetime=timedelta(minutes=30), nonce=nonce)
        assert sorted(upkeep.start_expiry(NOW), key=str) == [False, True, True]
        assert list(upkeep.start_expiry(NOW)) == [False]
        expiries = {name: idempotency.get(record.scope) for name, record in bindings.items()}
        until = NOW + timedelta(minutes=30)
        assert {name: record.expires_at for name, record in expiries.items() if record} == {
            "live": None,
            "over": until,
            "gone": until,
        }

    def test_records_that_cannot_be_read_hide_no_others(self, stores: Stores) -> None:
        """A newer release's record, and a record of a newer release's task."""
        tasks, idempotency = stores
        for name in ("live", "over", "newer", "newer task"):
            scope = Scope("polaris", "POLARIS", "POST", "/v1/tasks", name)
            task = tasks.apply(Create(submitted()))
            record = bound_to(scope, task)
            idempotency.put(RecordWrite(record.model_copy(update={"format": 9}) if name == "newer" else record))
            if name == "over":
                tasks.apply(Advance(task, failed(task)))
            if name == "newer task":
                written_by_a_newer_release(tasks, task)
            if name == "newer":
                newer = scope.id
        assert [scope for page in pages(idempotency) for scope in page.unreadable] == [newer]
        assert len(unexpiring(idempotency)) == 3
        with pytest.raises(MalformedRecord):
            idempotency.get(newer)
        upkeep = RecordUpkeep(tasks, idempotency, lifetime=timedelta(minutes=30), nonce=nonce)
        started = list(upkeep.start_expiry(NOW))
        assert (started.count(True), started.count(False), started.count(None)) == (1, 1, 2)
