"""`delegation recover` of a task in every state, against everything that can have happened to it since the copy."""

import json
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from delegation.cli.deployment.recover import recover
from delegation.idempotency.store import MemoryIdempotencyStore
from delegation.storage.memory import Killed
from delegation.tasks.life.model import Caller, Status, Task
from delegation.tasks.pauses import EVERYTHING, PauseControl
from delegation.tasks.stores import codec
from delegation.tasks.stores.dynamodb import ConditionalTable, DynamoDbPauseStore, DynamoDbTaskStore
from delegation.tasks.stores.memory import MemoryTaskStore
from polaris_common.dynamodb import from_item
from tests.contract.task_tables import create_task_table, moto, no_wait
from tests.golden.moments import Service, surround
from tests.golden.record import MOMENTS_FOLDER
from tests.golden.test_moments import files_of_events
from tests.services import change_service

COPIED = {
    "queued": "SUBMITTED",
    "acquired": "ACQUIRING_RESOURCES",
    "killed": "RUNNING",
    "job_killed": "RUNNING",
    "waiting": "RETRY_SCHEDULED",
}
"""The recorded moment at which yesterday's copy was made, and the task's status in it."""
WITH_A_PLAN = {"killed", "job_killed"}
UNTOUCHED, ENDED = 0, 1000
SINCE = {"untouched": UNTOUCHED, "data-half-gone": 2, "manifests-gone": 9, "purged": ENDED}
"""What happened since: nothing, the next attempt died at this call of DeleteObjects, or it ended."""


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with moto() as found:
        yield found


def expected(copied: str, since: str) -> tuple[str, str | None]:
    """Return status and error code of the recovered task: a plan can be finished, a new one needs what it reads."""
    if copied in WITH_A_PLAN:
        return "SUCCESS", None
    refused = {"manifests-gone": "MANIFEST_MISSING", "purged": "TABLE_METADATA_MISSING"}
    return ("FAILURE", refused[since]) if since in refused else ("SUCCESS", None)


def live(made: Service, state: Any, kill_at: int) -> None:
    """Let the task's life continue after the copy."""
    usual = made.objects.delete
    made.kill_at_delete(kill_at)
    try:
        made.resume(state)
    except Killed:
        assert kill_at < ENDED
    made.objects.delete = usual  # type: ignore[method-assign]


def stored(heads: Iterable[Task], rows: Iterable[Task]) -> MemoryTaskStore:
    """A store in memory with these heads and rows: what happens before and after the recovery needs no DynamoDB."""
    store = MemoryTaskStore()
    store._heads.update({task.task_id: task for task in heads})
    for row in rows:
        store._rows.setdefault(row.task_id, {})[row.version] = row
    return store


def lose_and_recover(made: Service, copied: list[dict[str, Any]], client: Any) -> Task:
    """Lose the task table; recover it from a copy; resume the service a day later."""
    tables = [create_task_table(client) for _ in range(2)]
    for item in copied:
        client.put_item(TableName=tables[0], Item=item)
    live = DynamoDbTaskStore(ConditionalTable(client, sleep=no_wait), tables[1])
    made.aws.messages.clear()
    made.clock.advance(timedelta(days=1))
    control = PauseControl(DynamoDbPauseStore(live.dynamodb, live.table), made.clock)
    control.pause(EVERYTHING, by=Caller(client_id="ops"), reason="restore")
    connection: Any = type("Connected", (), {"task_table": lambda _self, _table: live})()
    assert recover(connection, tables[0], live.table, None, None, dry_run=False).tasks == 1
    [task] = live.heads().tasks
    made.store = stored([task], live.history(task.task_id))
    change_service(made.tasks, store=made.store)
    for table in tables:
        client.delete_table(TableName=table)
    made.sweep()
    made.resume(None)
    return made.tasks.reads.get(task.task_id)


@pytest.mark.parametrize("since", SINCE)
@pytest.mark.parametrize("copied", COPIED)
def test_a_task_of_yesterday_ends_or_is_refused(copied: str, since: str, client: Any) -> None:
    moment = json.loads((MOMENTS_FOLDER / f"{copied}.json").read_text(encoding="utf-8"))
    versions = [(item["version"]["N"], codec.task_of(from_item(item))) for item in moment["tasks"]]
    [task] = [task for version, task in versions if version == "0"]
    assert task.status.value == COPIED[copied]
    tasks = stored([task], (row for version, row in versions if version != "0"))
    made = Service(tasks, MemoryIdempotencyStore(tasks))
    state = surround(made, moment)
    if SINCE[since]:
        live(made, state, SINCE[since])
    task = lose_and_recover(made, moment["tasks"], client)
    assert (task.status.value, task.error_code) == expected(copied, since)
    if task.status is Status.SUCCESS:
        assert made.deleted() == files_of_events()
    else:
        assert set(made.deleted()) <= set(files_of_events())
