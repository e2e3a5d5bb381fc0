"""A request with the complete LoadTableResult of a table with a long history is retried and replayed."""

from uuid import uuid4

import pytest

from tests.integration.acceptance.world import EXECUTE

pytestmark = pytest.mark.stack
SNAPSHOTS = 40


@pytest.mark.long
def test_a_complete_load_table_result_is_accepted_retried_with_other_credentials_and_replayed(world):
    table, key = world.table_of_many_snapshots(SNAPSHOTS), str(uuid4())
    request = world.request(table)
    metadata = request["operation_parameters"]["metadata"]
    ids = [snapshot["snapshot-id"] for snapshot in metadata["snapshots"]]
    assert len(set(ids)) == SNAPSHOTS
    # A JSON parser that reads numbers as doubles would round these ids.
    assert sum(float(each) != each for each in ids) > SNAPSHOTS // 2
    assert request["operation_parameters"]["storage-credentials"]

    first, *retries = (world.post(EXECUTE, request, key), *world.settled(world.revended(request), key))
    assert first.status_code in {200, 409}, first.text
    answer = retries[-1]
    assert answer.status_code == 200, answer.text
    assert answer.json()["execution_result"]["files_deleted"] == len(table.objects)
    assert world.left(table) == frozenset()
    assert world.task(answer.json()["delegation_task_id"])["attempt_count"] == 1

    replays = [world.post(EXECUTE, each, key) for each in (request, world.revended(request))]
    assert {(replay.status_code, replay.content) for replay in replays} == {(200, answer.content)}
    if first.status_code == 200:
        assert first.content == answer.content

    # A request that differs by one in one snapshot id is another request.
    metadata["snapshots"][0]["snapshot-id"] += 1
    other = world.post(EXECUTE, request, key)
    assert (other.status_code, other.json()["error_code"]) == (422, "idempotency_key_conflict")
