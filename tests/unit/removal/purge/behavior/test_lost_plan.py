"""A plan that is made again is compared with the live tables of a new pass over the catalog (issue 24, line 9)."""

from datetime import timedelta
from typing import Any

import pytest

from delegation.removal.purge.task_type import PurgeDetails
from delegation.storage.memory import Killed
from delegation.tasks.life.model import Status
from tests.kit.lakes.lake import busy_table, filled
from tests.kit.worlds.indexed import IndexedWorld


@pytest.fixture
def world() -> IndexedWorld:
    world = filled(IndexedWorld(), "t")
    busy_table(world.other, "u", location="s3://lake/wh/u")
    return world


def killed(world: IndexedWorld, *, at: int) -> str:
    """Purge `t` and kill its process at a delete; return the task's id."""
    usual, calls = world.objects.delete, iter(range(1, 1000))

    def delete(bucket: str, keys: Any) -> Any:
        if next(calls) == at:
            raise Killed("delete")
        return usual(bucket, keys)

    world.objects.delete = delete  # type: ignore[method-assign]
    task_id: str = world.submit(world.body("t")).task_id
    with pytest.raises(Killed):
        world.drive()
    world.objects.delete = usual  # type: ignore[method-assign]
    return task_id


def test_a_table_that_borrowed_what_is_left_before_the_plan_was_lost_keeps_it(world: IndexedWorld) -> None:
    task_id = killed(world, at=2)
    left = sorted(uri for uri in world.lake.below("s3://lake/wh/t/") if uri.endswith(".parquet"))
    world.other.table("u").add_files(left)
    for key in [key for key in world.plans.objects if key.startswith(f"{task_id}/")]:
        del world.plans.objects[key]
    before = PurgeDetails.of(world.tasks.reads.get(task_id)).references_moment
    for _ in range(4):
        world.clock.advance(timedelta(minutes=20))
        world.sweep()
        world.drive()
    task = world.tasks.reads.get(task_id)
    assert task.status is Status.SUCCESS, task.error_code
    assert set(left) <= set(world.lake.uris())
    assert world.readable("u")
    details = PurgeDetails.of(task)
    found = {one.code: one.count for one in details.findings}
    assert (found["REPLANNED"], found["FILES_SHARED"]) == (1, len(left))
    assert before is not None
    assert details.references_moment is not None
    [catalog] = before.passes
    assert details.references_moment.passes[catalog] > before.passes[catalog]
