"""The details of a purge on its task: the first plan wins, a new start removes it, unreadable details are refused."""

from datetime import timedelta
from typing import Any

import pytest

from delegation.removal.attempt import PlanSegment
from delegation.removal.details import changed, published
from delegation.removal.purge.task_type import PURGE, PurgeDetails
from delegation.tasks.errors import LeaseLost, MalformedRecord
from delegation.tasks.life import transitions as t
from delegation.tasks.life.model import Status, Task
from tests.kit.tasks.builders import MINUTE, NOW, in_status, submitted
from tests.kit.tasks.harness import RacedService

ONE, OTHER = PlanSegment(id="1/0", sha256="aa"), PlanSegment(id="1/1", sha256="bb")
PROGRESS: dict[str, Any] = {
    "plan_segments": [{"id": "1/0", "sha256": "00"}],
    "files_planned": 9,
    "bytes_deleted": 512,
    "purged_metadata_location": "s3://lake/orders/metadata/9.json",
}


def publish(service: Any, task_id: str, segment: PlanSegment, *, seen: int, files_planned: int) -> PurgeDetails:
    def decide(task: Task, _now: object) -> Task:
        return published(task, 1, segment, seen=seen, files_planned=files_planned)

    return PurgeDetails.of(service.writes.change(task_id, decide))


def test_the_first_plan_wins_and_a_planner_that_lost_its_lease_publishes_nothing() -> None:
    harness = RacedService()
    task_id = harness.running()
    harness.race(lambda: publish(harness.rival, task_id, ONE, seen=0, files_planned=10))
    seen = publish(harness.service, task_id, OTHER, seen=0, files_planned=99)
    assert (seen.plan_segments, seen.files_planned) == ((ONE,), 10)
    more = publish(harness.service, task_id, OTHER, seen=1, files_planned=12)
    assert (more.plan_segments, more.files_planned) == ((ONE, OTHER), 12)
    with pytest.raises(LeaseLost):
        published(in_status(Status.RUNNING), 2, ONE, seen=0, files_planned=1)


@pytest.mark.parametrize("resumed", [True, False])
def test_a_new_start_removes_the_plan_and_a_resumed_purge_keeps_it(resumed: bool) -> None:
    ended = in_status(Status.FAILURE).with_details({**PROGRESS, "new_tier": "gold"})
    restarted = None if resumed else PURGE.details.restarted(ended.details)
    again = t.resubmit(ended, NOW + MINUTE, payload="{}", synchronous=False, grace=timedelta(0), restarted=restarted)
    assert again.details == ({**PROGRESS, "new_tier": "gold"} if resumed else {"new_tier": "gold"})


def test_a_failure_is_resumed_only_after_it_began_to_delete() -> None:
    failed = in_status(Status.FAILURE)
    assert not PURGE.details.resumes(failed)
    assert PURGE.details.resumes(failed.evolve(effects_began_ts=NOW))


@pytest.mark.parametrize(
    ("name", "value"), [("plan_segments", [{"id": "1/0"}]), ("files_deleted", -1), ("bytes_deleted", "many")]
)
def test_a_detail_that_cannot_be_read_is_named(name: str, value: Any) -> None:
    with pytest.raises(MalformedRecord, match=name):
        PurgeDetails.of(submitted(details={name: value}))
    assert changed(files_deleted=0, plan_segments=(), files_planned=3) == {
        "files_deleted": None,
        "plan_segments": None,
        "files_planned": 3,
    }
