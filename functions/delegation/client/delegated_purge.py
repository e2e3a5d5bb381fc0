"""The caller's side of a delegated purge as a reliable task (Delegation Service proposal, Asynchronous Task
Framework)."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from delegation.client.client import DelegationClient
from delegation.client.errors import Conflict
from delegation.client.executor import Authorise, TableCatalog, needed_by, refuse_dry_run, require_authorised
from delegation.identifiers import TableIdentifier
from delegation.timestamps import utc_now

if TYPE_CHECKING:
    from delegation.client.purge_task import PurgeOrder, PurgeOutcome
    from delegation.tasks.life.model import Task
    from delegation.tasks.submit import Submitted, Tasks
    from delegation.tasks.work.behaviors import Behavior


@dataclass(frozen=True, slots=True)
class DelegatedPurge:
    """A task of the caller's own task framework that has the service purge a table, and then drops the table.

    Call `submit` where the drop is requested; a worker runs `behavior`. `catalog` needs the privileges to load and drop
    tables. The task survives the loss of its worker at any call: its requests to the service have one idempotency key,
    those to the catalog may be repeated. The store in DynamoDB and the command `delegation worker` need the extra
    `service`; without it the constructor raises ExtraMissing.
    """

    client: DelegationClient
    catalog: TableCatalog
    realm: str
    _: KW_ONLY
    authorise: Authorise
    clock: Callable[[], datetime] = utc_now

    def __post_init__(self) -> None:
        with needed_by("DelegatedPurge"):
            import delegation.client.purge_task  # noqa: F401, PLC0415 - the extra may be missing

    def behavior(self) -> "Behavior[PurgeOrder, PurgeOutcome]":
        """Return the behavior of these tasks, for a worker (docs/workers.md)."""
        from delegation.client.purge_task import purge_task  # noqa: PLC0415 - the extra is there

        return purge_task(self.client, self.catalog, self.clock)

    def submit(
        self, tasks: "Tasks", identifier: TableIdentifier, *, properties: Mapping[str, str] | None = None
    ) -> "Submitted[PurgeOutcome]":
        """Store a task that purges the table as it is now and drops it; a repeat attaches to the same task. Raises
        NotAuthorised, ClientMisconfigured for a dry run, PolarisError if the table cannot be loaded, and the errors of
        the task store."""
        from delegation.client.purge_task import order_of  # noqa: PLC0415 - the extra is there

        refuse_dry_run(properties)
        require_authorised(self.authorise, identifier)
        table = self.catalog.load_table(identifier, vend=False)
        return tasks.submit(self.behavior(), order_of(self.realm, table, properties or {}))

    def cancel(self, tasks: "Tasks", task_id: str) -> "Task":
        """Cancel a task and the service's task that it waits for; return the former. May be repeated. Deleted files
        stay deleted; an ended task is no error. Raises the errors of the task store and, once the caller's task is
        cancelled, those of the service."""
        from delegation.client.purge_task import service_task_of  # noqa: PLC0415 - the extra is there

        task = tasks.handle(self.behavior(), task_id).cancel()
        waited_for = service_task_of(task)
        if waited_for is not None:
            with suppress(Conflict):
                self.client.cancel(waited_for)
        return task
