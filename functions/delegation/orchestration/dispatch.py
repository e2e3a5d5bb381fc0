"""From a due task to a running execution: the queue, the dispatcher, the sweeper (DESIGN §4)."""

import json
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar
from uuid import UUID

from botocore.exceptions import ClientError, HTTPClientError
from botocore.exceptions import ConnectionError as BotoConnectionError

from delegation.errors import DelegationError
from delegation.orchestration.steps import execution_name
from delegation.tasks.errors import StoreUnavailable, TaskError
from delegation.tasks.life import outcomes
from delegation.tasks.life.model import Task
from delegation.tasks.work.service import TaskService


class MalformedDispatch(DelegationError):
    """A queue message is not a dispatch; it ends in the dead-letter queue."""

    code: ClassVar[str] = "MALFORMED_DISPATCH"


class ExecutionNotStarted(DelegationError):
    """Step Functions did not take an execution; the message comes again."""

    code: ClassVar[str] = "EXECUTION_NOT_STARTED"
    retryable: ClassVar[bool] = True


class SqsDispatchQueue:
    """DispatchQueue over a boto3 SQS client: a message holds `{task_id, n}` and nothing else."""

    def __init__(self, client: Any, queue_url: str) -> None:
        self._client = client
        self._queue_url = queue_url

    def send(self, task_id: str, n: int) -> None:
        """See DispatchQueue.send."""
        try:
            self._client.send_message(QueueUrl=self._queue_url, MessageBody=json.dumps({"task_id": task_id, "n": n}))
        except ClientError as error:
            raise StoreUnavailable(f"the queue answered {error.response['Error']['Code']}") from error
        except (HTTPClientError, BotoConnectionError) as error:
            raise StoreUnavailable(f"the queue could not be reached: {type(error).__name__}") from error


class Dispatcher:
    """Starts one execution per message; a name that was used before is a dispatch that had its turn."""

    def __init__(self, client: Any, state_machine_arn: str) -> None:
        self._client = client
        self._state_machine_arn = state_machine_arn

    def start(self, body: str) -> bool:
        """Start the execution that a message asks for; False when one of this name has ended already.

        Raises MalformedDispatch and ExecutionNotStarted. StartExecution with the name and input of a running execution
        answers as started (AWS Step Functions API reference).
        """
        task_id, n = _parse(body)
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
            raise ExecutionNotStarted(f"Step Functions answered {code}") from error
        except (HTTPClientError, BotoConnectionError) as error:
            raise ExecutionNotStarted(f"Step Functions: {type(error).__name__}") from error
        return True


def _parse(body: str) -> tuple[str, int]:
    try:
        message = json.loads(body)
        task_id, n = str(UUID(message["task_id"])), message["n"]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise MalformedDispatch("the message is not {task_id, n}") from None
    if not isinstance(n, int) or isinstance(n, bool) or n < 1:
        raise MalformedDispatch("n: not a positive whole number")
    return task_id, n


@dataclass(frozen=True, slots=True)
class Swept:
    """What the sweeper did with one due entry; `error` is set when the store or the queue failed for it.

    `unsettled`: its attempt is lost, and what that one has running elsewhere could not be ended.
    """

    before: Task | None
    after: Task | None
    error: TaskError | None = None
    unsettled: bool = False


def sweep(
    tasks: TaskService, kinds: Collection[str], *, deadline: datetime, clock: Callable[[], datetime], limit: int = 1_000
) -> Iterator[Swept]:
    """Look again at every task that is due, the oldest first, until `deadline`; one task's trouble stops no other.

    A task of a kind unknown to this deployment is left alone: a newer one owns it. `limit` entries are looked at in one
    reading of the index, beside those that stay due, left alone or in trouble: however many they are, they hide nobody.
    """
    seen: set[str] = set()
    staying = 0
    while True:
        entries = tasks.due(clock(), limit=staying + limit)
        fresh = [entry for entry in entries if entry.task_id not in seen]
        for entry in fresh:
            if clock() >= deadline:
                return
            seen.add(entry.task_id)
            before = None
            try:
                before = tasks.find(entry.task_id)
                if before is None or before.task_type not in kinds:
                    staying += 1
                    continue
                after = tasks.reconcile(entry.task_id)
                staying += after.due_at is not None and after.due_at <= clock()
                yield Swept(before, after, unsettled=outcomes.is_lost(after, clock()))
            except TaskError as error:
                staying += 1
                yield Swept(before, None, error)
        if not fresh or len(entries) < limit:
            return
