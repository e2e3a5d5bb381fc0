"""Requests for work on one table: parameters common to all operations, and the form that reads them."""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, Final, Generic, Self, TypeVar

from delegation.errors import GuardRefused
from delegation.removal.details import PRIORITY, id_of_parts, table_traits
from delegation.storage.locations import ForeignLocations
from delegation.tasks.errors import MalformedPayload
from delegation.tasks.life.lanes import Traits
from delegation.tasks.life.model import Status, Task
from delegation.tasks.life.policy import InvalidProperty
from delegation.tasks.options import (
    CALLBACK,
    DRY_RUN,
    AskedTask,
    OptionTable,
    RequestSources,
    callback_of,
    not_waited_for,
    text_option,
)
from delegation.wire.requests import TableRequest, TableState, files_of
from delegation.wire.tables import PLAN_PATTERN
from polaris_common.errors import printable

PLAN: Final = "plan"
PLAN_OPTION: Final = text_option(
    PLAN,
    PLAN_PATTERN.strip("^$"),
    "the id of a plan, as listed in a dry run's `plan_segments`, or of a plan that waits for approval",
    "The id of a dry run's plan.",
)
"""The option of all work that can be planned."""
_NOT_OF_THE_WORK: Final = frozenset({CALLBACK, PRIORITY})
_NAMES: Final = 5
_LONGEST_NAME: Final = 64


class TableWork(TableRequest):
    """Work on a known table, with the table's state when the request was accepted, without credentials.

    `work_task_type` and `plan_task_type` are the stored task types of the work and of its dry run. `does` states what
    the work does with its table, `began` when it first has an effect, and `half_done` why it must then be finished with
    its plan, and what to do. After a FAILURE with a code in `ends_plan` it must not be.
    """

    work_task_type: ClassVar[str]
    plan_task_type: ClassVar[str]
    does: ClassVar[str]
    began: ClassVar[str] = "its first delete"
    half_done: ClassVar[str] = "send the properties in the payload of the failed task"
    ends_plan: ClassVar[frozenset[str]] = frozenset()

    table: TableState

    @classmethod
    def of_body(cls, body: Any, *, realm: str, table: TableState) -> Self:
        """Return the work that a validated `wire.requests.ReceivedBody` about one table requests."""
        common, parameters = body.common_payload, body.operation_parameters
        return cls(
            realm=realm,
            identifier=parameters.table_identity.identifier,
            table=table,
            table_entity_id=parameters.table_identity.table_entity_id,
            properties=parameters.properties,
            correlation_id=common.polaris_correlation_id,
            requested_at=common.request_timestamp_utc,
        )

    @property
    def is_dry_run(self) -> bool:
        """Whether the work ends with its plan (`properties.dry-run`)."""
        return self.properties.get(DRY_RUN, "false").lower() == "true"

    @property
    def task_type(self) -> str:
        return self.plan_task_type if self.is_dry_run else self.work_task_type

    @property
    def payload_version(self) -> int:
        return 1

    @property
    def task_id(self) -> str:
        """The id, one per table uuid, so that no two tasks do this work for one table at the same time. A dry run has
        another one for each name, state or option of the table."""
        if not self.is_dry_run:
            return self.id_of(self.realm, self.identifier.catalog, self.table.table_uuid)
        name = [*self.identifier.namespace, self.identifier.name]
        parts = [self.identifier.catalog, self.table.table_uuid.lower(), name, self.table.metadata_location]
        return id_of_parts([self.realm, self.task_type, *parts, self.of_the_work()])

    @classmethod
    def id_of(cls, realm: str, catalog: str, table_uuid: str) -> str:
        return id_of_parts([realm, cls.work_task_type, catalog, table_uuid.lower()])

    def of_the_work(self) -> dict[str, str]:
        """Return the properties that decide what is done, not when and who is notified."""
        return {name: value for name, value in self.properties.items() if name not in _NOT_OF_THE_WORK}

    def to_payload(self) -> str:
        """Return `task_payload` as JSON text (Delegation Service proposal, Persistence)."""
        return json.dumps(self.document(self.task_type), sort_keys=True)

    @classmethod
    def of(cls, task: Task) -> Self:
        """Read a stored task's parameters. Raises MalformedPayload if its payload is not of such work."""
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

    def is_same(self, _task: Task, current: Self) -> bool:
        """Return whether a task with the parameters `current` does what this request requires."""
        return current.of_the_work() == self.of_the_work()

    def replays(self, _task: Task) -> bool:
        """Return whether a SUCCESS did what is requested. Most work finds more to do later, or nothing."""
        return False

    def resumes(self, task: Task) -> bool:
        """Return whether ended work is resumed with its plan: a FAILURE after its first effect. If its payload is
        unreadable, its plan has the identifier too, and is refused for another one."""
        if task.status is not Status.FAILURE or task.effects_began_ts is None or task.error_code in self.ends_plan:
            return False
        current = self.readable(task)
        return current is None or current.identifier == self.identifier

    def obstacle(self, task: Task) -> str | None:
        """Return why the request conflicts with the task and what to do next, None if it can attach to it or start it.
        Work that failed after its first effect must be finished with its plan, which alone knows the rest. Ended work
        that cannot be read is replaced. A dry run has no conflicts, because its id names all that matters."""
        if task.status is Status.SUCCESS or self.is_dry_run:
            return None
        current = self.readable(task)
        if task.is_terminal:
            if current is None or self.is_same(task, current) or not self.resumes(task):
                return None
            other = self._other_properties(current)
            return f"failed after {self.began} ({task.error_code}) with {other}: {self.half_done}"
        if current is None:
            return f"is {task.status} and its payload cannot be read. Wait until it ends, then send this request again"
        if current.identifier != self.identifier:
            return (
                f"is {task.status} and {self.does} {printable(str(current.identifier))}, a clone with the same "
                "table-uuid. Clones share one task. Wait until it ends, then send this request again"
            )
        if current.of_the_work() == self.of_the_work():
            return None
        return (
            f"is {task.status} with {self._other_properties(current)}. Wait until it ends, or send the request with "
            "the task's properties"
        )

    def _other_properties(self, current: "TableWork") -> str:
        before, now = current.of_the_work(), self.of_the_work()
        names = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
        listed = ", ".join(printable(name, _LONGEST_NAME) for name in names[:_NAMES])
        return f"other properties ({listed}{', …' if len(names) > _NAMES else ''})"


