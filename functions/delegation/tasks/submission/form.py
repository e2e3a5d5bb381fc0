"""How requests ask for tasks of one type: the form that the API reads, checks and describes. Loaded with the first
request, because most processes accept none, and implemented beside the type."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol

from delegation.identifiers import TableIdentifier
from delegation.tasks.life.lanes import Traits
from delegation.tasks.life.model import Labels, Task
from delegation.tasks.submission.options import OptionTable
from delegation.timestamps import utc_now
from polaris_common.errors import DelegationError


def not_waited_for(operation: str) -> DelegationError:
    return DelegationError(
        f"no caller can wait for {operation}; send it to POST /v1/tasks, and follow its task", code="INVALID_REQUEST"
    )


@dataclass(frozen=True, slots=True, eq=False)
class RequestSources:
    """What reading a request may need of the deployment. `properties` are the service's, `callbacks` returns the names
    that a request may pick. A task with more than `small_files` files is queued as a large one. `catalog` is called for
    a request without the loaded table; `check_catalog` raises for one whose tables the service cannot delete. `clock`
    returns UTC."""

    realm: str
    properties: Mapping[str, str]
    callbacks: Callable[[], Collection[str]]
    catalog: Callable[[], Any]
    small_files: int = 1_000
    clock: Callable[[], datetime] = utc_now
    check_catalog: Callable[[str], object] = bool


@dataclass(frozen=True, slots=True)
class WantedTask:
    """What a person asks for at a command line: the task of one table, whose `table` is loaded if that is needed."""

    realm: str
    identifier: TableIdentifier
    properties: Mapping[str, str] = field(default_factory=dict)
    correlation_id: str | None = None
    requested_at: datetime | None = None
    table: Any = None


@dataclass(frozen=True, slots=True)
class RequestWords:
    """What a command states about such requests: `running` while it waits for a table (`{}`). `deletes`: the table's
    files are gone afterwards, so it asks before, and states what remains to be done."""

    running: str
    deletes: bool = False


class Asked(Protocol):
    """The task that a request asks for, and how that relates to the task which has its id."""

    @property
    def task_id(self) -> str:
        """The id: two requests for the same work have the same."""

    @property
    def task_type(self) -> str:
        """The stored task type, which may be another one than the request names."""

    @property
    def payload(self) -> str:
        """The stored payload."""

    @property
    def payload_version(self) -> int:
        """The version of the payload."""

    @property
    def traits(self) -> Traits | None:
        """What its admission is decided by, None if the payload states that."""

    @property
    def labels(self) -> Labels | None:
        """What lists find it by, None if its task type finds that in the payload."""

    @property
    def callback(self) -> str | None:
        """The callback that is sent when the task ends."""

    @property
    def deadline(self) -> timedelta | None:
        """How long after its submission the task has to be done, None if the properties alone decide."""

    def obstacle(self, task: Task) -> str | None:
        """Return why the request conflicts with this task, and what to do next; None if it can attach or start anew."""

    def replays(self, task: Task) -> bool:
        """Return whether this task, a SUCCESS, did what is asked for."""

    def resumes(self, task: Task) -> bool:
        """Return whether this task, which ended, resumes where it stopped when it is submitted again."""


class RequestForm(Protocol):
    """Reads the requests for tasks of one type. A form has no state."""

    @property
    def operations(self) -> Sequence[str]:
        """The names by which requests ask for the operation (`operation_type`)."""

    @property
    def body(self) -> type[Any]:
        """The model of a body, a `wire.requests.ReceivedBody`."""

    @property
    def options(self) -> OptionTable:
        """The options that requests and the operator may set."""

    @property
    def words(self) -> RequestWords:
        """What a command states about the requests."""

    @property
    def is_waited_for(self) -> bool:
        """Whether a caller may wait for the outcome of such a request in one call."""

    @property
    def waits_with_table(self) -> bool:
        """Whether the request of a caller that waits has to have the loaded table."""

    def request(self, wanted: WantedTask, *, synchronous: bool) -> Mapping[str, Any]:
        """Return the body of a request."""

    def check(self, properties: Mapping[str, str]) -> None:
        """Raise InvalidProperty for a property of the service that limits such requests and is unknown or wrong."""

    def refuse_waiting(self, body: Any) -> None:
        """Raise the error of a request whose caller cannot wait for the outcome."""

    def asked(self, body: Any, document: Mapping[str, Any], sources: RequestSources) -> Asked:
        """Return what a valid body asks for; `document` is the body as JSON. Raises the errors of its options."""
