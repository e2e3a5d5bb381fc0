"""The poller is Lambda's event source mapping: partial failures stay, dead letters go to their queue."""

import json
import queue
import uuid
from pathlib import Path

import pytest

from infra.local.aws.server import MotoAws
from infra.local.aws.triggers import Clock, Mapping, Poller, failures
from infra.local.lambdas.functions import FunctionSpec, Invocation, LambdaPool

HANDLERS = Path(__file__).parent / "fixtures"


class Recorder:
    """A function in this process that returns `decide(event)` and records the events."""

    def __init__(self, decide):
        self.spec = FunctionSpec("recorder", "none", 60, 128)
        self.log = Path("none.log")
        self.events = queue.SimpleQueue()
        self._decide = decide

    def invoke(self, payload):
        event = json.loads(payload)
        answer = self._decide(event)
        self.events.put(event)
        return answer


def answer(value, error=None):
    return Invocation("r-1", json.dumps(value).encode(), error)


@pytest.fixture(scope="module")
def aws(tmp_path_factory):
    lambdas = LambdaPool(log_folder=tmp_path_factory.mktemp("logs"))
    server = MotoAws(lambdas).start()
    yield server
    server.stop()
    lambdas.stop()


@pytest.fixture
def sqs(aws):
    client = aws.client("sqs")
    yield client
    client.close()


def create_queue(sqs, **attributes):
    url = sqs.create_queue(QueueName=f"q-{uuid.uuid4()}", Attributes=attributes)["QueueUrl"]
    return url, sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]


@pytest.fixture
def polling(sqs):
    pollers = []

    def polling(url, arn, function, **options):
        pollers.append(Poller(sqs, Mapping(url, arn, "us-east-1", wait_seconds=1, **options), function).start())

    yield polling
    for poller in pollers:
        poller.stop()


def test_a_message_is_delivered_as_lambdas_event_and_deleted(sqs, polling):
    url, arn = create_queue(sqs, VisibilityTimeout="1")
    sent = sqs.send_message(QueueUrl=url, MessageBody='{"task_id": "t-1", "n": 1}')
    function = Recorder(lambda _: answer({"batchItemFailures": []}))
    polling(url, arn, function)
    (record,) = function.events.get(timeout=60)["Records"]
    assert record["messageId"] == sent["MessageId"]
    assert json.loads(record["body"]) == {"task_id": "t-1", "n": 1}
    assert record["attributes"]["ApproximateReceiveCount"] == "1"
    assert (record["eventSource"], record["eventSourceARN"]) == ("aws:sqs", arn)
    # The first message would be visible again by now; it was deleted, because the next event has the second one.
    sqs.send_message(QueueUrl=url, MessageBody="second", DelaySeconds=2)
    assert function.events.get(timeout=60)["Records"][0]["body"] == "second"


def test_only_the_failed_message_is_delivered_again_and_goes_to_the_dead_letter_queue(sqs, polling):
    dead_url, dead_arn = create_queue(sqs)
    redrive = json.dumps({"deadLetterTargetArn": dead_arn, "maxReceiveCount": 2})
    url, arn = create_queue(sqs, VisibilityTimeout="1", RedrivePolicy=redrive)
    for body in ("good", "bad", "fine"):
        sqs.send_message(QueueUrl=url, MessageBody=body)

    def refuse_bad(event):
        bad = [record["messageId"] for record in event["Records"] if record["body"] == "bad"]
        return answer({"batchItemFailures": [{"itemIdentifier": name} for name in bad]})

    function = Recorder(refuse_bad)
    polling(url, arn, function)
    (dead,) = sqs.receive_message(QueueUrl=dead_url, WaitTimeSeconds=20)["Messages"]
    assert dead["Body"] == "bad"
    deliveries = []
    while not function.events.empty():
        deliveries += [record["body"] for record in function.events.get()["Records"]]
    assert sorted(deliveries) == ["bad", "bad", "fine", "good"]


def test_after_a_function_error_the_whole_batch_is_delivered_again(sqs, polling):
    url, arn = create_queue(sqs, VisibilityTimeout="1")
    sqs.send_message(QueueUrl=url, MessageBody="one")
    answers = iter([answer({"errorType": "Sandbox.Timedout"}, "Unhandled"), answer(None)])
    function = Recorder(lambda _: next(answers))
    polling(url, arn, function)
    counts = [function.events.get(timeout=60)["Records"][0]["attributes"]["ApproximateReceiveCount"] for _ in range(2)]
    assert counts == ["1", "2"]


@pytest.mark.parametrize(
    ("invocation", "stay"),
    [
        (answer(None), set()),
        (answer({}), set()),
        (answer({"batchItemFailures": []}), set()),
        (answer({"batchItemFailures": None}), set()),
        (answer({"batchItemFailures": [{"itemIdentifier": "a"}]}), {"a"}),
        (answer({"batchItemFailures": [{"itemIdentifier": ""}]}), {"a", "b"}),
        (answer({"batchItemFailures": [{"itemIdentifier": "c"}]}), {"a", "b"}),
        (answer({"batchItemFailures": [{"wrong": "a"}]}), {"a", "b"}),
        (answer({"batchItemFailures": "a"}), {"a", "b"}),
        (answer("text"), {"a", "b"}),
        (answer({}, "Unhandled"), {"a", "b"}),
    ],
)
def test_messages_that_stay_in_the_queue(invocation, stay):
    assert failures(invocation, {"a", "b"}) == stay


def test_the_clock_calls_repeatedly_also_after_a_failure():
    answers = iter([answer({"errorType": "X"}, "Unhandled"), answer(None), answer(None)])
    function = Recorder(lambda _: next(answers, answer(None)))
    clock = Clock(function, interval_seconds=0.01, region="us-east-1", account="123456789012").start()
    events = [function.events.get(timeout=60) for _ in range(3)]
    clock.stop()
    assert {event["detail-type"] for event in events} == {"Scheduled Event"}
    assert len({event["id"] for event in events}) == 3


def test_a_worker_process_is_called_for_a_message(sqs, polling, tmp_path):
    pool = LambdaPool(log_folder=tmp_path)
    try:
        spec = FunctionSpec("echo", "local_handlers.print_text", 30, 128, {"PYTHONPATH": str(HANDLERS)})
        function = pool.add(spec)
        url, arn = create_queue(sqs, VisibilityTimeout="1", RedrivePolicy=_redrive_to(sqs, receives=1))
        sqs.send_message(QueueUrl=url, MessageBody="x")
        polling(url, arn, function)
        dead = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["RedrivePolicy"])["Attributes"]["RedrivePolicy"]
        dead_name = json.loads(dead)["deadLetterTargetArn"].rpartition(":")[2]
        dead_url = sqs.get_queue_url(QueueName=dead_name)["QueueUrl"]
        # `print_text` finds no text in the event and raises, so the message goes to the dead-letter queue.
        assert sqs.receive_message(QueueUrl=dead_url, WaitTimeSeconds=20)["Messages"][0]["Body"] == "x"
        assert "KeyError" in function.log.read_text()
    finally:
        pool.stop()


def _redrive_to(sqs, *, receives):
    _, dead_arn = create_queue(sqs)
    return json.dumps({"deadLetterTargetArn": dead_arn, "maxReceiveCount": receives})
