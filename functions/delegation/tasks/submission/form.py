"""How requests ask for tasks of one type: the form that the API reads, checks and describes. Loaded with the first
request, because most processes accept none, and implemented beside the type."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from delegation.tasks.life.lanes import Traits
from delegation.tasks.life.model import Task
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


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedTask:
    """The task that a request asks for, and how that relates to the stored task which has its id. Two requests for the
    same work have the same id. `task_type` is the stored one, which may be another than the request names. None as
    `traits` leaves them to the payload, as `deadline` to the properties. `obstacle` returns why the request
    conflicts with a task, and what to do next; None if it can attach or start another run. `replays` is whether a
    SUCCESS did what is asked for, `resumes` whether one that ended resumes where it stopped."""

    task_id: str
    task_type: str
    payload: str
    obstacle: Callable[[Task], str | None]
    replays: Callable[[Task], bool]
    resumes: Callable[[Task], bool]
    payload_version: int = 1
    traits: Traits | None = None
    callback: str | None = None
    deadline: timedelta | None = None


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
    def running(self) -> str:
        """What a command states while it waits for a table (`{}`)."""

    @property
    def deletes(self) -> bool:
        """Whether the table's files are gone afterwards, so that a command asks first, and states what remains."""

    @property
    def is_waited_for(self) -> bool:
        """Whether a caller may wait for the outcome of such a request in one call."""

    @property
    def waits_with_table(self) -> bool:
        """Whether the request of a caller that waits has to have the loaded table."""

    def request(self, wanted: Any, *, synchronous: bool) -> Mapping[str, Any]:
        """Return the body to send for a `wire.requests.TableRequest`, whose `table` is loaded if that is needed."""

    def check(self, properties: Mapping[str, str]) -> None:
        """Raise InvalidProperty for a property of the service that limits such requests and is unknown or wrong."""

    def refuse_waiting(self, body: Any) -> None:
        """Raise the error of a request whose caller cannot wait for the outcome."""

    def asked(self, body: Any, document: Mapping[str, Any], sources: RequestSources) -> AskedTask:
        """Return what a valid body asks for; `document` is the body as JSON. Raises the errors of its options."""
