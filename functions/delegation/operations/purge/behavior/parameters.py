"""The parameters of a table purge, stored as `task_payload`, and the task id made from them."""

import json
from collections.abc import Mapping
from typing import Any, Self

from delegation.identifiers import TableIdentifier
from delegation.operations.behaviors.task_types import id_of_parts, purge_id
from delegation.operations.purge.behavior.names import PLAN_TASK_TYPE, TASK_TYPE
from delegation.tasks.errors import MalformedPayload
from delegation.tasks.life.model import Task
from delegation.tasks.submission.options import DRY_RUN
from delegation.wire.purges import PurgeRequest
from delegation.wire.requests import TableState


class TablePurge(PurgeRequest):
    """A purge of a known table, without credentials and with only that metadata which identifies the table."""

    table: TableState

    @property
    def is_dry_run(self) -> bool:
        """Whether the purge ends with its plan (`properties.dry-run`)."""
        return self.properties.get(DRY_RUN, "false").lower() == "true"

    @property
    def task_type(self) -> str:
        """The stored task type."""
        return PLAN_TASK_TYPE if self.is_dry_run else TASK_TYPE

    @property
    def task_id(self) -> str:
        """The id of a purge: one per table uuid, so that no two purges of one table run at once."""
        if self.is_dry_run:
            raise ValueError("a dry run's id depends on its options: call dry_run_id")
        return purge_id(self.realm, self.identifier.catalog, self.table.table_uuid)

    def dry_run_id(self, options: Mapping[str, Any]) -> str:
        """Return the id of a dry run: another one for another state, identifier or option of the table's purge.

        So the same request attaches or is replayed, and the plan that was approved is found again after a commit.
        """
        parts = [
            *(self.realm, PLAN_TASK_TYPE, self.identifier.catalog, self.table.table_uuid.lower()),
            [self.identifier.catalog, *self.identifier.namespace, self.identifier.name],
            self.table.metadata_location,
            dict(options),
        ]
        return id_of_parts(parts)

    def to_payload(self) -> str:
        """Return `task_payload` as JSON text (Delegation Service proposal, Persistence)."""
        return json.dumps(self.document(self.task_type), sort_keys=True)

    @classmethod
    def of(cls, task: Task) -> Self:
        """Read a stored task's parameters; raise MalformedPayload if its payload is not that of a purge."""
        try:
            return cls.of_stored(task.task_payload)
        except (ValueError, KeyError, TypeError) as error:
            raise MalformedPayload(task.task_id, type(error).__name__) from None


def identifier_text(identifier: TableIdentifier) -> str:
    """Return `purged_identifier` as a JSON array, because a dotted name is ambiguous if a level has a dot."""
    return json.dumps([identifier.catalog, *identifier.namespace, identifier.name], ensure_ascii=False)
