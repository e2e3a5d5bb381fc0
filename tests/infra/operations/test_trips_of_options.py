"""Alarms on what is off by default: notifications, the gateway, and the rotation of the secret in Polaris."""

import json
from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from delegation.handlers import gateway as gateway_handler
from delegation.handlers import notifier as notifier_handler
from delegation.idempotency.reservations import BreakingStore, MemoryReservationStore, RecordsUnavailable
from delegation.notifications.delivery import Delivered, DeliveryOutcome
from delegation.orchestration.job_runs import JobConfiguration
from delegation.polaris.answers import PolarisMisconfigured
from delegation.wiring.gateway import count_unavailable
from infra.environment.functions import GATEWAY, ROTATION
from infra.operations.alarms import NOTIFICATION_ALARMS
from tests.infra.conftest import SynthesizedStack
from tests.infra.operations.test_trips_of_aws import redelivered
from tests.infra.operations.watched import TemplateAlarm, WatchedTemplate
from tests.unit.handlers import test_handlers as handlers
from tests.unit.handlers import test_rotate_secret as rotation
from tests.unit.handlers.test_handlers import TASK_ID, Deployed
from tests.unit.polaris.test_rotation import RotatingProcesses

deployed = handlers.deployed
catalog, site, rotating = rotation.catalog, rotation.site, rotation.deployed
Printed = pytest.CaptureFixture[str]


@pytest.fixture
def optional(everything: dict[str, SynthesizedStack], monkeypatch: pytest.MonkeyPatch) -> WatchedTemplate:
    """The service's alarms with everything on; this process prints metrics as its functions do."""
    found = WatchedTemplate(everything["service"].document)
    found.environ("notifier", monkeypatch)
    return found


class OneOutcome:
    """A notifier whose every delivery ends alike."""

    def __init__(self, outcome: DeliveryOutcome) -> None:
        self.outcome = outcome

    def take(self, _message: Any) -> Delivered:
        return Delivered(self.outcome)


def notified(outcome: DeliveryOutcome, messages: int, monkeypatch: pytest.MonkeyPatch, capsys: Printed) -> str:
    """Return what the notifier's handler prints for so many messages."""
    monkeypatch.setattr(notifier_handler, "notifier", lambda: OneOutcome(outcome))
    record = json.loads((handlers.EVENTS / "notifier.json").read_text())["Records"][0]
    event = {"Records": [{**record, "messageId": str(n)} for n in range(messages)]}
    notifier_handler.handler(event, handlers.Context("notifier"))
    return capsys.readouterr().out


