"""A task type as one value: what submitting, storing, retrying, counting and showing its tasks needs. `TaskTypes` are a
deployment's; `wiring.types` lists them. Code for all types asks the value and names no type."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from pydantic import BaseModel

from delegation.metrics import Metric
from delegation.tasks.life.lanes import Traits, TraitsOf
from delegation.tasks.life.model import Labels, LabelsOf, Task

if TYPE_CHECKING:
    from delegation.tasks.submission.form import RequestForm


class KnownTypes(dict[str, int]):
    """Task types, each with the newest version of its payload that the deployment reads."""


def runs(task_types: Collection[str], task: Task) -> bool:
    """Return whether a task is of a known type and its payload of a known version; of a plain collection, version 1."""
    if task.task_type not in task_types:
        return False
    newest = task_types[task.task_type] if isinstance(task_types, KnownTypes) else 1
    return task.payload_version <= newest


class DetailRules(Protocol):
    """What becomes of a task's details when it is submitted again."""

    def resumes(self, task: Task) -> bool:
        """Return whether a FAILURE that is submitted again resumes where it stopped and keeps its details."""

    def restarted(self, details: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the details with which a task starts from the beginning; those of a newer release must be kept."""


class KeptDetails:
    """DetailRules of task types without rules: keep all details, for any of them may be a newer release's."""

    def resumes(self, task: Task) -> bool:
        return task.effects_began_ts is not None

    def restarted(self, details: Mapping[str, Any]) -> Mapping[str, Any]:
        return details


@dataclass(frozen=True, slots=True)
class Measured:
    """How far the work of a task is, as its type's details have it: `done` of `total` things, `per_second` now."""

    done: int
    total: int | None
    unit: str
    per_second: int | None = None


def _unmeasured(_task: Task) -> None: ...


def _no_result(_task: Task) -> None: ...


def _no_receipt(_task: Task) -> None: ...


def _no_next_step(_task: Task) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskType:
    """One task type, by the name that its tasks are stored under.

    `labels` are what lists and pauses find a task by, None if its payload has none. `traits` decide its admission.
    `counted` are the details in the line of an end, each with the metric that adds them up, if any. `retry` are the
    defaults of `delegation.retry.NAME.*`. Housekeeping never waits for a place behind callers' tasks, and counts
    against no cap. `payload_version` is the newest that this release reads. `requests` loads the form of its requests,
    None if no request may ask for one. `measured` is how far a task is, `execution_result` the SUCCESS in the answer to
    a waiting caller, `receipt_key` the receipt's key in the plan bucket, `next_step` what a person must decide after
    the end, with commands. `properties` is the prefix of the type's own properties. The service itself submits a type
    that `is_own`. `runner` names the function, as `module:function`, that makes the type's behaviors in a process that
    runs tasks, `waited_for` in one whose caller waits; without it another type's behavior runs it. `forecast` names the
    function that forecasts a plan's cost, as JSON. A job run may write to `folders` of the record bucket beside its
    task's own.
    """

    name: str
    payload_version: int = 1
    labels: LabelsOf | None = None
    traits: TraitsOf | None = None
    details: DetailRules = field(default_factory=KeptDetails)
    counted: Mapping[str, Metric | None] = field(default_factory=dict)
    retry: Mapping[str, str] = field(default_factory=dict)
    is_housekeeping: bool = False
    is_own: bool = False
    properties: str | None = None
    runner: str | None = None
    waited_for: str | None = None
    forecast: str | None = None
    folders: tuple[str, ...] = ()
    requests: "Callable[[], RequestForm] | None" = None
    measured: Callable[[Task], Measured | None] = _unmeasured
    execution_result: Callable[[Task], BaseModel | None] = _no_result
    receipt_key: Callable[[Task], str | None] = _no_receipt
    next_step: Callable[[Task], str | None] = _no_next_step

    def run_by(self, runner: str, *, waited_for: str | None = None) -> "TaskType":
        return replace(self, runner=runner, waited_for=waited_for or runner)

    def forecast_by(self, forecast: str) -> "TaskType":
        return replace(self, forecast=forecast)


class TaskTypes(dict[str, TaskType]):
    """The task types of a deployment by name. A task of another type belongs to a newer one, and nothing is known."""

    def __init__(self, types: Iterable[TaskType] = ()) -> None:
        super().__init__((one.name, one) for one in types)

    def of(self, task: Task) -> TaskType:
        """Return a task's type, one without any knowledge for a name that is not listed."""
        return self.get(task.task_type) or TaskType(name=task.task_type)

    def labels(self, task: Task) -> Labels:
        """Return what a task's type finds in its payload: its target, its request's correlation id, its realm."""
        labels_of = self.of(task).labels
        return Labels() if labels_of is None else labels_of(task.task_payload)

    def labelled(self, task: Task) -> Task:
        """Return a task with the digests of its labels; of a type without labels the same task."""
        labels_of = self.of(task).labels
        return task if labels_of is None else task.evolve(**labels_of(task.task_payload).keys())

    def traits(self, task: Task) -> Traits:
        traits_of = self.of(task).traits
        return Traits() if traits_of is None else traits_of(task.task_payload)

    def restarted(self, task: Task, *, resumes: bool | None = None) -> Mapping[str, Any] | None:
        """Return the details with which a resubmitted task starts, None if it resumes where it stopped. Its type's
        rules decide, unless `resumes` is given."""
        rules = self.of(task).details
        resumes = rules.resumes(task) if resumes is None else resumes
        return None if resumes else rules.restarted(task.details)

    @property
    def counted(self) -> Mapping[str, Metric | None]:
        """The details that the lines of ends show, of all types."""
        return {name: metric for one in self.values() for name, metric in one.counted.items()}

    @property
    def known(self) -> KnownTypes:
        """The types, each with the newest version of its payloads that this release reads."""
        return KnownTypes({name: one.payload_version for name, one in self.items()})

    @property
    def own(self) -> frozenset[str]:
        """The names of the types whose tasks the service submits itself."""
        return frozenset(name for name, one in self.items() if one.is_own)

    @property
    def prefixes(self) -> tuple[str, ...]:
        """The beginnings of the names of properties that are of one type."""
        return tuple(one.properties for one in self.values() if one.properties is not None)

    @property
    def forms(self) -> "Sequence[RequestForm]":
        """The forms of the requests that callers may send, in the order of the types."""
        return [one.requests() for one in self.values() if one.requests is not None]

    @property
    def forms_by_operation(self) -> "Mapping[str, RequestForm]":
        """The forms by the names by which requests ask for an operation, in the order of the types."""
        return {name: form for form in self.forms for name in form.operations}

    @property
    def retry_properties(self) -> Mapping[str, str]:
        return {
            f"delegation.retry.{one.name}.{name}": value for one in self.values() for name, value in one.retry.items()
        }


NO_TYPES: Final = TaskTypes()
"""Nothing is known of any task, as in a process that only moves tasks."""
