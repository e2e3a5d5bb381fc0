"""Adopting a child is a write of the attempt that holds the parent, made before the child exists."""

import pytest

from delegation.tasks.errors import LeaseLost, StoreUnavailable, TaskNotFound
from delegation.tasks.life.model import Task
from delegation.tasks.stores.base import Adopt, Create
from delegation.tasks.submit import Parent, Tasks
from polaris_common.errors import DelegationError
from tests.kit.errors import coded
from tests.kit.tasks.builders import HOUR, submitted
from tests.kit.tasks.harness import TRANSIENT, RacedService
from tests.kit.tasks.sites import ADD, ONE


def a_child() -> Task:
    return submitted(task_type="CHILD")


def reassigned(harness: RacedService, task_id: str) -> None:
    harness.clock.advance(HOUR)
    harness.acquire(task_id, "run-2")


def handed_back(harness: RacedService, task_id: str) -> None:
    harness.service.leases.end_attempt(task_id, 1, TRANSIENT)


@pytest.mark.parametrize("nameless", [False, True])
@pytest.mark.parametrize("end", [reassigned, handed_back])
def test_an_attempt_that_no_longer_holds_the_parent_adopts_nothing(harness, end, nameless):
    task_id = harness.running()
    end(harness, task_id)
    standing = harness.service.reads.get(task_id)
    with pytest.raises(LeaseLost):
        harness.service.leases.adopt(task_id, 1, a_child(), nameless=nameless)
    assert harness.service.reads.get(task_id) == standing
    assert harness.service.reads.store.children(task_id) == ()


def test_a_task_does_not_adopt_itself(harness: RacedService) -> None:
    task_id = harness.running()
    with pytest.raises(DelegationError, check=coded("WAITS_FOR_ITSELF"), match=task_id):
        harness.service.leases.adopt(task_id, 1, submitted(task_id))
    assert harness.service.reads.store.children(task_id) == ()


@pytest.mark.parametrize("nameless", [False, True])
def test_an_attempt_that_loses_the_parent_while_it_writes_adopts_nothing(harness: RacedService, nameless: bool) -> None:
    """Also where the head need not change: the write checks that the head is still of the version that was read."""
    task_id = harness.running()
    harness.service.leases.adopt(task_id, 1, a_child())
    before = harness.service.reads.store.children(task_id)
    harness.race(lambda: harness.rival.leases.end_attempt(task_id, 1, TRANSIENT))
    with pytest.raises(LeaseLost):
        harness.service.leases.adopt(task_id, 1, a_child(), nameless=nameless)
    assert harness.service.reads.store.children(task_id) == before


def test_a_parent_that_keeps_changing_or_is_gone_adopts_nothing(harness: RacedService) -> None:
    task_id = harness.running()
    harness.race(*[lambda: harness.rival.leases.note(task_id, 1, details={"files_deleted": 1})] * 1000)
    with pytest.raises(StoreUnavailable, match="kept changing"):
        harness.service.leases.adopt(task_id, 1, a_child(), nameless=True)
    with pytest.raises(TaskNotFound):
        harness.service.leases.adopt("x", 1, a_child())


def test_a_child_is_noted_before_it_is_stored(harness: RacedService) -> None:
    """A crash in between leaves a parent that knows of a child, never a child that no parent awaits."""
    task_id = harness.running()
    harness.store.applied.clear()
    Tasks(harness.service).submit(ADD, ONE, parent=Parent(task_id, 1))
    assert [type(change) for change in harness.store.applied] == [Adopt, Create]


def test_the_ordinals_of_nameless_children_begin_anew_with_each_attempt(harness: RacedService) -> None:
    task_id = harness.running()
    first = [harness.service.leases.adopt(task_id, 1, a_child(), nameless=True).task_id for _ in range(3)]
    assert len(set(first)) == 3
    reassigned(harness, task_id)
    again = [harness.service.leases.adopt(task_id, 2, a_child(), nameless=True).task_id for _ in range(3)]
    assert again == first
    assert {one.attempt for one in harness.service.reads.store.children(task_id)} == {2}
