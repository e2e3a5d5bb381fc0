"""Typed and cached objects and references of a catalog, updateable objects and coordinated tasks."""

import threading
from concurrent.futures import ThreadPoolExecutor

import cbor2
import pytest

from polaris_persistence.backends.base import COPIED_BYTES, HeadCopy, ObjectKey, Reference, StoredObject
from polaris_persistence.errors import (
    BackendUnavailable,
    CommitOutcomeUnknown,
    ReferenceExists,
    ReferenceNotFound,
    StaleObject,
    TaskHeld,
    TaskTakenOver,
    UnknownType,
)
from polaris_persistence.maintenance.coordination import TASK_TYPE, CoordinatedTask, TaskState
from polaris_persistence.objects.objects import ObjectRef, PersistedModel, UnknownObject
from polaris_persistence.objects.types import ObjectType, ObjectTypes
from polaris_persistence.objects.updateable import Updateables
from tests.kit.clocks import MicrosecondClock
from tests.persistence.builders import TYPES, Counter, CountingBackend, Entity, store_on

LOST = CommitOutcomeUnknown("cut off")
DOWN = BackendUnavailable("down")
KEY = ObjectKey("r", "c", "counter", 5)


@pytest.fixture
def backend() -> CountingBackend:
    return CountingBackend()


@pytest.fixture
def clock() -> MicrosecondClock:
    return MicrosecondClock()


def test_objects_are_written_under_new_ids_and_read_in_order(backend: CountingBackend) -> None:
    store = store_on(backend)
    refs = store.write([Entity(name=name) for name in "abc"])
    missing = ObjectRef("entity", 1)
    found = store_on(backend).fetch_many([refs[2], missing, refs[0], refs[2]])
    assert [one.value.name if one else None for one in found] == ["c", None, "a", "c"]
    assert [ref.type for ref in refs] == ["entity"] * 3
    assert len({ref.id for ref in refs}) == 3


def test_immutable_objects_are_read_once_and_not_at_all_after_writing(backend: CountingBackend) -> None:
    store = store_on(backend)
    [ref] = store.write([Entity(name="a")])
    backend.calls.clear()
    store.fetch(ref, Entity)
    assert backend.calls == []
    reader = store_on(backend)
    for _ in range(3):
        reader.fetch(ref, Entity)
    assert backend.calls == ["fetch_many"]
    with pytest.raises(TypeError, match="Entity"):
        reader.fetch(ref, Counter)
    store.delete([ref])
    assert store.fetch(ref, Entity) is None
    # Another process may write it at any time.
    store_on(backend, ids=lambda: ref.id).write([Entity(name="late")])
    assert store.fetch(ref, Entity)


def test_only_immutable_objects_are_read_without_consistency(backend: CountingBackend) -> None:
    reads: list[bool] = []

    class Watched(CountingBackend):
        def fetch_many(self, wanted, *, consistent=True):
            reads.append(consistent)
            return super().fetch_many(wanted, consistent=consistent)

    store = store_on(Watched())
    immutable, mutable, unknown = ObjectRef("entity", 1), ObjectRef("counter", 2), ObjectRef("foreign", 3)
    for refs in ([immutable], [mutable], [immutable, mutable], [unknown]):
        store.fetch_many(refs)
    assert reads == [False, True, True, True]


def test_object_types_decide_on_negative_caching(backend: CountingBackend, clock: MicrosecondClock) -> None:
    types = ObjectTypes([ObjectType("counter", Counter, mutable=True, absent_expires_after=10)])
    store = store_on(backend, clock, types=types)
    ref = ObjectRef("counter", 5)
    assert [store.fetch(ref, Counter) for _ in range(3)] == [None] * 3
    assert backend.calls == ["fetch_many"]
    clock.advance(10)
    assert store.fetch(ref, Counter) is None
    assert len(backend.calls) == 2


def test_mutable_objects_are_cached_for_the_time_of_their_type(
    backend: CountingBackend, clock: MicrosecondClock
) -> None:
    store = store_on(backend, clock)
    written = store.updateables.insert(KEY, Counter(count=5))
    ref = written.ref
    backend.calls.clear()
    assert [store.fetch(ref, Counter) for _ in range(3)] == [written] * 3
    store_on(backend, clock).updateables.update(written, Counter(count=0))
    clock.advance(4.9)
    assert store.fetch(ref, Counter) == written
    clock.advance(0.1)
    for _ in range(2):
        found = store.fetch(ref, Counter)
        assert found
        assert found.value.count == 0
    # Read first, then after it expired, then each time: a value of 0 is not cached.
    assert backend.calls.count("fetch_many") == 3


