"""TaskStore on one DynamoDB table: heads under version 0, rows under their version, sparse indexes of heads. Without
contention Create and Advance are one TransactWriteItems of two puts, Revise one PutItem."""

import uuid
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Any, Final

from delegation.stored_items import Items
from delegation.tasks.errors import OutcomeUnknown, StoreRefused, StoreUnavailable, TaskError, TaskExists
from delegation.tasks.life.model import HEAD, Task
from delegation.tasks.pauses import PauseRecord, pauses_item, pauses_of
from delegation.tasks.stores import codec
from delegation.tasks.stores.base import (
    Adopt,
    Advance,
    Child,
    Create,
    Expect,
    Revise,
    TaskChange,
    before_of,
    moved,
    only_expects,
    require_terminal,
    require_version,
)
from delegation.tasks.stores.dynamodb_reads import (
    PAIRS_A_CALL,
    TASK_KEY,
    DynamoDbTaskReads,
    child_item,
    child_key,
    parent_item,
    parent_key,
)
from delegation.tasks.stores.notifications import notification_item
from polaris_common.dynamodb import CallOutcome, DynamoDbCalls, from_item, is_failed_condition, to_item

ROWS_A_REMOVAL: Final = 8
"""Rows deleted in one transaction: nine items with the head, each at most 400 KB, below the limit of 4 MB."""
Action = dict[str, Any]

_UNMOVED: Final = "current_version = :version AND revision = :revision"


class CompanionRefused(TaskError):
    """The condition of another store's action in the transaction failed; `item` is the stored item."""

    code = "COMPANION_REFUSED"

    def __init__(self, item: Mapping[str, Any] | None) -> None:
        super().__init__(
            "another process changed a record that was to be written with the task, so nothing was written. Repeat the "
            "request"
        )
        self.item = item


class ConditionalTable(DynamoDbCalls):
    unavailable = StoreUnavailable
    unknown = OutcomeUnknown
    refused = MappingProxyType({CallOutcome.INVALID: StoreRefused})


