"""TaskStore on one DynamoDB table: heads under version 0, rows under their version, a sparse sharded due index.

Calls (uncontended): Create and Advance are one TransactWriteItems of two puts, Revise one PutItem, get one consistent
GetItem, due one Query a shard. Conditions ask for ALL_OLD on refusal, which costs nothing and tells who won.
"""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any, ClassVar, Final

from boto3.dynamodb.types import TypeDeserializer, TypeSerializer
from botocore.exceptions import ClientError, HTTPClientError
from botocore.exceptions import ConnectionError as BotoConnectionError

from delegation.tasks import codec
from delegation.tasks.errors import (
    OutcomeUnknown,
    RevisionConflict,
    StaleTask,
    StoreUnavailable,
    TaskError,
    TaskExists,
)
from delegation.tasks.model import HEAD, Task, isoformat
from delegation.tasks.store import Advance, Change, Create, DueEntry, Expect, Page, Revise

DUE_INDEX: Final = "due"
Action = dict[str, Any]
"""One element of TransactWriteItems."""

_RETRYABLE: Final = frozenset({
    "InternalServerError",
    "LimitExceededException",
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "ServiceUnavailable",
    "ThrottlingException",
    "TransactionConflictException",
    "TransactionInProgressException",
})  # fmt: skip
_RETRYABLE_REASONS: Final = frozenset({"ProvisionedThroughputExceeded", "ThrottlingError", "TransactionConflict"})
_REFUSED: Final = "ConditionalCheckFailed"
_UNMOVED: Final = "current_version = :version AND revision = :revision"
_APPLIED_UNKNOWN: Final = frozenset({"InternalServerError", "ServiceUnavailable"})
_serialize = TypeSerializer().serialize
_deserialize = TypeDeserializer().deserialize


def to_item(values: Mapping[str, Any]) -> dict[str, Any]:
    """Plain values as DynamoDB attribute values."""
    return {name: _serialize(value) for name, value in values.items()}


def from_item(item: Mapping[str, Any]) -> dict[str, Any]:
    """DynamoDB attribute values as plain values."""
    return {name: _deserialize(value) for name, value in item.items()}


class CompanionRefused(TaskError):
    """The condition of an action that another store joined to a transaction failed; `item` is what stood there."""

    code: ClassVar[str] = "COMPANION_REFUSED"

    def __init__(self, item: Mapping[str, Any] | None) -> None:
        super().__init__("a joined write was refused")
        self.item = item


