"""An execution that handed its attempt to the next one changes nothing when a heartbeat of it comes late."""

import pytest

from delegation.orchestration.steps import MAX_TURNS
from tests.kit.tasks.builders import MINUTE
from tests.kit.tasks.driven import Driven


@pytest.fixture
def handed_over() -> Driven:
    driven = Driven()
    driven.acquire()
    driven.start()
    driven.jobs.become(f"{driven.task_id}-1", "PENDING")
    service, former = driven.tasks, driven.step
    service.leases.hand_to_next_execution(driven.task_id, 1, former.execution, lambda n: f"{driven.task_id}-{n}")
    assert driven.task.lease.owner == f"{driven.task_id}-2"
    driven.clock.advance(30 * MINUTE)
    driven.queue.sent.clear()
    return driven


def test_a_heartbeat_of_the_former_owner_stops_and_does_not_renew(handed_over: Driven) -> None:
    standing = handed_over.task
    assert handed_over.beat()["next"] == "stop"
    assert handed_over.task == standing
    assert handed_over.queue.sent == []


def test_a_second_hand_over_by_the_former_owner_only_sends_again(handed_over: Driven) -> None:
    standing = handed_over.task
    name = handed_over.step.execution
    handed_over.tasks.leases.hand_to_next_execution(
        handed_over.task_id, 1, name, lambda n: f"{handed_over.task_id}-{n}"
    )
    assert handed_over.task == standing
    assert handed_over.queue.sent == [(handed_over.task_id, 2)]
    assert handed_over.step.turn < MAX_TURNS


def test_the_owner_renews(handed_over: Driven) -> None:
    before = handed_over.task.lease.lost_not_before
    handed_over.acquire(2)
    assert handed_over.beat()["next"] == "heartbeat"
    assert before is not None
    assert handed_over.task.lease.lost_not_before == before + 30 * MINUTE
