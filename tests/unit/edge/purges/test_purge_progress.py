"""The progress of a purge in its task, while it runs and afterwards."""

from datetime import timedelta

import pytest

from delegation.removal.purge.task_type import PurgeDetails
from delegation.tasks.errors import StoreRefused
from delegation.tasks.life.model import Status, Task
from delegation.tasks.work.writes import Leases
from tests.kit.lakes.lake import filled
from tests.kit.worlds.service import World


def test_a_purge_whose_outcome_the_store_refuses_permanently_is_not_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = filled(World(), "orders")
    accepted = world.submit(world.body("orders"))

    def refused(*_arguments: object, **_fields: object) -> Task:
        raise StoreRefused("the item is too large")

    monkeypatch.setattr(Leases, "succeed", refused)
    world.drive()
    done = world.tasks.reads.get(accepted.task_id)
    assert (done.status, done.error_code, done.attempt_count) == (Status.FAILURE, "STORE_REFUSED", 1)


def test_a_running_purge_reports_counts_speed_and_estimated_end() -> None:
    world = filled(World(), "orders")
    total = len(world.lake.below("s3://lake/wh/orders/"))
    accepted = world.submit(world.body("orders"))
    seen: list[Task] = []

    def a_second_each(_bucket: str, _key: str, _nth: int) -> None:
        world.clock.advance(timedelta(seconds=1))
        seen.append(world.tasks.reads.get(accepted.task_id))

    world.objects._refuse = a_second_each
    world.drive()
    assert {task.status for task in seen} == {Status.RUNNING}
    assert {PurgeDetails.of(task).files_planned for task in seen} == {total}
    reported = [task for task in seen if PurgeDetails.of(task).files_per_second is not None]
    assert [PurgeDetails.of(task).files_deleted for task in reported] == sorted(
        PurgeDetails.of(task).files_deleted for task in reported
    )
    assert {PurgeDetails.of(task).files_per_second for task in reported} == {1}
    ends = {task.eta_ts for task in reported if task.eta_ts is not None}
    assert ends == {world.clock()}, "one file a second from the first to the last"
    done = world.tasks.reads.get(accepted.task_id)
    assert (done.status, PurgeDetails.of(done).files_deleted, PurgeDetails.of(done).files_failed, done.eta_ts) == (
        Status.SUCCESS,
        total,
        0,
        None,
    )
