"""A deployment whose properties have the ends of tasks announced; one without has none of it."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from delegation.environment import SETTINGS_OBJECT
from delegation.notifications.queue import Pool
from infra.environment.context import PROPERTIES_KEY, ROOT, default_context
from infra.environment.functions import FUNCTIONS
from tests.infra.conftest import TEMPLATES_ALONE, SynthesizedStack
from tests.infra.test_service_functions import _COMMON, _TASKS, ACTIONS, function, listed, statements

_RECEIVE = {"sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:ChangeMessageVisibility", "sqs:GetQueueAttributes"}
_PROPERTIES = {
    **default_context()[PROPERTIES_KEY],
    "delegation.notifications.events": "true",
    "delegation.notifications.callback.catalog": "https://catalog.acme.org/hooks",
}


notifies = pytest.mark.long
"""Of tests that synthesize a deployment of their own."""


@pytest.fixture(scope="module")
def notifying(node: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The app with notifications; synthesis fails if cdk-nag has findings."""
    from infra.stacks.build import build

    context = {**TEMPLATES_ALONE, PROPERTIES_KEY: _PROPERTIES, "delegation:event-bus": "ends"}
    built = build(context, outdir=str(tmp_path_factory.mktemp("cdk.out")))
    built.app.synth()
    return built


@pytest.fixture(scope="module")
def service_that_notifies(notifying: Any, synthesized: Callable[[Any], SynthesizedStack]) -> SynthesizedStack:
    return synthesized(notifying.service)


@pytest.fixture(scope="module")
def data_that_notifies(notifying: Any, synthesized: Callable[[Any], SynthesizedStack]) -> SynthesizedStack:
    return synthesized(notifying.data)


def test_without_settings_there_is_no_part_of_it(service: SynthesizedStack, data: SynthesizedStack) -> None:
    present = [
        body
        for stack in (service, data)
        for body in stack.document["Resources"].values()
        # The dashboards are the same in every deployment.
        if body["Type"] != "AWS::CloudWatch::Dashboard"
    ]
    text = json.dumps(present).lower()
    assert "notification" not in text.replace("notificationarn", "")
    assert "callback" not in text
    assert "events:putevents" not in text
    assert len(service.resources("AWS::Lambda::EventSourceMapping")) == 1


@notifies
def test_the_notifier_may_do_only_what_it_does(service_that_notifies: SynthesizedStack) -> None:
    allowed = statements(service_that_notifies, "notifier")
    actions = {action for statement in allowed for action in listed(statement["Action"])}
    expected = _TASKS | _RECEIVE | {"dynamodb:DeleteItem", "events:PutEvents", "secretsmanager:GetSecretValue"}
    assert actions == expected | _COMMON
    (putting,) = [one for one in allowed if one["Action"] == "events:PutEvents"]
    assert json.dumps(putting["Resource"]).count("event-bus/ends") == 1


@notifies
@pytest.mark.parametrize("name", sorted(ACTIONS))
def test_only_what_may_end_a_task_may_send_and_nothing_else_is_added(
    service_that_notifies: SynthesizedStack, service: SynthesizedStack, name: str
) -> None:
    before, after = statements(service, name), statements(service_that_notifies, name)
    sends = "notification_queue_url" in FUNCTIONS[name].variables
    # Where the further variables leave no room in 4 KB, the function reads its settings from an object.
    reads = SETTINGS_OBJECT in function(service_that_notifies, name)["Environment"]["Variables"]
    had, has = ({action for one in found for action in listed(one["Action"])} for found in (before, after))
    looks = {"sqs:GetQueueAttributes"} if name == "sweeper" else set()
    assert has == had | looks | ({"sqs:SendMessage"} if sends else set()) | ({"s3:GetObject"} if reads else set())
    assert len(after) - len(before) <= int(sends) + int(reads) + len(looks)


@notifies
def test_each_queue_feeds_the_notifier_and_keeps_dead_letters(service_that_notifies: SynthesizedStack) -> None:
    document = service_that_notifies.document["Resources"]
    mappings = service_that_notifies.resources("AWS::Lambda::EventSourceMapping").values()
    found = [
        body["Properties"]
        for body in mappings
        if document[body["Properties"]["FunctionName"]["Ref"]]["Properties"]["Handler"] == FUNCTIONS["notifier"].handler
    ]
    queues = {mapping["EventSourceArn"]["Fn::GetAtt"][0] for mapping in found}
    assert len(found) == len(queues) == len(Pool)
    for mapping in found:
        assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
        assert 10 * mapping["BatchSize"] < FUNCTIONS["notifier"].timeout_seconds
        queue = document[mapping["EventSourceArn"]["Fn::GetAtt"][0]]["Properties"]
        assert queue["VisibilityTimeout"] >= 6 * FUNCTIONS["notifier"].timeout_seconds
        assert queue["SqsManagedSseEnabled"] is True
        assert queue["RedrivePolicy"]["maxReceiveCount"] == 5


@notifies
def test_the_variables_name_queue_bus_and_secret(service_that_notifies: SynthesizedStack) -> None:
    variables = function(service_that_notifies, "notifier")["Environment"]["Variables"]
    assert variables["DELEGATION_EVENT_BUS"] == "ends"
    assert "DELEGATION_CALLBACK_KEYS" in variables
    for name in ("api", "sweeper", "complete", "run_inline"):
        present = function(service_that_notifies, name)["Environment"]["Variables"]
        assert {"DELEGATION_NOTIFICATION_QUEUE_URL", "DELEGATION_EVENT_QUEUE_URL"} <= present.keys()


@notifies
def test_the_keys_are_an_empty_secret_that_is_retained(data_that_notifies: SynthesizedStack) -> None:
    found = [
        body
        for body in data_that_notifies.resources("AWS::SecretsManager::Secret").values()
        if "callbacks" in body["Properties"]["Description"]
    ]
    (secret,) = found
    assert secret["Properties"].keys().isdisjoint({"SecretString", "GenerateSecretString"})
    assert secret["DeletionPolicy"] == "RetainExceptOnCreate"


@notifies
def test_their_alarms_are_on_a_dashboard(service_that_notifies: SynthesizedStack) -> None:
    shown = json.dumps(service_that_notifies.resources("AWS::CloudWatch::Dashboard"))
    alarms = set(service_that_notifies.resources("AWS::CloudWatch::Alarm"))
    assert {one for one in alarms if f'"{one}"' not in shown} == set()


@notifies
def test_alarms_watch_dead_letters(service_that_notifies: SynthesizedStack) -> None:
    alarms = [body["Properties"] for body in service_that_notifies.resources("AWS::CloudWatch::Alarm").values()]
    (dead,) = [one for one in alarms if one.get("MetricName") == "NotificationsDead"]
    page = ROOT / dead["AlarmDescription"].rpartition(" ")[2]
    assert "delegation callbacks resend" in page.read_text(encoding="utf-8")
    assert len([one for one in alarms if "notification" in one["AlarmDescription"]]) >= 1
