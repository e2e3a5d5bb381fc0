"""Children in the task table: an item under the parent and one under the child, in partitions of their own.

    {parent}/children   a number made from the child's id    child_id, attempt, task_type, task_payload
    {child}/parents     a number made from the parent's id   parent_id, attempt

No version has such a partition, and no head such a number, so reads of tasks do not see them. The sort key is a number
because the table's is; ids are hashed to 120 bits, for DynamoDB's numbers have 38 digits (its Developer Guide, "Data
types").
"""

import hashlib
from collections.abc import Mapping
from typing import Any, Final

from delegation.tasks.life.model import FORMAT
from delegation.tasks.stores.base import Child

CHILDREN: Final = "/children"
PARENTS: Final = "/parents"
PAIRS_A_CALL: Final = 40
"""Children whose two items one transaction deletes, below DynamoDB's limit of 100 actions."""


def child_item(parent_id: str, child: Child) -> dict[str, Any]:
    return {
        **child_key(parent_id, child.task_id),
        "child_id": child.task_id,
        "attempt": child.attempt,
        "task_type": child.task_type,
        "task_payload": child.task_payload,
        "format": FORMAT,
    }


def parent_item(parent_id: str, child: Child) -> dict[str, Any]:
    return {**parent_key(parent_id, child.task_id), "parent_id": parent_id, "attempt": child.attempt, "format": FORMAT}


def child_key(parent_id: str, child_id: str) -> dict[str, Any]:
    return {"task_id": parent_id + CHILDREN, "version": _number(child_id)}


def parent_key(parent_id: str, child_id: str) -> dict[str, Any]:
    return {"task_id": child_id + PARENTS, "version": _number(parent_id)}


def child_of(item: Mapping[str, Any]) -> Child:
    return Child(item["child_id"], int(item["attempt"]), item["task_type"], item["task_payload"])


def _number(task_id: str) -> int:
    """Return a number from 1 to 2^120 for an id, the same in every process."""
    return int.from_bytes(hashlib.sha256(task_id.encode()).digest()[:15]) + 1
