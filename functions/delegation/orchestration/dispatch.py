"""The dispatch queue on SQS, and the dispatcher that starts executions (docs/architecture/running.md)."""

import json
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from botocore.exceptions import ClientError, HTTPClientError
from botocore.exceptions import ConnectionError as BotoConnectionError

from delegation.orchestration.failures import execution_name
from delegation.tasks.admission import Admission
from delegation.tasks.errors import StoreUnavailable
from polaris_common.errors import DelegationError


class MalformedDispatch(DelegationError):
    """A queue message is not a dispatch; SQS moves it to the dead-letter queue."""

    code = "MALFORMED_DISPATCH"


def execution_not_started(message: str) -> DelegationError:
    """Return the error for a refused start of an execution; SQS delivers the message again."""
    return DelegationError(message, code="EXECUTION_NOT_STARTED", retryable=True)


class SqsDispatchQueue:
    """DispatchQueue over a boto3 SQS client; a message is `{task_id, n}` with the correlation id, if any."""

    def __init__(self, client: Any, queue_url: str) -> None:
        self._client = client
        self._queue_url = queue_url
        self._name = queue_url.rpartition("/")[2]

    def send(self, task_id: str, n: int, *, correlation_id: str | None = None) -> None:
        joined = {} if correlation_id is None else {"correlation_id": correlation_id}
        try:
            body = json.dumps({"task_id": task_id, "n": n, **joined})
            self._client.send_message(QueueUrl=self._queue_url, MessageBody=body)
        except ClientError as error:
            raise StoreUnavailable(
                f"SQS refused a message for the queue {self._name}: {error.response['Error']['Code']}"
            ) from error
        except (HTTPClientError, BotoConnectionError) as error:
            raise StoreUnavailable(f"the queue {self._name} could not be reached: {type(error).__name__}") from error


class Dispatcher:
    """Starts one execution per message, named after the dispatch so that a repeated message starts none."""

    def __init__(self, client: Any, state_machine_arn: str) -> None:
        self._client = client
        self._state_machine_arn = state_machine_arn

    def start(self, body: str) -> bool:
        """Start the execution of a message (`start_execution`). Raises MalformedDispatch and DelegationError."""
        return self.start_execution(*parse(body))

    def start_execution(self, task_id: str, n: int) -> bool:
        """Start the execution of a dispatch; False if the execution of this name has ended. StartExecution with the
        name and input of a running execution succeeds (AWS Step Functions API Reference, StartExecution). Raises
        DelegationError."""
        try:
            self._client.start_execution(
                stateMachineArn=self._state_machine_arn,
                name=execution_name(task_id, n),
                input=json.dumps({"task_id": task_id, "n": n}),
            )
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if code == "ExecutionAlreadyExists":
                return False
            raise execution_not_started(f"Step Functions answered {code}") from error
        except (HTTPClientError, BotoConnectionError) as error:
            raise execution_not_started(f"Step Functions could not be reached: {type(error).__name__}") from error
        return True


def named_in(body: str) -> dict[str, Any]:
    """Return a message's task, dispatch and correlation id for the log; nothing if it is no dispatch."""
    try:
        task_id, n = parse(body)
    except MalformedDispatch:
        return {}
    joined = json.loads(body).get("correlation_id")
    return {"task_id": task_id, "dispatch": n, **({"correlation_id": joined} if isinstance(joined, str) else {})}


def parse(body: str) -> tuple[str, int]:
    """Return the task and the number of a message (DispatchQueue.send). Raises MalformedDispatch."""
    try:
        message = json.loads(body)
        task_id, n = str(UUID(message["task_id"])), message["n"]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise MalformedDispatch("the message is not a dispatch, which has `task_id` and `n`") from None
    if not isinstance(n, int) or isinstance(n, bool) or n < 0:
        raise MalformedDispatch("n: must be a whole number, 0 or greater")
    return task_id, n


@dataclass(slots=True)
class Inbox:
    """What the dispatcher does with a batch of messages: it starts executions, then admits once for all the others."""

    dispatcher: Dispatcher
    admission: Admission
    _ended: set[str] = field(default_factory=set)

    def take(self, body: str) -> str:
        """Start the execution of a dispatch, or remember that tasks may start; return which. While everything is paused
        none is started; the sweeper sends another dispatch after the pause. Raises as `start`."""
        task_id, n = parse(body)
        if n == 0:
            self._ended.add(task_id)
            return "admission"
        if self.admission.is_paused:
            return "paused"
        return "started" if self.dispatcher.start_execution(task_id, n) else "closed"

    def admit(self) -> int:
        """Admit what may start if a message of the batch requested it, and return how many tasks; see Admission."""
        ended, self._ended = self._ended, set()
        return self.admission.run(ended) if ended else 0
