"""`delegation recover` from a copy of yesterday's tables: every task ends or is refused correctly."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from delegation.cli.deployment.recover import recover
from delegation.idempotency.store import DynamoDbIdempotencyStore
from delegation.orchestration.failures import Step
from delegation.tasks.errors import TaskError
from delegation.tasks.life.model import Caller, Status
from delegation.tasks.pauses import EVERYTHING, PauseControl, ReadPauses
from delegation.tasks.recovery import GAP, items
from delegation.tasks.stores.dynamodb import DynamoDbPauseStore, DynamoDbTaskStore
from delegation.wiring.types import TYPES
from polaris_common.dynamodb import from_item, to_item
from tests.contract.task_tables import create_task_table, moto, task_store
from tests.kit.errors import coded
from tests.kit.lakes.lake import busy_table
from tests.kit.tasks.builders import MINUTE
from tests.kit.worlds.service import World
from tests.services import change_service

NAMES = ("ended", "failed", "waiting", "purged", "recreated", "running", "cancelled")
KEYS = "keys"


class Yesterday:
    """A service on DynamoDB whose tables were copied a day ago and are lost now."""

    def __init__(self, client: Any, live: DynamoDbTaskStore) -> None:
        self.client, self.live = client, live
        for name in (KEYS, f"{KEYS}-copy", f"{KEYS}-new"):
            client.create_table(
                TableName=name,
                BillingMode="PAY_PER_REQUEST",
                AttributeDefinitions=[{"AttributeName": "scope", "AttributeType": "S"}],
                KeySchema=[{"AttributeName": "scope", "KeyType": "HASH"}],
            )
        self.world = World(stores=(live, DynamoDbIdempotencyStore(live, KEYS)))
        self.ids: dict[str, str] = {}
        for name in NAMES:
            busy_table(self.world.lake, name)
        for name in ("ended", "failed"):
            self.submit(name)
        self.world.tasks.operators.cancel(self.ids["failed"])
        self.world.drive()
        for name in NAMES[2:]:
            self.submit(name)
        self.held = self.world.steps.acquire(self.step("running"), self.world.deadline())
        self.copied = self.copy(live.table, create_task_table(client))
        self.copy(KEYS, f"{KEYS}-copy")

    def step(self, name: str) -> Step:
        return Step(self.ids[name], 1)

    def submit(self, name: str) -> None:
        self.ids[name] = self.world.submit(self.world.identity(name), f"key-{name}").task_id

    def copy(self, source: str, target: str) -> str:
        for item in items(self.live.dynamodb, source):
            self.client.put_item(TableName=target, Item=to_item(item))
        return target

    def today(self) -> None:
        """What happened after the copy: purges ended, a table was made anew, a task was cancelled."""
        waiting = self.ids["waiting"]
        self.world.tasks.operators.cancel(self.ids["cancelled"])
        self.world.queue.sent = [one for one in self.world.queue.sent if one[0] != waiting]
        self.world.drive()
        assert self.status("purged") == self.status("recreated") == "SUCCESS"
        self.world.lake.busy.discard("recreated")
        self.world.lake.pointers.pop("recreated")
        self.new_table = self.world.lake.create("recreated")

    def lose_the_tables(self) -> DynamoDbTaskStore:
        """Use new, empty tables from now on, which are paused."""
        table = create_task_table(self.client)
        self.world.store = DynamoDbTaskStore(self.live.dynamodb, table)
        change_service(self.world.tasks, store=self.world.store)
        self.world.clock.advance(timedelta(days=1))
        self.pauses = DynamoDbPauseStore(self.live.dynamodb, table)
        change_service(self.world.tasks, pauses=ReadPauses(self.pauses.read, TYPES, monotonic=self.world.seconds))
        return self.world.store

    def pause(self) -> PauseControl:
        control = PauseControl(self.pauses, self.world.clock)
        control.pause(EVERYTHING, by=Caller(client_id="ops"), reason="restore")
        return control

    def recover(self, live: DynamoDbTaskStore, *, dry_run: bool = False) -> Any:
        connection: Any = type("Connected", (), {"task_table": lambda _self, _table: live})()
        return recover(connection, self.copied, live.table, f"{KEYS}-copy", f"{KEYS}-new", dry_run=dry_run)

    def resume(self, control: PauseControl) -> None:
        control.resume(EVERYTHING)
        for _ in range(4):
            self.world.clock.advance(90 * MINUTE)
            self.world.sweep()
            self.world.drive()

    def status(self, name: str) -> str:
        return self.world.tasks.reads.get(self.ids[name]).status.value


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with moto() as found:
        yield found


@pytest.fixture
def yesterday(client: Any) -> Iterator[Yesterday]:
    with task_store(client) as live:
        yield Yesterday(client, live)
        for name in (KEYS, f"{KEYS}-copy", f"{KEYS}-new"):
            client.delete_table(TableName=name)


def test_every_task_of_yesterday_ends_or_is_refused(yesterday: Yesterday) -> None:
    yesterday.today()
    live = yesterday.lose_the_tables()
    with pytest.raises(TaskError, check=coded("NOT_PAUSED")):
        yesterday.recover(live)
    control = yesterday.pause()
    assert (yesterday.recover(live, dry_run=True).tasks, live.heads().entries) == (7, ())
    report = yesterday.recover(live)
    assert (report.tasks, report.kept, report.unreadable, report.records) == (7, 0, [], 7)
    assert set(report.waiting) == {yesterday.ids[name] for name in NAMES[2:]}
    for name in NAMES[2:]:
        head = yesterday.world.tasks.reads.get(yesterday.ids[name])
        assert head.attempt_count >= GAP
        assert head.unexcused_attempts == (name == "running")
    again = yesterday.recover(live)
    assert (again.tasks, again.kept, again.versions, again.records) == (0, 7, 0, 0)

    yesterday.world.tasks.operators.cancel(yesterday.ids["cancelled"])  # as an operator does who looks at the list
    objects = dict(yesterday.world.lake.objects)
    yesterday.world.clock.advance(90 * MINUTE)
    yesterday.world.sweep()
    assert yesterday.world.lake.objects == objects
    yesterday.resume(control)
    ends = {name: yesterday.status(name) for name in NAMES}
    codes = {name: yesterday.world.tasks.reads.get(yesterday.ids[name]).error_code for name in NAMES}
    assert ends == {name: "SUCCESS" if name in {"ended", "waiting"} else "FAILURE" for name in NAMES}
    assert codes == {
        "ended": None,
        "failed": "CANCELLED",
        "waiting": None,  # its purge had not run before the tables were lost
        "purged": "TABLE_METADATA_MISSING",
        "running": "TABLE_METADATA_MISSING",
        "recreated": "TABLE_UUID_MISMATCH",
        "cancelled": "CANCELLED",
    }
    assert yesterday.world.lake.metadata("recreated")["table-uuid"] == str(yesterday.new_table.metadata.table_uuid)
    assert yesterday.world.lake.metadata("cancelled")["table-uuid"]
    for _, n in yesterday.world.queue.sent:
        assert n > GAP
    yesterday.world.store = live
    for name in ("waiting", "running"):
        assert [task.version for task in live.history(yesterday.ids[name])] == list(
            range(1, yesterday.world.tasks.reads.get(yesterday.ids[name]).version + 1)
        )


def test_what_is_live_stays_and_a_lost_head_is_rebuilt_from_its_rows(yesterday: Yesterday) -> None:
    yesterday.today()
    yesterday.lose_the_tables()
    yesterday.world.store = live = yesterday.live
    change_service(yesterday.world.tasks, store=live)
    yesterday.pauses = DynamoDbPauseStore(live.dynamodb, live.table)
    yesterday.pause()
    before = {name: live.get(task_id) for name, task_id in yesterday.ids.items()}
    lost = yesterday.ids["purged"]
    yesterday.client.delete_item(TableName=live.table, Key=to_item({"task_id": lost, "version": 0}))
    report = yesterday.recover(live)
    assert (report.tasks, report.rebuilt, report.kept, report.versions, report.waiting) == (1, 1, 6, 0, [])
    for name, task_id in yesterday.ids.items():
        found = live.get(task_id)
        assert (found.version, found.status) == (before[name].version, before[name].status)
        assert name == "purged" or found == before[name]
    assert live.get(lost).status is Status.SUCCESS


def test_what_belongs_to_a_task_is_copied_and_the_pauses_are_not(yesterday: Yesterday) -> None:
    link = {"task_id": f"{yesterday.ids['waiting']}/children", "version": 7, "child_id": "c", "attempt": 1}
    for item in (link, {"task_id": "admission", "version": -1, "format": 1, "revision": 3, "recent": []}):
        yesterday.client.put_item(TableName=yesterday.copied, Item=to_item(item))
    live = yesterday.lose_the_tables()
    yesterday.pause()
    record = yesterday.pauses.read()
    assert yesterday.recover(live).links == 1
    answer = yesterday.client.get_item(TableName=live.table, Key=to_item({"task_id": link["task_id"], "version": 7}))
    assert from_item(answer["Item"]) == link
    assert yesterday.pauses.read() == record
    assert live.register().revision == 0


@pytest.mark.parametrize("attribute", ["status", "format", "created_ts"])
def test_a_version_that_cannot_be_read_is_named_with_its_task_and_the_others_are_recovered(yesterday, attribute):
    """It ended the recovery, so the tasks behind it stayed lost."""
    bad = yesterday.ids["ended"]
    key = to_item({"task_id": bad, "version": 1})
    row = yesterday.client.get_item(TableName=yesterday.copied, Key=key)["Item"]
    yesterday.client.put_item(TableName=yesterday.copied, Item={**row, attribute: {"S": "x"}})
    live = yesterday.lose_the_tables()
    yesterday.pause()
    report = yesterday.recover(live)
    assert (report.tasks, report.unreadable) == (6, [bad])
    assert live.get(bad) is None
