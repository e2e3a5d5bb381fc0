"""Which tasks a deployment runs; others belong to a newer one and are left alone."""

from collections.abc import Collection

from delegation.tasks.life.model import Task


class KnownTypes(dict[str, int]):
    """Task types, each with the newest version of its payload that the deployment reads."""


def runs(task_types: Collection[str], task: Task) -> bool:
    """Return whether a task is of a known type and its payload of a known version; of a plain collection, version 1."""
    if task.task_type not in task_types:
        return False
    newest = task_types[task.task_type] if isinstance(task_types, KnownTypes) else 1
    return task.payload_version <= newest
