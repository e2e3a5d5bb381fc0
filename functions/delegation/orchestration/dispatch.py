"""From a due task to a running execution: the queue, the dispatcher, the sweeper (DESIGN §4)."""

import json
from typing import Any, ClassVar
from uuid import UUID

from botocore.exceptions import ClientError, HTTPClientError
from botocore.exceptions import ConnectionError as BotoConnectionError

from delegation.errors import DelegationError
from delegation.orchestration.step_input import execution_name
from delegation.tasks.errors import StoreUnavailable


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
