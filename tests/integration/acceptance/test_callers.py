"""Many callers that request one purge at the same time get one purge."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest

from tests.integration.acceptance.world import LIFE

pytestmark = pytest.mark.stack
CALLERS = 16


def receipts(world, task_id):
    """Return the receipts of a task's plans."""
    s3 = world.aws("s3")
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket="delegation-plans", Prefix=f"{task_id}/")
    keys = [item["Key"] for page in pages for item in page.get("Contents", ()) if item["Key"].endswith("receipt.json")]
    return [json.loads(s3.get_object(Bucket="delegation-plans", Key=key)["Body"].read()) for key in keys]


@pytest.mark.long
@pytest.mark.parametrize(
    "key", [pytest.param(str(uuid4()), id="one key"), pytest.param(None, id="no key", marks=pytest.mark.long)]
)
def test_sixteen_callers_of_one_purge_get_one_purge(world, key):
    table = world.table()
    request = world.request(table)
    together = threading.Barrier(CALLERS, timeout=60)

    def call(_caller):
        together.wait()
        return world.settled(request, key)

    with ThreadPoolExecutor(CALLERS) as threads:
        answers = list(threads.map(call, range(CALLERS)))

    # A caller that did not get the outcome at once got 409 and repeated the request.
    waits = [answer for each in answers for answer in each[:-1]]
    assert {answer.status_code for answer in waits} <= {409}
    last = [each[-1] for each in answers]
    assert [answer.status_code for answer in last] == [200] * CALLERS, {answer.text for answer in last}
    (body,) = {answer.content for answer in last}
    document = json.loads(body)
    task_id = document["delegation_task_id"]
    assert {answer.json()["delegation_task_id"] for answer in waits} <= {task_id}

    history = world.history(task_id)
    assert [view.status for view in history] == LIFE
    assert history[-1].attempt_count == 1
    (receipt,) = receipts(world, task_id)
    deleted = {history[-1].files_deleted, document["execution_result"]["files_deleted"], receipt["files_deleted"]}
    assert deleted == {len(table.objects)}
    assert world.left(table) == frozenset()
    assert [task.task_id for task in tasks_of(world, table)] == [task_id]


def tasks_of(world, table):
    """Return the tasks of a table, out of all tasks."""
    found, cursor = [], None
    while True:
        page = world.tasks.heads(cursor=cursor)
        found += [task for task in page.tasks if table.name in task.task_payload]
        cursor = page.cursor
        if cursor is None:
            return found
