"""Bytes of files that were absent are in no figure of the task, its receipt and its answer."""

import json

from delegation.removal.purge.task_type import PurgeDetails
from tests.kit.lakes.lake import busy_table
from tests.kit.worlds.service import World
from tests.unit.removal.test_absent_files import Telling


def test_absent_files_are_counted_apart_in_record_receipt_and_answer() -> None:
    world = World()
    store = Telling()
    store.objects = world.lake.objects
    world.objects.delete = store.delete  # type: ignore[method-assign]
    busy_table(world.lake, "orders")
    absent = next(path for path in sorted(world.lake.below("s3://lake/wh/orders/data/")))
    size = len(world.lake.objects["lake", absent.removeprefix("s3://lake/")])
    del world.lake.objects["lake", absent.removeprefix("s3://lake/")]
    answer = world.execute(world.body("orders"))
    [key] = [key for key in world.plans.keys("") if key.endswith("receipt.json")]
    receipt = json.loads(world.plans.get(key))
    total = sum(one["bytes"] for one in receipt["by_type"].values())
    details = PurgeDetails.of(world.tasks.reads.get(answer.task_id))
    assert (receipt["files_absent"], details.files_absent) == (1, 1)
    result = json.loads(answer.body)["execution_result"]
    assert [receipt["bytes_freed"], details.bytes_deleted, result["bytes_deleted"]] == [total - size] * 3
    assert "1 of them absent already" in json.loads(answer.body)["message"]