Work = TypeVar("Work", bound=TableWork)

TableCheck = Callable[[Any], object]
"""Raises the error of a guard that refuses a loaded table (`polaris.model.LoadedTable`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableForm(Generic[Work]):
    """RequestForm of work on one table, which the service loads. No caller waits for it, because it waits for others.

    `work_type` is the work with the table's state, `known` what admission knows of all such work. `limits` reads the
    service's properties and raises InvalidProperty. `checks` raises the errors of a request's options by these limits.
    It returns a function that raises those of its table, so that what a guard would refuse is refused here.
    """

    operations: tuple[str, ...]
    body: type[Any]
    options: OptionTable
    running: str
    work_type: type[Work]
    known: Traits = field(default_factory=Traits)
    limits: Callable[[Mapping[str, str]], Any]
    checks: Callable[[Mapping[str, str], Any, RequestSources], TableCheck]
    deletes: ClassVar[bool] = False
    is_waited_for: ClassVar[bool] = False
    waits_with_table: ClassVar[bool] = False

    def request(self, wanted: TableRequest, *, synchronous: bool) -> Mapping[str, Any]:  # noqa: ARG002
        """See RequestForm.request. Only the identity."""
        return wanted.model_copy(update={"table": None}).document(self.operations[0])

    def check(self, properties: Mapping[str, str]) -> None:
        self.limits(properties)

    def refuse_waiting(self, body: Any) -> None:  # noqa: ARG002
        """See RequestForm.refuse_waiting. Raises DelegationError (INVALID_REQUEST) for every such request."""
        raise not_waited_for(self.operations[0])

    def asked(self, body: Any, document: Mapping[str, Any], sources: RequestSources) -> AskedTask:
        """See RequestForm.asked. Without its state the table is loaded, and refused here if a guard would refuse it.
        Raises DelegationError (PROPERTY_NOT_ALLOWED), and the errors of `checks` and of the catalog."""
        parameters = body.operation_parameters
        identifier, table = parameters.table_identity.identifier, parameters.table
        limits = _limits_of(self.limits, sources)
        check = self.checks(parameters.properties, limits, sources)
        callback = callback_of(parameters.properties, sources.callbacks())
        sources.check_catalog(identifier.catalog)
        if table is not None:
            metadata = document["operation_parameters"]["metadata"]
        else:
            # The snapshots of refs suffice for the guards; the task reads all of them.
            loaded = sources.catalog().load_table(identifier, vend=False, snapshots="refs")
            check(loaded)
            table, metadata = TableState.of(loaded), loaded.metadata
        check_storage(table.metadata_location)
        work = self.work_type.of_body(body, realm=sources.realm, table=table)
        files = files_of(metadata)
        is_small = files is None or files <= sources.small_files
        payload = work.to_payload()
        return AskedTask(
            task_id=self.plan_id(work, limits) if work.is_dry_run else work.task_id,
            task_type=work.task_type,
            payload=payload,
            obstacle=work.obstacle,
            replays=work.replays,
            resumes=work.resumes,
            payload_version=work.payload_version,
            traits=table_traits(payload, self.known, is_small=is_small),
            callback=callback,
        )

    def plan_id(self, work: Work, limits: Any) -> str:  # noqa: ARG002
        """Return the id of a dry run."""
        return work.task_id


@lru_cache(maxsize=8)
def _limits_of(read: Callable[[Mapping[str, str]], Any], sources: RequestSources) -> Any:
    return read(sources.properties)


def check_storage(location: str) -> None:
    """Raise UnsupportedLocation for a table in another storage than S3. The task finds everything else."""
    from delegation.storage.locations import AmbiguousPath, parse  # noqa: PLC0415 - not to start the API

    with suppress(AmbiguousPath):
        parse(location)


FOREIGN_LOCATIONS: Final = "delegation.foreign-locations"
_NONE: Final = "none"
_MOST: Final = 100


def foreign_locations(properties: Mapping[str, str]) -> ForeignLocations:
    """Return the locations where nothing is deleted. Raises InvalidProperty."""
    text = properties.get(FOREIGN_LOCATIONS, _NONE).strip()
    places = [] if text == _NONE else [place.strip() for place in text.split(",")]
    for place in places:
        if not place.endswith("/"):
            raise InvalidProperty(
                FOREIGN_LOCATIONS, f"{place!r} is not a location with a slash at its end, such as s3://lake/theirs/"
            )
    if len(places) > _MOST:
        raise InvalidProperty(FOREIGN_LOCATIONS, f"names more than {_MOST} places")
    try:
        return ForeignLocations.of(places)
    except GuardRefused as error:
        raise InvalidProperty(FOREIGN_LOCATIONS, str(error)) from None
