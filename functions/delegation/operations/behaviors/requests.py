"""Requests for work on one table that the service loads itself: the form that reads them, and what they ask for."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, ClassVar, Generic, TypeVar

from delegation.operations.behaviors.parameters import TableWork
from delegation.operations.behaviors.task_types import table_traits
from delegation.tasks.life.admission.lanes import Traits
from delegation.tasks.life.model import Labels, Task
from delegation.tasks.submission.form import RequestSources, RequestWords, WantedTask, not_waited_for
from delegation.tasks.submission.options import OptionTable, callback_of
from delegation.wire.identified import IdentifiedRequest
from delegation.wire.requests import TableState, files_of

Work = TypeVar("Work", bound=TableWork)

TableCheck = Callable[[Any], None]
"""Raises the error of a guard that refuses a loaded table (`polaris.model.LoadedTable`)."""


@dataclass(frozen=True, slots=True)
class WorkRelation(Generic[Work]):
    """How work that is asked for relates to the task which has its id; see Asked for each of the questions."""

    obstacle: Callable[[Task, Work], str | None]
    replays: Callable[[Task, Work], bool]
    resumes: Callable[[Task, Work], bool]


@dataclass(frozen=True, slots=True)
class AskedWork(Generic[Work]):
    """Asked, of work on one table or of its plan (a dry run)."""

    work: Work
    relation: WorkRelation[Work]
    task_id: str
    task_type: str
    payload: str
    payload_version: int
    traits: Traits
    callback: str | None
    deadline: timedelta | None = None
    labels: Labels | None = None

    def obstacle(self, task: Task) -> str | None:
        """See Asked.obstacle."""
        return self.relation.obstacle(task, self.work)

    def replays(self, task: Task) -> bool:
        """See Asked.replays."""
        return self.relation.replays(task, self.work)

    def resumes(self, task: Task) -> bool:
        """See Asked.resumes."""
        return self.relation.resumes(task, self.work)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableForm(Generic[Work]):
    """RequestForm of work on one table whose outcome no caller waits for, since it waits for other tables.

    `request_type` is a request, `work_type` the work with the table's state, `known` what admission knows of all such
    work. `limits` raises InvalidProperty for a property of the service. `checks` raises the errors of a request's
    options and returns what raises those of its table, so that what a guard would refuse is refused here.
    """

    body: type[Any]
    options: OptionTable
    words: RequestWords
    request_type: type[IdentifiedRequest]
    work_type: type[Work]
    known: Traits
    relation: WorkRelation[Work]
    limits: Callable[[Mapping[str, str]], Any]
    checks: Callable[[IdentifiedRequest, RequestSources], TableCheck]
    is_waited_for: ClassVar[bool] = False
    waits_with_table: ClassVar[bool] = False

    @property
    def operations(self) -> tuple[str, ...]:
        """See RequestForm.operations."""
        return (self.request_type.operation,)

    def request(self, wanted: WantedTask, *, synchronous: bool) -> Mapping[str, Any]:  # noqa: ARG002
        """See RequestForm.request."""
        return self.request_type(
            realm=wanted.realm,
            identifier=wanted.identifier,
            properties=wanted.properties,
            correlation_id=wanted.correlation_id,
            requested_at=wanted.requested_at,
        ).request()

    def check(self, properties: Mapping[str, str]) -> None:
        """See RequestForm.check."""
        self.limits(properties)

    def refuse_waiting(self, body: Any) -> None:  # noqa: ARG002
        """See RequestForm.refuse_waiting; raises DelegationError (INVALID_REQUEST) for every such request."""
        raise not_waited_for(self.request_type.operation)

    def asked(
        self,
        body: Any,
        document: Mapping[str, Any],  # noqa: ARG002
        sources: RequestSources,
    ) -> AskedWork[Work]:
        """See RequestForm.asked; the table is loaded from the catalog, and refused here if a guard would refuse it.

        Raises DelegationError (PROPERTY_NOT_ALLOWED), and the errors of `checks` and of the catalog.
        """
        request = self.request_type.of_payload(body)
        check = self.checks(request, sources)
        callback = callback_of(request.properties, sources.callbacks())
        # The snapshots of refs suffice for the guards; the task reads all of them.
        sources.check_catalog(request.identifier.catalog)
        loaded = sources.catalog().load_table(request.identifier, vend=False, snapshots="refs")
        check(loaded)
        check_storage(loaded.metadata_location)
        work = self.work_type(**{**dict(request), "realm": sources.realm, "table": TableState.of(loaded)})
        files = files_of(loaded.metadata)
        is_small = files is None or files <= sources.small_files
        payload = work.to_payload()
        traits = replace(table_traits(payload, self.known), is_small=is_small)
        return AskedWork(
            work, self.relation, work.task_id, work.task_type, payload, work.payload_version, traits, callback
        )


def check_storage(location: str) -> None:
    """Raise UnsupportedLocation for a table in another storage than S3; what else is odd the task finds."""
    from delegation.storage.locations import AmbiguousPath, parse  # noqa: PLC0415 - not to start the API

    with suppress(AmbiguousPath):
        parse(location)
