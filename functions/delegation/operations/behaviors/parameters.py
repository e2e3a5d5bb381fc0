"""The parameters of work on one table, stored as `task_payload`, and the task id made from them."""

import json
from typing import ClassVar, Final, Self

from delegation.operations.behaviors.task_types import id_of_parts
from delegation.tasks.errors import MalformedPayload
from delegation.tasks.life.model import Task
from delegation.tasks.submission.options import CALLBACK, DRY_RUN
from delegation.wire.identified import IdentifiedRequest
from delegation.wire.requests import TableState
from polaris_common.errors import printable

_NOT_OF_THE_WORK: Final = frozenset({CALLBACK})
_NAMES: Final = 5
_LONGEST_NAME: Final = 64


class TableWork(IdentifiedRequest):
    """Work on a known table, with the table's state when the request was accepted.

    `work_task_type` and `plan_task_type` are the stored task types of the work and of its dry run.
    """

    work_task_type: ClassVar[str]
    plan_task_type: ClassVar[str]

    table: TableState

    @property
    def is_dry_run(self) -> bool:
        """Whether the work ends with its plan (`properties.dry-run`)."""
        return self.properties.get(DRY_RUN, "false").lower() == "true"

    @property
    def task_type(self) -> str:
        """The stored task type."""
        return self.plan_task_type if self.is_dry_run else self.work_task_type

    @property
    def payload_version(self) -> int:
        """The version of the payload."""
        return 1

    @property
    def task_id(self) -> str:
        """The id: one per table uuid, so that no two tasks do the work for one table at once.

        A dry run has another one for another name, state or option of the table.
        """
        if not self.is_dry_run:
            return self.id_of(self.realm, self.identifier.catalog, self.table.table_uuid)
        name = [*self.identifier.namespace, self.identifier.name]
        parts = [self.identifier.catalog, self.table.table_uuid.lower(), name, self.table.metadata_location]
        return id_of_parts([self.realm, self.task_type, *parts, self.of_the_work()])

    @classmethod
    def id_of(cls, realm: str, catalog: str, table_uuid: str) -> str:
        """Return the id of the task that does the work for a table."""
        return id_of_parts([realm, cls.work_task_type, catalog, table_uuid.lower()])

    def of_the_work(self) -> dict[str, str]:
        """Return the properties that decide what is done, not who is notified."""
        return {name: value for name, value in self.properties.items() if name not in _NOT_OF_THE_WORK}

    def to_payload(self) -> str:
        """Return `task_payload` as JSON text (Delegation Service proposal, Persistence)."""
        return json.dumps(self.document(self.task_type), sort_keys=True)

    @classmethod
    def of(cls, task: Task) -> Self:
        """Read a stored task's parameters; raise MalformedPayload if its payload is not that of such work."""
        try:
            return cls.of_stored(task.task_payload)
        except (ValueError, KeyError, TypeError) as error:
            raise MalformedPayload(task.task_id, type(error).__name__) from None

    @classmethod
    def readable(cls, task: Task) -> Self | None:
        """Return the stored task's parameters, None if this release cannot read them."""
        try:
            return cls.of(task)
        except MalformedPayload:
            return None

    def other_properties(self, wanted: "TableWork") -> str:
        """Return words for the properties that differ from those of a request."""
        before, now = self.of_the_work(), wanted.of_the_work()
        names = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
        listed = ", ".join(printable(name, _LONGEST_NAME) for name in names[:_NAMES])
        return f"other properties ({listed}{', …' if len(names) > _NAMES else ''})"

    @classmethod
    def conflict(cls, task: Task, wanted: "TableWork", *, does: str) -> str | None:
        """Return why `wanted` has to wait for a task that has not ended, None if it can attach to it.

        `does` states what the work of the task does with its table.
        """
        current = cls.readable(task)
        if current is None:
            return f"is {task.status} and its payload cannot be read; wait until it ends"
        if current.identifier != wanted.identifier:
            return (
                f"is {task.status} and {does} {printable(str(current.identifier))}, a table with the same "
                "table-uuid: clones share one task; wait until it ends, then send this request again"
            )
        if current.of_the_work() == wanted.of_the_work():
            return None
        other = current.other_properties(wanted)
        return f"is {task.status} with {other}; wait until it ends, then send this request again"
