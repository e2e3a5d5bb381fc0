"""Requests for work on one table that the service loads itself: parameters, the form that reads them."""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Generic, Self, TypeVar

from delegation.errors import GuardRefused
from delegation.removal.details import id_of_parts, table_traits
from delegation.storage.locations import ForeignLocations
from delegation.tasks.errors import MalformedPayload
from delegation.tasks.life.lanes import Traits
from delegation.tasks.life.model import Task
from delegation.tasks.life.policy import InvalidProperty
from delegation.tasks.submission.form import AskedTask, RequestSources, WantedTask, not_waited_for
from delegation.tasks.submission.options import CALLBACK, DRY_RUN, OptionTable, callback_of
from delegation.wire.requests import TableState, files_of
from delegation.wire.tables import IdentifiedRequest
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


Work = TypeVar("Work", bound=TableWork)

TableCheck = Callable[[Any], None]
"""Raises the error of a guard that refuses a loaded table (`polaris.model.LoadedTable`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableForm(Generic[Work]):
    """RequestForm of work on one table whose outcome no caller waits for, since it waits for other tables.

    `request_type` is a request, `work_type` the work with the table's state, `known` what admission knows of all
    such work; `obstacle`, `replays` and `resumes` are those of an AskedTask. `limits` raises InvalidProperty for a
    property of the service. `checks` raises the errors of a request's options and returns what raises those of its
    table, so that what a guard would refuse is refused here.
    """

    body: type[Any]
    options: OptionTable
    running: str
    request_type: type[IdentifiedRequest]
    work_type: type[Work]
    known: Traits
    obstacle: Callable[[Task, Work], str | None]
    replays: Callable[[Task, Work], bool]
    resumes: Callable[[Task, Work], bool]
    limits: Callable[[Mapping[str, str]], Any]
    checks: Callable[[IdentifiedRequest, RequestSources], TableCheck]
    deletes: ClassVar[bool] = False
    is_waited_for: ClassVar[bool] = False
    waits_with_table: ClassVar[bool] = False

    @property
    def operations(self) -> tuple[str, ...]:
        return (self.request_type.operation,)

    def request(self, wanted: WantedTask, *, synchronous: bool) -> Mapping[str, Any]:  # noqa: ARG002
        return self.request_type(
            realm=wanted.realm,
            identifier=wanted.identifier,
            properties=wanted.properties,
            correlation_id=wanted.correlation_id,
            requested_at=wanted.requested_at,
        ).request()

    def check(self, properties: Mapping[str, str]) -> None:
        self.limits(properties)

    def refuse_waiting(self, body: Any) -> None:  # noqa: ARG002
        """See RequestForm.refuse_waiting; raises DelegationError (INVALID_REQUEST) for every such request."""
        raise not_waited_for(self.request_type.operation)

    def asked(
        self,
        body: Any,
        document: Mapping[str, Any],  # noqa: ARG002
        sources: RequestSources,
    ) -> AskedTask:
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
        return AskedTask(
            task_id=work.task_id,
            task_type=work.task_type,
            payload=payload,
            obstacle=lambda task: self.obstacle(task, work),
            replays=lambda task: self.replays(task, work),
            resumes=lambda task: self.resumes(task, work),
            payload_version=work.payload_version,
            traits=traits,
            callback=callback,
        )


def check_storage(location: str) -> None:
    """Raise UnsupportedLocation for a table in another storage than S3; what else is odd the task finds."""
    from delegation.storage.locations import AmbiguousPath, parse  # noqa: PLC0415 - not to start the API

    with suppress(AmbiguousPath):
        parse(location)


FOREIGN_LOCATIONS: Final = "delegation.foreign-locations"
_NONE: Final = "none"
_MOST: Final = 100


def foreign_locations(properties: Mapping[str, str]) -> ForeignLocations:
    """Return the locations where nothing is deleted; raise InvalidProperty."""
    text = properties.get(FOREIGN_LOCATIONS, _NONE).strip()
    places = [] if text == _NONE else [one.strip() for one in text.split(",")]
    for one in places:
        if not one.endswith("/"):
            raise InvalidProperty(
                FOREIGN_LOCATIONS, f"{one!r} is not a place such as s3://lake/theirs/, which ends in /"
            )
    if len(places) > _MOST:
        raise InvalidProperty(FOREIGN_LOCATIONS, f"names more than {_MOST} places")
    try:
        return ForeignLocations.of(places)
    except GuardRefused as error:
        raise InvalidProperty(FOREIGN_LOCATIONS, str(error)) from None
