"""Parents of many children: children are written and read in batches, and the last one wakes its parent."""

from collections import Counter
from datetime import timedelta

import pytest

from delegation.tasks.authoring import Context, behavior
from delegation.tasks.life.model import Status
from delegation.tasks.stores.base import MOST_AT_ONCE
from delegation.tasks.testing import TaskHarness
from delegation.tasks.work.behaviors import CHILDREN_PENDING

MANY = 300
_WRITES = -(-MANY // MOST_AT_ONCE)


@behavior("acme.one")
def one(number: int) -> int:
    return number


@behavior("acme.all")
def all_of_them(context: Context, numbers: list[int]) -> int:
    return sum(context.gather(context.submit_all([one.of(number) for number in numbers])))


class Counted:
    """A harness that counts the calls of its store."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.harness = TaskHarness(all_of_them, one)
        self.harness.store.fault = self._count

    def _count(self, point: str) -> None:
        if point.startswith("before "):
            self.calls[point.removeprefix("before ")] += 1


@pytest.fixture
def counted() -> Counted:
    return Counted()


def test_three_hundred_children_are_written_and_read_in_batches(counted: Counted) -> None:
    """They were 1,506 reads and 600 writes one after the other."""
    harness = counted.harness
    handle = harness.submit(all_of_them.of(list(range(MANY))))
    assert harness._run_one()
    assert counted.calls.total() <= 40 + 2 * _WRITES
    children = harness.service.reads.children(handle.task_id)
    while not all(harness.service.reads.get(child).is_terminal for child in children):
        assert harness._run_one()
    harness.now += timedelta(minutes=10)
    counted.calls.clear()
    assert harness._run_one()
    assert handle.result() == sum(range(MANY))
    assert counted.calls.total() <= 40 + 2 * _WRITES


def test_the_last_child_wakes_its_parent(counted: Counted) -> None:
    """It polled its children every 5 s at first and every minute at last, an attempt each."""
    harness = counted.harness
    handle = harness.submit(all_of_them.of(list(range(20))))
    harness.run_due()
    assert handle.result() == sum(range(20))
    assert harness.service.reads.get(handle.task_id).attempt_count <= 8
    waits = [row for row in harness.store.history(handle.task_id) if row.error_code == CHILDREN_PENDING]
    assert waits


def test_a_child_that_ends_while_its_parent_goes_to_wait_for_it_wakes_it(counted: Counted) -> None:
    """The parent reads it as open, it ends, and then the parent's waiting is written."""
    harness = counted.harness
    handle = harness.submit(all_of_them.of([7]))
    store, apply, done = harness.store, harness.store.apply, []

    def late(change):  # type: ignore[no-untyped-def]
        after = getattr(change, "after", None)
        if after is not None and after.error_code == CHILDREN_PENDING and not done:
            done.append(True)
            (child,) = harness.service.reads.children(handle.task_id)
            harness.service.operators.cancel(child)
        return apply(change)

    store.apply = late  # type: ignore[method-assign]
    assert harness._run_one()
    head = harness.service.reads.get(handle.task_id)
    assert (head.status, head.next_scheduled_run_ts) == (Status.RETRY_SCHEDULED, harness.now)


def test_a_parent_whose_wake_was_lost_looks_by_itself(counted: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delegation.tasks.work.writes.WriteLoop._wake_parent", lambda *_: None)
    harness = counted.harness
    handle = harness.submit(all_of_them.of([1, 2]))
    harness.run_due()
    began = harness.now
    harness.run_until_idle()
    assert handle.result() == 3
    assert timedelta(0) < harness.now - began <= timedelta(minutes=5)


def test_a_batch_of_submissions_is_written_at_once_and_attaches_to_what_exists(counted: Counted) -> None:
    harness = counted.harness
    calls = [one.of(number) for number in range(50)]
    first = harness.tasks.submit_all(calls)
    assert all(submitted.is_new for submitted in first)
    assert counted.calls["create_all"] == 2
    assert counted.calls["apply"] == 0
    (third,) = harness.tasks.submit_all([one.of(3)], key="three")
    again, other = (harness.tasks.submit_all([one.of(3)], key=key)[0] for key in ("three", "four"))
    assert (again.task_id, again.is_new, other.is_new) == (third.task_id, False, True)
    harness.run_until_idle()
    assert [submitted.handle.wait() for submitted in first] == list(range(50))


@pytest.mark.parametrize(
    ("children", "ended", "text"),
    [(2, 2, "all children have ended"), (1, 0, "1 of 1 child"), (3, 1, "2 of 3 children")],
)
def test_a_waiting_parent_states_how_many_children_it_waits_for(counted, monkeypatch, children, ended, text):
    """Children may end after the work looked for their results."""
    harness = counted.harness
    handle = harness.submit(all_of_them.of(list(range(children))))
    reads = type(harness.service.reads)
    find_many = reads.find_many

    def looked(self, task_ids):  # type: ignore[no-untyped-def]
        heads = find_many(self, task_ids)
        for task_id in list(task_ids)[:ended]:
            harness.service.operators.cancel(task_id)
        return heads

    monkeypatch.setattr(reads, "find_many", looked)
    assert harness._run_one()
    head = harness.service.reads.get(handle.task_id)
    assert head.error_code == CHILDREN_PENDING
    assert text in str(head.result_summary)
