"""What operators do with a task: read its versions and its receipt, cancel it, retry it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from delegation.edge.api import paging
from delegation.edge.api.callers import admitted
from delegation.edge.api.endpoints import CANCEL, RECEIPT, RETRY, VERSIONS, Endpoint
from delegation.edge.api.routes import Dependencies, Event, Served, record_of, task_id_of
from delegation.edge.errors import ReceiptNotFound, TaskEnded, TaskNotFailed
from delegation.edge.telemetry import Telemetry
from delegation.tasks.errors import TaskNotFound
from delegation.tasks.life.model import Caller, Status, Task
from delegation.tasks.life.transitions import CANCELLED
from delegation.wire.responses import render_json
from delegation.wire.tasks import shown

_LARGEST_PAGE: Final = 100


@dataclass(frozen=True, slots=True)
class Management:
    """The operations on one task; the DelegationErrors that they raise are answered by `problems`."""

    deps: Dependencies
    telemetry: Telemetry

    def versions(self, event: Event, task_id: str) -> Served:
        """Return versions of a task, oldest first (Delegation Service proposal, Persistence)."""
        admitted(event, VERSIONS)
        found = task_id_of(task_id)
        page = paging.read(event, of=f"versions {found}", largest=_LARGEST_PAGE)
        after = int(page.after or 0)
        rows = self.deps.tasks.versions(found, after=after, limit=page.size + 1)
        if not rows and not after:
            raise TaskNotFound(found)
        shown_rows, more = rows[: page.size], len(rows) > page.size
        body = {
            "versions": [shown(row.public()) for row in shown_rows],
            "next_page_token": page.token(str(shown_rows[-1].version)) if more else None,
        }
        return self._served(VERSIONS, found, body)

    def receipt(self, event: Event, task_id: str) -> Served:
        """Return the receipt of a purge that ended; raises ReceiptNotFound."""
        admitted(event, RECEIPT)
        task = self.deps.tasks.get(task_id_of(task_id))
        found = self.deps.receipt(task)
        if found is None:
            raise ReceiptNotFound(task.task_id)
        self.telemetry.served(RECEIPT.operation, 200, task_id=task.task_id)
        return Served(200, found, {})

    def cancel(self, event: Event, task_id: str) -> Served:
        """Cancel a task; a repeat returns the cancelled task. Raises TaskEnded for one that ended otherwise."""
        caller = admitted(event, CANCEL)
        found = task_id_of(task_id)
        task = self.deps.tasks.cancel(found, by=Caller(client_id=caller.client_id, subject=caller.subject))
        if task.is_terminal and task.error_code != CANCELLED:
            raise TaskEnded(found, task.status)
        return self._record(CANCEL, task)

    def retry(self, event: Event, task_id: str) -> Served:
        """Retry a FAILURE with a fresh attempt budget, and dispatch it; raises TaskNotFailed for any other task."""
        caller = admitted(event, RETRY)
        found = task_id_of(task_id)
        before = self.deps.tasks.get(found)
        if before.status is not Status.FAILURE:
            raise TaskNotFailed(found, before.status)
        task = self.deps.tasks.retry(found, by=Caller(client_id=caller.client_id, subject=caller.subject))
        return self._record(RETRY, self.deps.tasks.dispatch(found, task=task))

    def _record(self, endpoint: Endpoint, task: Task) -> Served:
        return self._served(endpoint, task.task_id, record_of(self.deps.tasks, task, self.deps.clock()))

    def _served(self, endpoint: Endpoint, task_id: str, body: Mapping[str, Any]) -> Served:
        self.telemetry.served(endpoint.operation, 200, task_id=task_id)
        return Served(200, render_json(body), {})
