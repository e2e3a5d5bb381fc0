"""The parameters of a table purge as a task: what is stored as `task_payload`, and the task's id."""

import json
import uuid
from typing import Final, Self

import rfc8785

from delegation.identifiers import TableIdentifier
from delegation.operations.purge.behavior.kinds import KIND, PLAN_KIND
from delegation.tasks.errors import MalformedRecord
from delegation.tasks.life.model import Task
from delegation.wire.purges import PurgeRequest, TableState

DRY_RUN: Final = "dry-run"
PLAN: Final = "plan"


class TablePurge(PurgeRequest):
    """A purge whose table is known: never a credential, and of the metadata only what identifies the table."""

    table: TableState

    @property
    def is_dry_run(self) -> bool:
        """Whether only a plan is wanted (`properties.dry-run`)."""
        return self.properties.get(DRY_RUN, "false").lower() == "true"

    @property
    def kind(self) -> str:
        """The stored task type."""
        return PLAN_KIND if self.is_dry_run else KIND

    @property
    def task_id(self) -> str:
        """The purge's id: one per table uuid, so that two purges of one table cannot run side by side."""
        if self.is_dry_run:
            return str(uuid.uuid4())
        return purge_id(self.realm, self.identifier.catalog, self.table.table_uuid)

    def to_payload(self) -> str:
        """The `task_payload` of delegation-service.txt §7, as JSON text."""
        return json.dumps(self.document(self.kind), sort_keys=True)

    @classmethod
    def of(cls, task: Task) -> Self:
        """The parameters of a stored task; MalformedRecord when its payload is none of ours."""
        try:
            return cls.of_stored(task.task_payload)
        except (ValueError, KeyError, TypeError) as error:
            raise MalformedRecord(f"task {task.task_id}: task_payload: {type(error).__name__}") from None


def purge_id(realm: str, catalog: str, table_uuid: str) -> str:
    """uuid5 of the RFC 8785 form of [realm, "TABLE_PURGE", catalog, lower-case table-uuid] (DESIGN §2)."""
    name = rfc8785.dumps([realm, KIND, catalog, table_uuid.lower()]).decode()
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"polaris-delegation:{name}"))


def identifier_text(identifier: TableIdentifier) -> str:
    """`purged_identifier`: a JSON array, for a dotted name cannot tell a level with a dot from two levels."""
    return json.dumps([identifier.catalog, *identifier.namespace, identifier.name], ensure_ascii=False)