class DynamoDbTaskStore(DynamoDbTaskReads):
    dynamodb: ConditionalTable

    def __init__(self, dynamodb: ConditionalTable, table: str) -> None:
        super().__init__(dynamodb, table)

    def apply(self, change: TaskChange) -> Task:
        if isinstance(change, Revise):
            put = self._actions(change)[0]["Put"]
            return self._settle(change, lambda: self.dynamodb.client.put_item(**put))
        if isinstance(change, Expect) and not change.owed:
            return require_version(change.after, self.get(change.after.task_id))
        # The nonce of an unchanged head belongs to another write.
        return self.transact(change, token=str(uuid.uuid4()) if only_expects(change) else None)

    def transact(self, change: TaskChange, also: Sequence[Action] = (), *, token: str | None = None) -> Task:
        """Apply a change and other stores' actions in one transaction. `token` (at most 36 characters) is the
        ClientRequestToken, by default the change's nonce; an Expect stores no nonce and needs one. Raises like `apply`,
        and CompanionRefused if the condition of one of `also` failed."""
        items = [*self._actions(change), *also]
        client_token = token or change.after.nonce
        client = self.dynamodb.client
        return self._settle(
            change, lambda: client.transact_write_items(TransactItems=items, ClientRequestToken=client_token)
        )

    def _actions(self, change: TaskChange) -> list[Action]:
        match change:
            case Create(task):
                return [
                    self._put(codec.head_item(task), "attribute_not_exists(task_id)"),
                    self._put(codec.row_item(task), "attribute_not_exists(task_id)"),
                ]
            case Advance(before, after):
                rows = [self._put(codec.row_item(row), "attribute_not_exists(task_id)") for row in change.rows]
                return [self._put(codec.head_item(after), _UNMOVED, before), *rows, *self._owed(change)]
            case Revise(before, after):
                return [self._put(codec.head_item(after), _UNMOVED, before)]
            case Expect(task):
                return [self._expected(task), *self._owed(change)]
            case Adopt(before, after):
                both = (child_item, parent_item)
                items = [item(before.task_id, child) for child in change.children for item in both]
                puts: list[Action] = [{"Put": {"TableName": self.table, "Item": to_item(item)}} for item in items]
                if change.only_expects:
                    return [self._expected(before), *puts]
                return [self._put(codec.head_item(after), _UNMOVED, before), *puts]

    def _owed(self, change: Advance | Expect) -> list[Action]:
        items = map(notification_item, change.owed)
        return [{"Put": {"TableName": self.table, "Item": to_item(item)}} for item in items]

    def _expected(self, task: Task) -> Action:
        check = self._on_head("ConditionCheck", task, "current_version = :version", {":version": task.version})
        check["ConditionCheck"]["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
        return check

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

    def _on_head(self, kind: str, task: Task, condition: str, values: Mapping[str, int]) -> Action:
        return {
            kind: {
                "TableName": self.table,
                "Key": to_item({"task_id": task.task_id, "version": HEAD}),
                "ConditionExpression": condition,
                "ExpressionAttributeValues": to_item(values),
            }
        }

    def _settle(self, change: TaskChange, call: Callable[[], object]) -> Task:
        """Make the call; find out whether an earlier try, another writer or a companion caused a refusal."""
        try:
            reasons = self.dynamodb.write(call)
        except OutcomeUnknown:
            return self._read_back(change)
        if not reasons:
            return change.after
        own = len(self._actions(change))
        if isinstance(change, Expect):
            _raise_companion(reasons[own:])  # only the companion knows whether an earlier try was applied
        if any(is_failed_condition(reason) for reason in reasons[:own]):
            return self._applied_or_raise(change, reasons[0].get("Item"))
        _raise_companion(reasons[own:])
        raise _conflict(change, self.get(change.after.task_id))

    def _applied_or_raise(self, change: TaskChange, item: Mapping[str, Any] | None) -> Task:
        """Return the head if an earlier try of this write was applied, else raise; `item` is the refusing head."""
        task = change.after
        try:
            head = codec.task_of(from_item(item)) if item else self.get(task.task_id)
            applied = self._applied(change, head)
        except StoreUnavailable as error:
            raise OutcomeUnknown(
                f"DynamoDB refused a write to task {task.task_id}, perhaps because an earlier try was applied. The "
                "task could not be read to find out. Repeat the request"
            ) from error
        if applied is not None:
            return applied
        raise _conflict(change, head)

    def _read_back(self, change: TaskChange) -> Task:
        """Return the head if a write without a clear answer was applied; OutcomeUnknown while it may still arrive."""
        task = change.after
        try:
            head = self.get(task.task_id)
            applied = self._applied(change, head)
        except StoreUnavailable as error:
            raise OutcomeUnknown(
                f"a write to task {task.task_id} got no clear answer, and the task could not be read. Repeat the "
                "request"
            ) from error
        if applied is not None:
            return applied
        if head is not None and _is_past(change, head):
            raise _conflict(change, head)
        raise OutcomeUnknown(f"a write to task {task.task_id} got no clear answer. Repeat the request")

    def _applied(self, change: TaskChange, head: Task | None) -> Task | None:
        """Return the head if it or a row below it has the nonce of this write, else None."""
        if head is None or only_expects(change):
            return None
        after = change.after
        if head.nonce == after.nonce:
            return head
        if isinstance(change, Revise | Adopt) or head.version < after.version:
            return None
        row = self.get_version(after.task_id, after.version)
        return head if row is not None and row.nonce == after.nonce else None

    def create_all(self, tasks: Sequence[Task]) -> bool:
        items = [action for task in tasks for action in self._actions(Create(task))]
        # The nonces belong to the Creates that follow a refusal.
        client, token = self.dynamodb.client, str(uuid.uuid4())
        try:
            return not self.dynamodb.write(
                lambda: client.transact_write_items(TransactItems=items, ClientRequestToken=token)
            )
        except (OutcomeUnknown, StoreUnavailable):
            return False

    def disown(self, task_id: str, up_to_attempt: int) -> int:
        """Delete these records: a transaction for every 40 children, and one for each child adopted meanwhile."""
        old = iter([child for child in self.children(task_id) if child.attempt <= up_to_attempt])
        disowned = 0
        while some := list(islice(old, PAIRS_A_CALL)):
            if not self._disown(task_id, some, up_to_attempt):
                disowned += len(some)
            else:
                disowned += sum(not self._disown(task_id, [child], up_to_attempt) for child in some)
        return disowned

    def _disown(self, task_id: str, children: Sequence[Child], up_to_attempt: int) -> Sequence[Mapping[str, Any]]:
        """Delete both items of some children; return the reasons if a later attempt adopted one of them."""
        older = {
            "ConditionExpression": "attribute_not_exists(attempt) OR attempt <= :attempt",
            "ExpressionAttributeValues": to_item({":attempt": up_to_attempt}),
        }
        keys = [key(task_id, child.task_id) for child in children for key in (child_key, parent_key)]
        return self._remove_step([{"Delete": {"TableName": self.table, "Key": to_item(key), **older}} for key in keys])

    def remove(self, task: Task) -> bool:
        """Delete the task: one Query and one transaction for every eight rows, and `disown` for a parent."""
        require_terminal(task)
        if task.family.children or task.family.attempts_before:
            self.disown(task.task_id, task.attempt_count)
        unmoved = {":version": task.version, ":revision": task.revision}
        while True:
            rows, more = self._oldest_rows(task.task_id, task.version)
            head_action = self._on_head("ConditionCheck" if more else "Delete", task, _UNMOVED, unmoved)
            if self._remove_step([head_action, *rows]):
                head = self.get(task.task_id)
                if head is None:
                    return False
                raise moved(task, head)
            if not more:
                return True

    def forget(self, task_id: str, below: int) -> int:
        """Delete rows: a Query and a transaction for every eight; versions only grow, so no condition."""
        head = self.get(task_id)
        last = HEAD if head is None else min(below, head.version) - 1
        forgotten = 0
        while last > HEAD:  # DynamoDB refuses an empty range
            rows, _ = self._oldest_rows(task_id, last)
            if not rows:
                break
            self._remove_step(rows)
            forgotten += len(rows)
        return forgotten

    def _oldest_rows(self, task_id: str, last: int) -> tuple[list[Action], bool]:
        """Return the deletes of the oldest rows up to version `last`, and whether there may be more."""
        answer = self.dynamodb.repeatable(
            "query",
            TableName=self.table,
            KeyConditionExpression="task_id = :id AND version BETWEEN :first AND :last",
            ExpressionAttributeValues=to_item({":id": task_id, ":first": HEAD + 1, ":last": last}),
            ProjectionExpression="task_id, version",
            ConsistentRead=True,
            Limit=ROWS_A_REMOVAL,
        )
        rows = [{"Delete": {"TableName": self.table, "Key": key}} for key in answer["Items"]]
        return rows, "LastEvaluatedKey" in answer

    def _remove_step(self, items: list[Action]) -> Sequence[Mapping[str, Any]]:
        return self.dynamodb.write(lambda: self.dynamodb.client.transact_write_items(TransactItems=items))


PAUSES_KEY: Final = {"task_id": "pauses", "version": -1}


class DynamoDbPauseStore:
    """PauseStore on the task table: one item that is no head, no row, and in no index."""

    def __init__(self, dynamodb: ConditionalTable, table: str) -> None:
        self._items = Items(dynamodb, table, TASK_KEY, lambda record: {**pauses_item(record), **PAUSES_KEY}, pauses_of)

    def read(self) -> PauseRecord:
        return self._items.get(PAUSES_KEY) or PauseRecord()

    def write(self, record: PauseRecord) -> bool:
        return self._items.replace(record, record.revision - 1 or None)


def _is_past(change: TaskChange, head: Task) -> bool:
    match change:
        case Create():
            return True
        case _ if only_expects(change):
            return False  # the head shows no trace: the actions joined to it may have been applied
        case _:
            return head.revision != before_of(change).revision


def _raise_companion(reasons: Sequence[Mapping[str, Any]]) -> None:
    for reason in reasons:
        if is_failed_condition(reason):
            item = reason.get("Item")
            raise CompanionRefused(from_item(item) if item else None)


def _conflict(change: TaskChange, head: Task | None) -> TaskError:
    if isinstance(change, Create):
        return TaskExists(change.after.task_id, head)
    return moved(before_of(change), head)
