"""moto in this process executes state machines, which call the workers of `LambdaPool`."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from infra.local.aws.server import MotoAws
from infra.local.errors import CannotStartError
from infra.local.lambdas.functions import FunctionSpec, LambdaPool

HANDLERS = Path(__file__).parent / "fixtures"
ROLE = "arn:aws:iam::123456789012:role/states"


@pytest.fixture(scope="module")
def lambdas(tmp_path_factory):
    pool = LambdaPool(log_folder=tmp_path_factory.mktemp("logs"))
    for name, timeout in (("echo", 30), ("fail", 30), ("fail_until", 30), ("hang", 1), ("leave", 30)):
        pool.add(FunctionSpec(name, f"local_handlers.{name}", timeout, 128, {"PYTHONPATH": str(HANDLERS)}))
    yield pool
    pool.stop()


@pytest.fixture(scope="module")
def aws(lambdas):
    server = MotoAws(lambdas).start()
    yield server
    server.stop()


@pytest.fixture
def states(aws):
    client = aws.client("stepfunctions")
    yield client
    client.close()


def arn(name):
    return f"arn:aws:lambda:us-east-1:123456789012:function:{name}"


def start(states, name, definition, event):
    machine = states.create_state_machine(name=name, definition=json.dumps(definition), roleArn=ROLE)
    machine_arn = machine["stateMachineArn"]
    return states.start_execution(stateMachineArn=machine_arn, name=f"{name}-1", input=json.dumps(event))[
        "executionArn"
    ]


def outcome(states, execution):
    while (seen := states.describe_execution(executionArn=execution))["status"] == "RUNNING":
        pass
    return seen["status"], json.loads(seen.get("output", "null"))


def test_a_state_machine_waits_chooses_and_calls_functions(states):
    definition = {
        "StartAt": "Begin",
        "States": {
            "Begin": {
                "Type": "Pass",
                "Result": {"wait": 1, "engine": "inline"},
                "ResultPath": "$.plan",
                "Next": "Wait",
            },
            "Wait": {"Type": "Wait", "SecondsPath": "$.plan.wait", "Next": "Call"},
            "Call": {
                "Type": "Task",
                "Resource": "arn:aws:states:::lambda:invoke",
                "Parameters": {"FunctionName": arn("echo"), "Payload": {"id.$": "$.task_id", "n": 3}},
                "ResultSelector": {"answer.$": "$.Payload"},
                "ResultPath": "$.call",
                "Next": "Which",
            },
            "Which": {
                "Type": "Choice",
                "Choices": [{"Variable": "$.plan.engine", "StringEquals": "inline", "Next": "Direct"}],
                "Default": "Wrong",
            },
            "Direct": {"Type": "Task", "Resource": arn("echo"), "InputPath": "$.call.answer", "End": True},
            "Wrong": {"Type": "Fail", "Error": "Wrong"},
        },
    }
    execution = start(states, "choose", definition, {"task_id": "t-1"})
    assert outcome(states, execution) == ("SUCCEEDED", {"id": "t-1", "n": 3})


def test_a_wait_until_a_timestamp_ends_at_the_timestamp(states):
    due = (datetime.now(UTC) + timedelta(seconds=1)).replace(microsecond=0)
    definition = {"StartAt": "Wait", "States": {"Wait": {"Type": "Wait", "TimestampPath": "$.due", "End": True}}}
    execution = start(states, "until", definition, {"due": f"{due:%Y-%m-%dT%H:%M:%S.%fZ}"})
    assert outcome(states, execution)[0] == "SUCCEEDED"
    events = states.get_execution_history(executionArn=execution)["events"]
    (left,) = [event["timestamp"] for event in events if event["type"] == "WaitStateExited"]
    assert left >= due


def test_retry_and_catch_match_the_name_of_the_exception(states, tmp_path):
    definition = {
        "StartAt": "Flaky",
        "States": {
            "Flaky": {
                "Type": "Task",
                "Resource": arn("fail_until"),
                "Retry": [
                    {"ErrorEquals": ["TableLockedError"], "IntervalSeconds": 1, "MaxAttempts": 2, "BackoffRate": 1}
                ],
                "ResultPath": "$.flaky",
                "Next": "Failing",
            },
            "Failing": {
                "Type": "Task",
                "Resource": arn("fail"),
                "Catch": [{"ErrorEquals": ["TableLockedError"], "ResultPath": "$.error", "Next": "Caught"}],
                "End": True,
            },
            "Caught": {"Type": "Pass", "End": True},
        },
    }
    event = {"place": str(tmp_path), "failures": 1, "message": "locked"}
    status, output = outcome(states, start(states, "retry", definition, event))
    assert status == "SUCCEEDED"
    assert output["flaky"] == {"calls": 2}
    assert output["error"]["Error"] == "TableLockedError"
    assert json.loads(output["error"]["Cause"])["errorMessage"] == "locked"


@pytest.mark.parametrize(
    ("function", "event", "error"),
    [("hang", {"fifo": "/dev/null"}, "Sandbox.Timedout"), ("leave", {"status": 3}, "Runtime.ExitError")],
)
def test_states_all_catches_a_function_that_timed_out_or_exited(states, function, event, error):
    definition = {
        "StartAt": "Call",
        "States": {
            "Call": {
                "Type": "Task",
                "Resource": arn(function),
                "Catch": [{"ErrorEquals": ["States.ALL"], "ResultPath": "$.error", "Next": "Caught"}],
                "End": True,
            },
            "Caught": {"Type": "Pass", "OutputPath": "$.error", "End": True},
        },
    }
    status, output = outcome(states, start(states, f"lost-{function}", definition, event))
    assert (status, output["Error"]) == ("SUCCEEDED", error)


def test_concurrent_starts_of_one_name_are_one_execution(states):
    definition = {"StartAt": "Wait", "States": {"Wait": {"Type": "Wait", "Seconds": 60, "End": True}}}
    machine = states.create_state_machine(name="once", definition=json.dumps(definition), roleArn=ROLE)[
        "stateMachineArn"
    ]
    with ThreadPoolExecutor(4) as threads:
        arns = set(
            threads.map(
                lambda _: states.start_execution(stateMachineArn=machine, name="t-1", input="{}")["executionArn"],
                range(8),
            )
        )
    executions = states.list_executions(stateMachineArn=machine)["executions"]
    assert [execution["executionArn"] for execution in executions] == list(arns)
    states.stop_execution(executionArn=executions[0]["executionArn"])
    assert outcome(states, executions[0]["executionArn"]) == ("ABORTED", None)
    with pytest.raises(states.exceptions.ExecutionAlreadyExists):
        states.start_execution(stateMachineArn=machine, name="t-1", input="{}")


def test_the_lambda_api_returns_the_errors_of_aws(aws):
    client = aws.client("lambda")
    failed = client.invoke(FunctionName="fail", Payload=b'{"message": "no"}')
    assert failed["FunctionError"] == "Unhandled"
    assert json.loads(failed["Payload"].read())["errorType"] == "TableLockedError"
    with pytest.raises(client.exceptions.ResourceNotFoundException, match="unknown"):
        client.invoke(FunctionName="unknown", Payload=b"{}")
    with pytest.raises(ClientError) as refused:
        client.invoke(FunctionName="echo", Payload=b'"' + b"x" * (6 * 1024 * 1024) + b'"')
    assert refused.value.response["Error"]["Code"] == "RequestTooLargeException"
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 413
    client.close()


def test_a_port_in_use_is_reported(aws, lambdas):
    port = int(aws.url.rpartition(":")[2])
    with pytest.raises(CannotStartError, match=f"port {port} cannot be used"):
        MotoAws(lambdas, port=port).start()
