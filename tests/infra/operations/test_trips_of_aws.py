"""Alarms on what AWS measures: the code makes the thing that AWS counts, and the alarm watches that very resource."""

import json
from datetime import timedelta
from types import ModuleType
from typing import Any

import boto3
import pytest

from delegation.orchestration.dispatch import SqsDispatchQueue
from tests.infra.operations.watched import WatchedTemplate
from tests.unit.handlers import test_handlers as handlers
from tests.unit.handlers.test_handlers import REGION, TASK_ID, Deployed
from tests.unit.orchestration.test_state_machine import STATES, exits

deployed = handlers.deployed
STEPS = [name for name, state in STATES.items() if state["Type"] == "Task"]


def redelivered(sqs: Any, handler: ModuleType, body: str, receives: int) -> int:
    """Deliver a message as SQS does, until it is done or dead; return how many dead letters there are.

    Source: Amazon SQS Developer Guide, "Using dead-letter queues in Amazon SQS".
    """
    dead = sqs.create_queue(QueueName="dead")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": receives})
    queue = sqs.create_queue(QueueName="watched", Attributes={"RedrivePolicy": policy, "VisibilityTimeout": "0"})
    url = queue["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody=body)
    sample = json.loads((handlers.EVENTS / "dispatcher.json").read_text())["Records"][0]
    for _ in range(receives + 1):
        for message in sqs.receive_message(QueueUrl=url).get("Messages", []):
            record = {**sample, "messageId": message["MessageId"], "body": message["Body"]}
            if not handler.handler({"Records": [record]}, handlers.Context())["batchItemFailures"]:
                sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    attributes = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["ApproximateNumberOfMessages"])["Attributes"]
    return int(attributes["ApproximateNumberOfMessages"])


def test_a_message_that_is_no_dispatch_ends_in_the_queue_that_the_alarm_watches(
    deployed: Deployed, monkeypatch: pytest.MonkeyPatch, watched: WatchedTemplate
) -> None:
    alarm = watched["DeadLetters"]
    [queue] = [
        body["Properties"]["RedrivePolicy"]
        for body in watched.document["Resources"].values()
        if body["Type"] == "AWS::SQS::Queue" and "RedrivePolicy" in body["Properties"]
    ]
    assert alarm.dimensions["QueueName"]["Fn::GetAtt"][0] == queue["deadLetterTargetArn"]["Fn::GetAtt"][0]
    handler = handlers.entry("dispatcher", deployed, monkeypatch)
    dead = redelivered(deployed.sqs, handler, "no dispatch", queue["maxReceiveCount"])
    assert (alarm.properties["MetricName"], dead) == ("ApproximateNumberOfMessagesVisible", 1)
    assert alarm.is_raised_by([dead])


def test_a_dispatch_that_no_dispatcher_takes_grows_old_in_the_queue_that_the_alarm_watches(
    deployed: Deployed, watched: WatchedTemplate
) -> None:
    alarm = watched["DispatchQueueAge"]
    [mapping] = [
        body["Properties"]
        for body in watched.document["Resources"].values()
        if body["Type"] == "AWS::Lambda::EventSourceMapping"
    ]
    assert alarm.properties["MetricName"] == "ApproximateAgeOfOldestMessage"
    assert alarm.dimensions["QueueName"]["Fn::GetAtt"][0] == mapping["EventSourceArn"]["Fn::GetAtt"][0]
    SqsDispatchQueue(boto3.client("sqs", region_name=REGION), deployed.resources["queue_url"]).send(TASK_ID, 1)
    names = ["ApproximateNumberOfMessages"]
    waiting = deployed.sqs.get_queue_attributes(QueueUrl=deployed.resources["queue_url"], AttributeNames=names)
    assert waiting["Attributes"] == {"ApproximateNumberOfMessages": "1"}, "it is there until somebody takes it"
    assert alarm.is_raised_by([timedelta(minutes=11).total_seconds()])
    assert not alarm.is_raised_by([timedelta(minutes=6).total_seconds()]), "as long as a failed message is hidden"