class DynamoDbTaskStore:
    """TaskStore over a boto3 DynamoDB client.

    `sleep` and `draw` are the waiting between tries, passed in so that tests neither wait nor guess.
    """

    def __init__(
        self,
        client: Any,
        table: str,
        *,
        tries: int = 6,
        sleep: Callable[[float], None] = time.sleep,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self.client = client
        self.table = table
        self._tries = tries
        self._sleep = sleep
        self._draw = draw

    def apply(self, change: Change) -> Task:
        """See TaskStore.apply."""
        if isinstance(change, Revise):
            return self._revise(change)
        if isinstance(change, Expect):
            head = self.get(change.task.task_id)
            if head is None or head.version != change.task.version:
                raise StaleTask(change.task.task_id, head)
            return head
        return self.transact(change)

    def transact(self, change: Change, also: Sequence[Action] = (), *, token: str | None = None) -> Task:
        """Apply a change and other stores' actions in one transaction.

        `token` (≤ 36 characters) is the ClientRequestToken, by default the change's nonce; an Expect writes no nonce of
        its own and needs one. Raises like `apply`, and CompanionRefused when the condition of one of `also` failed.
        """
        actions = [*self._actions(change), *also]
        token = token or _after(change).nonce

        def call() -> None:
            self.client.transact_write_items(TransactItems=actions, ClientRequestToken=token)

        return self._settle(change, call)

    def _actions(self, change: Change) -> list[Action]:
        match change:
            case Create(task):
                return [
                    self._put(codec.head_item(task), "attribute_not_exists(task_id)"),
                    self._put(codec.row_item(task), "attribute_not_exists(task_id)"),
                ]
            case Advance(before, after):
                return [
                    self._put(codec.head_item(after), _UNMOVED, before),
                    self._put(codec.row_item(after), "attribute_not_exists(task_id)"),
                ]
            case Revise(before, after):
                return [self._put(codec.head_item(after), _UNMOVED, before)]
            case Expect(task):
                return [
                    {
                        "ConditionCheck": {
                            "TableName": self.table,
                            "Key": to_item({"task_id": task.task_id, "version": HEAD}),
                            "ConditionExpression": "current_version = :version",
                            "ExpressionAttributeValues": to_item({":version": task.version}),
                            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
                        }
                    }
                ]

    def _put(self, item: Mapping[str, Any], condition: str, before: Task | None = None) -> Action:
        put: Action = {
            "TableName": self.table,
            "Item": to_item(item),
            "ConditionExpression": condition,
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
        if before is not None:
            put["ExpressionAttributeValues"] = to_item({":version": before.version, ":revision": before.revision})
        return {"Put": put}

    def _revise(self, change: Revise) -> Task:
        put = self._actions(change)[0]["Put"]

        def call() -> None:
            self.client.put_item(**put)

        return self._settle(change, call)

    def _settle(self, change: Change, call: Callable[[], None]) -> Task:
        """Make the call until it is known to be applied or refused; the nonce in the items tells which."""
        unclear = False
        for attempt in range(self._tries):
            if attempt:
                self._sleep(min(0.05 * 2**attempt, 1.0) * (0.5 + self._draw() / 2))
            try:
                call()
            except ClientError as error:
                if not _worth_another_try(error):
                    return self._refused(change, error)
                unclear = unclear or error.response["Error"]["Code"] in _APPLIED_UNKNOWN
            except (HTTPClientError, BotoConnectionError):
                unclear = True
            else:
                return _after(change)
        if not unclear:
            raise StoreUnavailable(f"the task table did not take the write after {self._tries} tries")
        applied = self._applied(change, self.get(_after(change).task_id))
        if applied is None:
            raise OutcomeUnknown("a write to the task table timed out and was not seen afterwards")
        return applied

    def _refused(self, change: Change, error: ClientError) -> Task:
        """Whose refusal this is: our own earlier try's, another writer's, or a companion's."""
        code = error.response["Error"]["Code"]
        reasons: Sequence[Mapping[str, Any]]
        if code == "ConditionalCheckFailedException":
            reasons = [{"Code": _REFUSED, "Item": error.response.get("Item")}]
        elif code == "TransactionCanceledException":
            reasons = error.response.get("CancellationReasons", [])
        else:
            raise StoreUnavailable(f"the task table answered {code}") from error
        own = len(self._actions(change))
        task = _after(change)
        if isinstance(change, Expect):
            _raise_companion(reasons[own:])  # the companion alone knows whether an earlier try was applied
        if any(reason.get("Code") == _REFUSED for reason in reasons[:own]):
            head = self._head_of(reasons[0], task.task_id)
            applied = self._applied(change, head)
            if applied is not None:
                return applied
            raise _conflict(change, head)
        _raise_companion(reasons[own:])
        codes = ", ".join(str(reason.get("Code")) for reason in reasons)
        raise StoreUnavailable(f"the task table cancelled the transaction: {codes}") from error

    def _head_of(self, reason: Mapping[str, Any], task_id: str) -> Task | None:
        item = reason.get("Item")
        return codec.task_of(from_item(item)) if item else self.get(task_id)

    def _applied(self, change: Change, head: Task | None) -> Task | None:
        """The head if our write is in it or in a row below it, None otherwise."""
        if head is None or isinstance(change, Expect):
            return None
        after = _after(change)
        if head.nonce == after.nonce:
            return head
        if isinstance(change, Revise) or head.version < after.version:
            return None
        row = self.get_version(after.task_id, after.version)
        return head if row is not None and row.nonce == after.nonce else None

    def get(self, task_id: str) -> Task | None:
        """See TaskStore.get."""
        return self.get_version(task_id, HEAD)

    def get_version(self, task_id: str, version: int) -> Task | None:
        """See TaskStore.get_version."""
        answer = self._read("get_item", Key=to_item({"task_id": task_id, "version": version}), ConsistentRead=True)
        return codec.task_of(from_item(answer["Item"])) if "Item" in answer else None

    def history(self, task_id: str, *, after: int = 0, limit: int = 100) -> tuple[Task, ...]:
        """See TaskStore.history."""
        found: list[Task] = []
        start: dict[str, Any] = {}
        while len(found) < limit:
            answer = self._read(
                "query",
                KeyConditionExpression="task_id = :id AND version > :after",
                ExpressionAttributeValues=to_item({":id": task_id, ":after": after}),
                ConsistentRead=True,
                Limit=limit - len(found),
                **start,
            )
            found += [codec.task_of(from_item(item)) for item in answer["Items"]]
            if "LastEvaluatedKey" not in answer:
                break
            start = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}
        return tuple(found)

    def due(self, now: datetime, *, limit: int = 100) -> Sequence[DueEntry]:
        """See TaskStore.due: one Query a shard, side by side."""

        def shard(bucket: str) -> list[DueEntry]:
            answer = self._read(
                "query",
                IndexName=DUE_INDEX,
                KeyConditionExpression="due_bucket = :bucket AND due_at <= :now",
                ExpressionAttributeValues=to_item({":bucket": bucket, ":now": isoformat(now)}),
                Limit=limit,
            )
            items = [from_item(item) for item in answer["Items"]]
            return [DueEntry(item["task_id"], datetime.fromisoformat(item["due_at"])) for item in items]

        with ThreadPoolExecutor(max_workers=8) as pool:
            found = [entry for entries in pool.map(shard, codec.due_buckets()) for entry in entries]
        return sorted(found, key=lambda entry: (entry.due_at, entry.task_id))[:limit]

    def heads(self, *, cursor: str | None = None, limit: int = 100) -> Page:
        """See TaskStore.heads: a Scan that reads rows too and shows heads only."""
        found: list[Task] = []
        start: dict[str, Any] = {}
        if cursor is not None:
            start = {"ExclusiveStartKey": to_item({"task_id": cursor, "version": HEAD})}
        while len(found) <= limit:
            answer = self._read(
                "scan",
                FilterExpression="version = :head",
                ExpressionAttributeValues=to_item({":head": HEAD}),
                **start,
            )
            found += [codec.task_of(from_item(item)) for item in answer["Items"]]
            if "LastEvaluatedKey" not in answer:
                break
            start = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}
        page = tuple(found[:limit])
        return Page(page, page[-1].task_id if len(found) > limit else None)

    def _read(self, operation: str, **arguments: Any) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = getattr(self.client, operation)(TableName=self.table, **arguments)
        except ClientError as error:
            raise StoreUnavailable(f"the task table answered {error.response['Error']['Code']}") from error
        except (HTTPClientError, BotoConnectionError) as error:
            raise StoreUnavailable(f"the task table could not be read: {type(error).__name__}") from error
        return answer


def _after(change: Change) -> Task:
    return change.after if isinstance(change, Advance | Revise) else change.task


def _raise_companion(reasons: Sequence[Mapping[str, Any]]) -> None:
    for reason in reasons:
        if reason.get("Code") == _REFUSED:
            item = reason.get("Item")
            raise CompanionRefused(from_item(item) if item else None)


def _conflict(change: Change, head: Task | None) -> TaskError:
    task = _after(change)
    if isinstance(change, Create):
        return TaskExists(task.task_id, head)
    before = change.before if isinstance(change, Advance | Revise) else change.task
    if head is not None and head.version == before.version:
        return RevisionConflict(task.task_id, head)
    return StaleTask(task.task_id, head)


def _worth_another_try(error: ClientError) -> bool:
    code = error.response["Error"]["Code"]
    if code != "TransactionCanceledException":
        return code in _RETRYABLE
    codes = {reason.get("Code") for reason in error.response.get("CancellationReasons", [])}
    return _REFUSED not in codes and bool(codes & _RETRYABLE_REASONS)