def test_a_notification_that_is_given_up_raises_its_alarm(
    optional: WatchedTemplate, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    alarm = optional["NotificationsDead"]
    assert alarm.is_raised_by(alarm.values_in(notified(DeliveryOutcome.DEAD, 1, monkeypatch, capsys)))


def test_deliveries_that_fail_raise_their_alarm(
    optional: WatchedTemplate, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    alarm = optional["NotificationsFailing"]
    assert not alarm.is_raised_by(alarm.values_in(notified(DeliveryOutcome.FAILED, 9, monkeypatch, capsys)))
    assert alarm.is_raised_by(alarm.values_in(notified(DeliveryOutcome.FAILED, 10, monkeypatch, capsys)))


def test_a_notifier_without_its_table_ends_in_the_dead_letters_that_the_alarm_watches(
    optional: WatchedTemplate, deployed: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_table() -> Any:
        raise ConnectionError("the table does not answer")

    monkeypatch.setattr(notifier_handler, "notifier", without_table)
    body = json.dumps({"task_id": TASK_ID, "notification_id": "1-events", "n": 1})
    alarm = optional["NotificationDeadLetters"]
    watched = alarm.dimensions["QueueName"]["Fn::GetAtt"][0]
    [attempts] = {
        queue["Properties"]["RedrivePolicy"]["maxReceiveCount"]
        for queue in alarm.resources.values()
        if queue["Type"] == "AWS::SQS::Queue"
        and queue["Properties"].get("RedrivePolicy", {}).get("deadLetterTargetArn", {}).get("Fn::GetAtt", [None])[0]
        == watched
    }
    dead = redelivered(deployed.sqs, notifier_handler, body, attempts)
    assert (alarm.properties["MetricName"], dead) == ("ApproximateNumberOfMessagesVisible", 1)
    assert alarm.is_raised_by([dead])


def watches_errors_of(alarm: TemplateAlarm, handler: str) -> bool:
    """Return whether an alarm watches invocations that raise (AWS Lambda Developer Guide, "Types of metrics")."""
    named = alarm.resource("FunctionName")["Properties"]["Handler"]
    return (alarm.properties["MetricName"], named) == ("Errors", handler)


def test_a_gateway_that_raises_raises_its_alarm(
    everything: dict[str, SynthesizedStack], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its catalog's URL every invocation raises; API Gateway answers 502."""
    alarm = WatchedTemplate(everything["gateway"].document)["GatewayErrors"]
    assert watches_errors_of(alarm, GATEWAY.handler)
    assert not alarm.is_raised_by([])
    monkeypatch.delenv("DELEGATION_POLARIS_URL", raising=False)
    gateway_handler._gateway.cache_clear()
    event = json.loads((handlers.EVENTS / "gateway.json").read_text())
    with pytest.raises(ValidationError, match="DELEGATION_POLARIS_URL"):
        gateway_handler.handler(event, handlers.Context("gateway"))
    assert alarm.is_raised_by([1.0])


def test_a_table_of_keys_that_does_not_answer_raises_its_alarm(
    everything: dict[str, SynthesizedStack], monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    """Three calls that end in a time-out, through the store that the gateway's function makes."""
    template = WatchedTemplate(everything["gateway"].document)
    template.environ("gateway", monkeypatch)
    alarm = template["KeysUnavailable"]

    def unavailable(_fault: str) -> None:
        raise RecordsUnavailable("no answer")

    store = BreakingStore(MemoryReservationStore(unavailable), opened=count_unavailable)
    for number in range(3):
        with pytest.raises(RecordsUnavailable):
            store.get("scope")
        assert alarm.is_raised_by(alarm.values_in(capsys.readouterr().out)) is (number == 2)


def test_a_rotation_that_fails_raises_its_alarm(optional: WatchedTemplate, rotating: RotatingProcesses) -> None:
    """Secrets Manager begins a version before it invokes the function; without one the step raises."""
    alarm = optional["SecretRotation"]
    assert watches_errors_of(alarm, ROTATION.handler)
    assert not alarm.is_raised_by([])
    with pytest.raises(PolarisMisconfigured):
        rotation.invoke(SecretId=rotating.arn)
    assert alarm.is_raised_by([1.0])


def test_every_alarm_of_notifications_is_in_the_template(optional: WatchedTemplate) -> None:
    for rule in NOTIFICATION_ALARMS:
        assert optional[rule.name].properties["AlarmDescription"] == rule.description(None)


def test_a_job_that_waited_and_ran_as_long_as_it_may_raises_no_alarm(
    optional: WatchedTemplate, watched: WatchedTemplate
) -> None:
    """Its attempt is held while EMR queues the run: 6 hours by default, up to 12, before 12 hours of work."""
    run = timedelta(minutes=JobConfiguration("app", "arn", "s3://b/x.py", "").timeout_minutes)
    for template, queue in ((watched, timedelta(hours=6)), (optional, timedelta(hours=12))):
        alarm = template["LeaseAge"]
        assert not alarm.is_raised_by([(queue + run).total_seconds()])
        assert alarm.is_raised_by([(queue + run + timedelta(hours=1)).total_seconds()])
        assert f"lasted {(queue + run).total_seconds() / 3600 + 1:g} hours" in alarm.properties["AlarmDescription"]