def test_a_process_reads_its_updates_at_once(backend: CountingBackend, clock: MicrosecondClock) -> None:
    store = store_on(backend, clock)
    written = store.updateables.insert(KEY, Counter(count=1_000))
    assert store.fetch(written.ref, Counter) == written
    updated = store.updateables.update(written, Counter(count=2_000))
    assert store.fetch(written.ref, Counter) == updated
    backend.fail_after["update"] = [LOST] * 5
    backend.fail_before["fetch_many"] = [DOWN]
    with pytest.raises(BackendUnavailable):
        store.updateables.update(updated, Counter(count=3_000))
    found = store.fetch(written.ref, Counter)
    assert found
    assert found.value.count == 3_000
    store.updateables.delete(found)
    assert store.fetch(written.ref, Counter) is None


def test_updateable_objects_are_not_written_once_and_unknown_models_not_at_all(backend: CountingBackend) -> None:
    class Stranger(PersistedModel):
        pass

    store = store_on(backend)
    with pytest.raises(ValueError, match="updateable"):
        store.write([Counter()])
    with pytest.raises(UnknownType):
        store.write([Stranger()])
    for value in (Entity(name="a"), Counter()):
        with pytest.raises(ValueError, match="not the key of an updateable"):
            store.updateables.insert(ObjectKey("r", "c", "entity", 1), value)


def test_objects_of_unknown_types_are_carried_and_not_cached(backend: CountingBackend) -> None:
    stored = StoredObject(ObjectKey("r", "c", "foreign", 9), cbor2.dumps({"a": 1}), 1)
    backend.put_many([stored])
    store = store_on(backend)
    backend.calls.clear()
    for _ in range(2):
        found = store.fetch(ObjectRef("foreign", 9), UnknownObject)
        assert found
        assert found.value.model_extra == {"a": 1}
    assert len(backend.calls) == 2


def test_references_are_read_each_time_by_default(backend: CountingBackend) -> None:
    store, other = store_on(backend), store_on(backend)
    with pytest.raises(ReferenceNotFound, match="main"):
        store.reference("main")
    made = other.create_reference("main", 5)
    assert store.reference("main") == made
    with pytest.raises(ReferenceExists):
        store.create_reference("main")
    moved = made.moved_to(6)
    backend.replace_reference(moved, expected=made)
    assert store.reference("main") == moved
    assert [one.head for one in store.references()] == [6]
    assert list(store_on(backend, catalog="other").references()) == []


def test_reference_cache_expiry_bounds_staleness(backend: CountingBackend, clock: MicrosecondClock) -> None:
    store = store_on(backend, clock, references_cached_for=2)
    with pytest.raises(ReferenceNotFound):
        store.reference("main")
    made = store_on(backend, clock).create_reference("main", 5)
    with pytest.raises(ReferenceNotFound):
        store.reference("main")
    clock.advance(2)
    assert store.reference("main") == made
    moved = made.moved_to(6)
    backend.replace_reference(moved, expected=made)
    clock.advance(1.9)
    assert store.reference("main") == made
    assert store.current_reference("main") == moved
    backend.calls.clear()
    assert store.reference("main") == moved
    assert backend.calls == []
    with pytest.raises(ReferenceNotFound):
        store.reference("own")
    own = store.create_reference("own")
    assert store.reference("own") == own


@pytest.mark.parametrize("applied", [True, False])
def test_a_reference_whose_creation_got_no_answer_is_created_once(backend: CountingBackend, applied: bool) -> None:
    store = store_on(backend)
    (backend.fail_after if applied else backend.fail_before)["create_reference"] = [LOST]
    made = store.create_reference("main", 5)
    assert backend.read_reference(made.key) == made
    backend.fail_before["create_reference"] = [LOST] * 5
    with pytest.raises(CommitOutcomeUnknown):
        store.create_reference("other")


def test_a_reference_created_by_another_while_the_answer_was_lost_exists(
    backend: CountingBackend, clock: MicrosecondClock
) -> None:
    backend.fail_before["create_reference"] = [LOST, None]
    other = store_on(backend, MicrosecondClock())
    backend.meanwhile["create_reference"] = [lambda: None, lambda: other.create_reference("main", 7)]
    clock.advance(1)
    with pytest.raises(ReferenceExists):
        store_on(backend, clock).create_reference("main", 5)


def test_updateable_objects_change_on_the_version_that_was_read(
    backend: CountingBackend, clock: MicrosecondClock
) -> None:
    objects = Updateables(backend, TYPES, clock.now_us)
    assert objects.read(KEY, Counter) is None
    first = objects.insert(KEY, Counter(count=1))
    with pytest.raises(StaleObject):
        objects.insert(KEY, Counter(count=9))
    clock.advance(5)
    second = objects.update(first, Counter(count=2))
    assert second.created_at == first.created_at
    assert second.token != first.token
    for stale in (lambda: objects.update(first, Counter(count=3)), lambda: objects.delete(first)):
        with pytest.raises(StaleObject):
            stale()
    assert objects.read(KEY, Counter) == second
    objects.delete(second)
    assert objects.read(KEY, Counter) is None


