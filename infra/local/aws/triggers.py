"""What invokes functions: an event source mapping from SQS, and a schedule."""

import json
import logging
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

from botocore.exceptions import BotoCoreError, ClientError

from infra.local.errors import LocalStackError
from infra.local.lambdas.functions import Invocation, LocalFunction

LOG = logging.getLogger(__name__)
_PAUSE_AFTER_ERROR_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Mapping:
    queue_url: str
    queue_arn: str
    region: str
    batch_size: int = 10
    maximum_concurrency: int = 5
    wait_seconds: int = 2


class _Trigger:
    """Invokes a function from a thread of this process until it is stopped."""

    def __init__(self, function: LocalFunction) -> None:
        self._function = function
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> Self:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop and wait for running calls; may be called again."""
        self._stopping.set()
        if self._thread:
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        raise NotImplementedError


class Poller(_Trigger):
    """Polls one queue in threads of this process and calls one function."""

    def __init__(self, sqs: Any, mapping: Mapping, function: LocalFunction) -> None:
        super().__init__(function)
        self._sqs = sqs
        self._mapping = mapping
        self._slots = threading.Semaphore(mapping.maximum_concurrency)
        self._calls = ThreadPoolExecutor(mapping.maximum_concurrency, thread_name_prefix="poller")

    def stop(self) -> None:
        super().stop()
        self._calls.shutdown()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._slots.acquire()
            messages = self._receive()
            if messages:
                self._calls.submit(self._deliver, messages)
            else:
                self._slots.release()

    def _receive(self) -> list[dict[str, Any]]:
        try:
            answer = self._sqs.receive_message(
                QueueUrl=self._mapping.queue_url,
                MaxNumberOfMessages=self._mapping.batch_size,
                WaitTimeSeconds=self._mapping.wait_seconds,
                MessageSystemAttributeNames=["All"],
            )
        except (BotoCoreError, ClientError) as exc:
            LOG.warning("polling %s failed: %s", self._mapping.queue_arn, exc)
            self._stopping.wait(_PAUSE_AFTER_ERROR_SECONDS)
            return []
        messages: list[dict[str, Any]] = answer.get("Messages", [])
        return messages

    def _deliver(self, messages: list[dict[str, Any]]) -> None:
        try:
            invocation = self._function.invoke(json.dumps(self._event(messages)).encode())
            failed = failures(invocation, {message["MessageId"] for message in messages})
            done = [message for message in messages if message["MessageId"] not in failed]
            if done:
                entries = [
                    {"Id": str(at), "ReceiptHandle": message["ReceiptHandle"]} for at, message in enumerate(done)
                ]
                self._sqs.delete_message_batch(QueueUrl=self._mapping.queue_url, Entries=entries)
        except LocalStackError as exc:
            # Throttled or shut down: SQS delivers the messages again when their visibility time-out ends.
            LOG.warning("%s", exc)
        except (BotoCoreError, ClientError) as exc:
            # The function handled the messages; SQS delivers them again, which at-least-once delivery allows.
            LOG.warning("deleting from %s failed: %s", self._mapping.queue_arn, exc)
        finally:
            self._slots.release()

    def _event(self, messages: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "Records": [
                {
                    "messageId": message["MessageId"],
                    "receiptHandle": message["ReceiptHandle"],
                    "body": message["Body"],
                    "attributes": dict(message.get("Attributes", {})),
                    "messageAttributes": {},  # nobody sends any
                    "md5OfBody": message.get("MD5OfBody", ""),
                    "eventSource": "aws:sqs",
                    "eventSourceARN": self._mapping.queue_arn,
                    "awsRegion": self._mapping.region,
                }
                for message in messages
            ]
        }


def failures(invocation: Invocation, delivered: set[str]) -> set[str]:
    """Return the ids of the delivered messages that stay in the queue (`ReportBatchItemFailures`).

    All of them stay after an error, a malformed answer, or an id that is empty or was not delivered.
    """
    if invocation.error:
        return delivered
    try:
        answer = json.loads(invocation.payload)
        items = (answer or {}).get("batchItemFailures") or []
        named = {item["itemIdentifier"] for item in items}
    except (ValueError, TypeError, KeyError, AttributeError):
        return delivered
    return delivered if named - delivered else named


class Clock(_Trigger):
    """Calls `function` every `interval_seconds`, first after one interval; a missed call is not repeated."""

    def __init__(self, function: LocalFunction, *, interval_seconds: float, region: str, account: str) -> None:
        super().__init__(function)
        self._interval = interval_seconds
        self._region = region
        self._account = account

    def _run(self) -> None:
        while not self._stopping.wait(self._interval):
            try:
                invocation = self._function.invoke(json.dumps(self._event(datetime.now(UTC))).encode())
            except LocalStackError as exc:
                LOG.warning("%s", exc)
                continue
            if invocation.error:
                LOG.warning("%s failed, see %s", self._function.spec.name, self._function.log)

    def _event(self, now: datetime) -> dict[str, object]:
        """Return the event of a schedule (EventBridge user guide, "Scheduled events")."""
        return {
            "version": "0",
            "id": str(uuid.uuid4()),
            "detail-type": "Scheduled Event",
            "source": "aws.events",
            "account": self._account,
            "time": f"{now:%Y-%m-%dT%H:%M:%SZ}",
            "region": self._region,
            "resources": [f"arn:aws:events:{self._region}:{self._account}:rule/{self._function.spec.name}"],
            "detail": {},
        }
