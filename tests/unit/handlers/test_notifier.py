"""The notifier as deployed: tasks, queue, keys and event bus in moto, and a receiver over real HTTPS."""

import importlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import boto3
import pytest

from delegation.client.callbacks import CallbackVerifier
from delegation.notifications.delivery import DeliveryOutcome
from delegation.notifications.queue import Message
from delegation.tasks.life.notifications import NotificationState
from delegation.tasks.stores.base import Create
from delegation.tasks.stores.notifications import DynamoDbNotificationStore
from delegation.timestamps import utc_now
from delegation.wiring import api as wired_api
from delegation.wiring import notifier as wired
from delegation.wiring import tasks as wired_tasks
from delegation.wiring.settings import TaskSettings
from infra.environment.functions import FUNCTIONS
from infra.environment.resources import Resources, environment
from tests.aws import mock_aws
from tests.contract.task_tables import create_task_table
from tests.kit.tasks.builders import HOUR, submitted
from tests.paths import ROOT
from tests.unit.handlers import test_handlers as handlers
from tests.unit.notifications.receiver import Receiver, receiving

REGION = "us-east-1"
KEY = "a key of the receiver, 32 bytes at least"
TASK_ID = "1a13505e-1ed2-51cb-aa79-d8eedccbc526"


CONTEXT = handlers.Context("notifier")


@dataclass
class Deployed:
    """The resources of a deployment that notifies."""

    receiver: Receiver
    monkeypatch: pytest.MonkeyPatch
    sqs: Any = field(init=False)
    events: Any = field(init=False)
    resources: Resources = field(init=False)

    def __post_init__(self) -> None:
        self.sqs = boto3.client("sqs", region_name=REGION)
        self.events = boto3.client("events", region_name=REGION)
        queue = self.sqs.create_queue(QueueName="notifications")["QueueUrl"]
        self.resources = Resources(
            tasks_table=create_task_table(boto3.client("dynamodb", region_name=REGION)),
            queue_url=self.sqs.create_queue(QueueName="dispatch")["QueueUrl"],
            notification_queue_url=queue,
            event_bus=self.events.create_event_bus(Name="ends")["EventBusArn"],
            callback_keys_arn=self._keys(),
            callback_authorities=self.receiver.authorities,
            properties={
                "delegation.notifications.events": "true",
                "delegation.notifications.callback.catalog": self.receiver.url,
                "delegation.notifications.private-addresses": "true",
            },
        )

    def _keys(self) -> str:
        secrets = boto3.client("secretsmanager", region_name=REGION)
        return str(secrets.create_secret(Name="callbacks", SecretString=json.dumps({"catalog": [KEY]}))["ARN"])

    def become(self, name: str) -> None:
        """Set the variables of a function, and no others of ours."""
        for function in FUNCTIONS:
            for variable in environment(function, self.resources):
                self.monkeypatch.delenv(variable, raising=False)
        for variable, value in environment(name, self.resources).items():
            self.monkeypatch.setenv(variable, value)

    def handler(self) -> ModuleType:
        self.become("notifier")
        self.monkeypatch.setenv("DELEGATION_CALLBACK_LOOPBACK", "true")
        return importlib.reload(importlib.import_module("delegation.handlers.notifier"))

    def end_a_task(self) -> None:
        """A function of the state machine ends a task."""
        self.become("make_due")
        channels = TaskSettings.read().policies().channels("catalog")
        now = utc_now()
        wired_tasks.task_store().apply(
            Create(submitted(TASK_ID, notify=channels, created_ts=now, last_status_change_ts=now))
        )
        wired_tasks.task_service().operators.cancel(TASK_ID)

    def messages(self) -> list[str]:
        found = self.sqs.receive_message(QueueUrl=self.resources["notification_queue_url"], MaxNumberOfMessages=10)
        return [message["Body"] for message in found.get("Messages", [])]

    def owed(self) -> list[Any]:
        store = DynamoDbNotificationStore(wired_tasks.task_store())
        return list(store.notifications(NotificationState.OWED, utc_now() + HOUR))


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    with receiving(tmp_path) as found:
        yield found


@pytest.fixture(params=["secret", "parameter"])
def deployed(request: pytest.FixtureRequest, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> Iterator[Deployed]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    with mock_aws():
        yield Deployed(receiver, monkeypatch)


def batch(*bodies: str) -> dict[str, Any]:
    sample = json.loads((ROOT / "events" / "notifier.json").read_text())["Records"][0]
    return {"Records": [{**sample, "messageId": str(n), "body": body} for n, body in enumerate(bodies)]}


def test_an_end_is_sent_to_the_queue_and_delivered(deployed: Deployed, capsys: pytest.CaptureFixture[str]) -> None:
    deployed.end_a_task()
    messages = deployed.messages()
    assert {json.loads(message)["task_id"] for message in messages} == {TASK_ID}
    assert deployed.handler().handler(batch(*messages), CONTEXT) == {"batchItemFailures": []}
    ((headers, body),) = deployed.receiver.received
    assert CallbackVerifier([KEY]).verify(headers, body).task_id == TASK_ID
    assert deployed.owed() == []
    printed = capsys.readouterr().out
    assert '"NotificationsDelivered":[2.0]' in printed
    assert KEY not in printed
    assert "hooks" not in printed


def test_a_receiver_that_fails_leaves_it_owed_and_the_message_done(deployed: Deployed, capsys: Any) -> None:
    deployed.receiver.script[:] = [503]
    deployed.end_a_task()
    answer = deployed.handler().handler(batch(*deployed.messages()), CONTEXT)
    assert answer == {"batchItemFailures": []}
    (owed,) = deployed.owed()
    assert (owed.attempts, owed.channel) == (1, "callback:catalog")
    assert '"NotificationsFailed":[1.0]' in capsys.readouterr().out


def test_the_sweeper_sends_what_was_not_sent(deployed: Deployed) -> None:
    deployed.end_a_task()
    deployed.messages()
    deployed.become("sweeper")
    later = utc_now() + HOUR
    deployed.monkeypatch.setattr(wired, "utc_now", lambda: later)
    assert wired.send_owed(wired_tasks.task_store()) == 2
    assert len(deployed.messages()) == 2
    deployed.become("dispatcher")
    assert wired.send_owed(wired_tasks.task_store()) == 0


def test_a_dead_letter_is_sent_again_through_the_api(deployed: Deployed) -> None:
    properties = {**deployed.resources["properties"], "delegation.notifications.max-attempts": "1"}
    deployed.resources = deployed.resources.replaced(properties=properties)
    deployed.receiver.script[:] = [503]
    deployed.end_a_task()
    deployed.handler().handler(batch(*deployed.messages()), CONTEXT)
    assert deployed.owed() == []
    wired_api._resend(wired_tasks.task_store(), TASK_ID)
    (owed,) = deployed.owed()
    assert (owed.attempts, owed.channel) == (0, "callback:catalog")
    assert deployed.handler().notifier().take(Message.of(owed)).outcome is DeliveryOutcome.DELIVERED
    assert len(deployed.receiver.keys) == 1


def test_the_sample_event_is_skipped_and_its_malformed_message_reported(deployed: Deployed) -> None:
    event = json.loads((ROOT / "events" / "notifier.json").read_text())
    answer = deployed.handler().handler(event, CONTEXT)
    assert answer == {"batchItemFailures": [{"itemIdentifier": "2e1424d4-f796-459a-8184-9c92662be6da"}]}