def end_of(failing: str | None, answer: str, *, due: str = "due") -> str:
    """Walk the state machine to its end, of which the type is returned.

    The state `failing` fails, Complete answers `answer`, and MakeDue `due`.
    """
    name = "Acquire"
    nexts = {"Acquire": "prepare", "Prepare": "inline", "RunInline": "complete", "Complete": answer, "MakeDue": due}
    following = ""
    while exits(STATES[name]):
        state = STATES[name]
        if state["Type"] == "Choice":
            fits = (one["Next"] for one in state["Choices"] if one["StringEquals"] == following)
            name = next(fits, state["Default"])
            continue
        following = nexts.get(name, "")
        name = state["Catch"][0]["Next"] if name == failing else state["Next"]
    return str(STATES[name]["Type"])


@pytest.mark.parametrize("failing", ["Acquire", "Prepare", "RunInline", "Complete"])
def test_a_step_that_fails_fails_its_execution_which_the_alarm_counts(failing: str, watched: WatchedTemplate) -> None:
    alarm = watched["ExecutionsFailed"].properties
    counted = {one["MetricStat"]["Metric"]["MetricName"] for one in alarm["Metrics"] if "MetricStat" in one}
    assert counted == {"ExecutionsFailed", "ExecutionsTimedOut", "ExecutionsAborted"}
    failed = [1.0] if end_of(failing, "succeeded") == "Fail" else []
    assert watched["ExecutionsFailed"].is_raised_by(failed)


def test_a_refused_start_that_is_only_excused_fails_no_execution() -> None:
    assert end_of("RunInline", "succeeded", due="refused") == "Succeed"
    assert end_of("RunInline", "succeeded", due="due") == "Fail"


@pytest.mark.parametrize("answer", ["succeeded", "failed", "stop"])
def test_a_failed_task_fails_no_execution(answer: str, watched: WatchedTemplate) -> None:
    assert end_of(None, answer) == "Succeed"
    assert not watched["ExecutionsFailed"].is_raised_by([])


def test_a_sweeper_that_cannot_run_raises_its_alarm(
    deployed: Deployed, monkeypatch: pytest.MonkeyPatch, watched: WatchedTemplate
) -> None:
    """An invocation that raises counts as one in Errors (AWS Lambda Developer Guide, "Types of metrics")."""
    module = handlers.entry("sweeper", deployed, monkeypatch)
    monkeypatch.delenv("DELEGATION_TASKS_TABLE")
    errors = []
    for _ in range(2):
        try:
            module.handler({}, handlers.Context("sweeper"))
        except ValueError:  # pydantic's, which names the variable
            errors.append(1.0)
    alarm = watched["SweeperErrors"]
    assert alarm.resource("FunctionName")["Properties"]["Handler"] == "delegation.handlers.sweeper.handler"
    assert (alarm.properties["MetricName"], alarm.is_raised_by(errors)) == ("Errors", True)


def test_a_sweeper_that_is_not_invoked_raises_its_alarm(watched: WatchedTemplate) -> None:
    alarm = watched["SweeperSilent"]
    assert alarm.resource("FunctionName")["Properties"]["Handler"] == "delegation.handlers.sweeper.handler"
    assert alarm.properties["MetricName"] == "Invocations"
    assert alarm.is_raised_by([])
    assert not alarm.is_raised_by([1.0] * 5)


def test_answers_of_5xx_raise_the_alarm_of_the_api(
    deployed: Deployed, monkeypatch: pytest.MonkeyPatch, watched: WatchedTemplate
) -> None:
    """The API without its task table; API Gateway counts each answer of 5XX in 5XXError."""
    boto3.client("dynamodb", region_name=REGION).delete_table(TableName=deployed.resources["tasks_table"])
    module = handlers.entry("api", deployed, monkeypatch)
    event = json.loads((handlers.EVENTS / "api-status.json").read_text())
    statuses = [module.handler(event, handlers.Context("api"))["statusCode"] for _ in range(5)]
    alarm = watched["ApiServerErrors"]
    assert alarm.properties["MetricName"] == "5XXError"
    assert alarm.resources[next(iter(watched_apis(watched)))]["Properties"]["Name"] == alarm.dimensions["ApiName"]
    assert alarm.is_raised_by([1.0 for status in statuses if status >= 500]), statuses


def watched_apis(watched: WatchedTemplate) -> list[str]:
    return [name for name, body in watched.document["Resources"].items() if body["Type"] == "AWS::ApiGateway::RestApi"]