@pytest.mark.parametrize("applied", [True, False])
def test_an_update_without_an_answer_is_reconciled(backend: CountingBackend, applied: bool) -> None:
    objects = Updateables(backend, TYPES, MicrosecondClock().now_us)
    faults = backend.fail_after if applied else backend.fail_before
    faults["insert"], faults["update"], faults["delete"] = [LOST], [LOST], [LOST]
    first = objects.insert(KEY, Counter(count=1))
    second = objects.update(first, Counter(count=2))
    assert objects.read(KEY, Counter) == second
    objects.delete(second)
    assert objects.read(KEY, Counter) is None


@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.parametrize("operation", ["insert", "update", "delete"])
def test_a_lost_write_followed_by_another_has_an_unknown_outcome(
    backend: CountingBackend, operation: str, applied: bool
) -> None:
    objects = Updateables(backend, TYPES, MicrosecondClock().now_us)
    other = Updateables(backend, TYPES, MicrosecondClock().now_us)
    first = None if operation == "insert" else objects.insert(KEY, Counter(count=1))

    def another() -> None:
        current = other.read(KEY, Counter)
        if current:
            other.update(current, Counter(count=50))
        else:
            other.insert(KEY, Counter(count=50))

    (backend.fail_after if applied else backend.fail_before)[operation] = [LOST]
    backend.meanwhile["fetch_many"] = [another]
    calls = {
        "insert": lambda: objects.insert(KEY, Counter(count=2)),
        "update": lambda: first and objects.update(first, Counter(count=2)),
        "delete": lambda: first and objects.delete(first),
    }
    with pytest.raises(CommitOutcomeUnknown):
        calls[operation]()
    found = objects.read(KEY, Counter)
    assert found
    assert found.value.count == 50


def test_a_late_update_finds_its_condition_false(backend: CountingBackend) -> None:
    """A delayed first try of a repeated update arrives last and changes nothing."""
    objects = Updateables(backend, TYPES, MicrosecondClock().now_us)
    first = objects.insert(KEY, Counter(count=1))
    backend.fail_before["update"] = [LOST]
    second = objects.update(first, Counter(count=2))
    third = objects.update(second, Counter(count=3))
    assert first.token
    late = StoredObject(KEY, cbor2.dumps({"count": 2}), second.created_at, second.token)
    assert backend.update(late, expected=first.token) is not None
    assert objects.read(KEY, Counter) == third


TASK_KEY = ObjectKey("", "", TASK_TYPE.name, 1)


def task(backend: CountingBackend, clock: MicrosecondClock) -> CoordinatedTask:
    objects = Updateables(backend, ObjectTypes([TASK_TYPE]), clock.now_us)
    return CoordinatedTask(objects, TASK_KEY, 60.0, clock.now_us)


def test_a_lost_run_is_taken_over_at_its_checkpoint_and_its_writes_are_refused(
    backend: CountingBackend, clock: MicrosecondClock
) -> None:
    slow = task(backend, clock).start()
    with pytest.raises(TaskHeld):
        task(backend, clock).start()
    clock.advance(1)
    slow.checkpoint({"at": 5})
    clock.advance(59)
    with pytest.raises(TaskHeld):
        task(backend, clock).start()
    clock.advance(1)
    second = task(backend, clock).start()
    assert second.state == {"at": 5}
    for late in (lambda: slow.checkpoint({"at": 6}), lambda: slow.finish({}), slow.hand_over):
        with pytest.raises(TaskTakenOver):
            late()
    second.hand_over()
    third = task(backend, clock).start()
    assert third.state == {"at": 5}
    third.finish({"at": 9})
    assert task(backend, clock).start().state == {"at": 9}
    stored = Updateables(backend, ObjectTypes([TASK_TYPE]), clock.now_us).read(TASK_KEY, TaskState)
    assert stored
    assert (stored.value.runs, stored.value.holder is None) == (4, False)


def test_one_of_many_processes_that_start_a_task_runs_it(clock: MicrosecondClock) -> None:
    for lost_before in (False, True):
        backend = CountingBackend()
        if lost_before:
            task(backend, clock).start()
            clock.advance(100)
        together = threading.Barrier(8)

        def start(_number: int, backend: CountingBackend = backend, together: threading.Barrier = together) -> bool:
            together.wait()
            try:
                task(backend, clock).start()
            except TaskHeld:
                return False
            return True

        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(start, range(8))) == 1


@pytest.mark.parametrize("is_read", [True, False])
def test_cached_references_weigh_what_is_copied_into_them(
    backend: CountingBackend, clock: MicrosecondClock, is_read: bool
) -> None:
    """A head of 4 KB is copied into the row of its reference: a cache of 100 KB holds few of these."""
    store = store_on(backend, clock, capacity=100_000, references_cached_for=60)
    for number in range(100):
        key = store.reference_key(str(number))
        one = Reference(key, (number + 1,), 1, 1, (), HeadCopy(number + 1, bytes(COPIED_BYTES), 1))
        backend.create_reference(one)
        if is_read:
            store.reference(key.name)
        else:
            store.remember_reference(one)
    counted = store._cache.statistics()
    assert 0 < counted.entries * COPIED_BYTES <= 100_000
