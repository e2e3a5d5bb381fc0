"""Requests for purges: parameters, options and their limits, their relation to the stored task, and the answer."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from typing import Any, ClassVar, Final, Literal, Self, cast

from delegation.identifiers import TableIdentifier
from delegation.removal.choice import EngineChoice, RemovalSettings
from delegation.removal.details import PRIORITIES, PRIORITY, id_of_parts
from delegation.removal.errors import PlanLost
from delegation.removal.neighbourhood import OverlapScan
from delegation.removal.purge.errors import PlanOutdated
from delegation.removal.purge.task_type import PLAN_TASK_TYPE, PREFIX, TASK_TYPE, PurgeDetails, state_of
from delegation.removal.requests import PLAN, PLAN_OPTION, TableCheck, TableForm, TableWork
from delegation.tasks.life.model import Status, Task
from delegation.tasks.life.policy import InvalidProperty, duration_property
from delegation.tasks.options import (
    CALLBACK_OPTION,
    DRY_RUN,
    DRY_RUN_OPTION,
    InvalidOption,
    Option,
    OptionTable,
    RequestSources,
    SetBy,
    SetLimits,
)
from delegation.wire.requests import TableRequest
from delegation.wire.responses import ExecutionResult, KeptFiles
from delegation.wire.tables import OPERATIONS, PurgePayload, PurgeRequest

ReferenceMode = Literal["index", "location", "namespace"]
_KEEPING = ("damaged", "unsupported", "ambiguous", "neighbour")


@dataclass(frozen=True, slots=True)
class PurgeOptions:
    """The caller's choices (`operation_parameters.properties`). The defaults delete the least.

    `outside`: files outside the table's locations. `uncovered`: files that the credentials do not cover. `shared`:
    files that a neighbour table references. `overlap_scan`: where to search for neighbour tables. `versioned`: buckets
    where a delete frees nothing. `execute_plan`: the id of an existing plan. `engine`: None lets the estimate choose.
    The others are the operator's: ignore `gc.enabled=false`, try a delete before the first real one, and read format
    versions that this release may not read completely. The last four keep what cannot be purged and purge the rest:
    lost or corrupt manifests and lists, files outside the table's storage or encrypted, ambiguous paths, and the
    unknown files of an unreadable neighbour table.
    """

    outside: Literal["keep", "refuse", "delete"] = "keep"
    uncovered: Literal["refuse", "keep"] = "refuse"
    shared: Literal["subtract", "refuse"] = "subtract"
    overlap_scan: OverlapScan = "namespace"
    versioned: Literal["report", "refuse"] = "report"
    remove_directory_markers: bool = False
    engine: EngineChoice | None = None
    dry_run: bool = False
    execute_plan: str | None = None
    gc_disabled: Literal["refuse", "ignore"] = "refuse"
    probe: bool = True
    experimental_format: bool = False
    references: ReferenceMode = "index"
    damaged: Literal["refuse", "keep"] = "refuse"
    unsupported: Literal["refuse", "keep"] = "refuse"
    ambiguous: Literal["refuse", "keep"] = "refuse"
    neighbour: Literal["refuse", "report"] = "refuse"

    def recorded(self) -> dict[str, Any]:
        """Return the options for the receipt, whose format has `remove_directory_markers` as `delete_markers`. Options
        that keep what cannot be purged are included if set. `references` is left out, because a receipt lists the
        catalogs that were checked."""
        names = {"remove_directory_markers": "delete_markers"}
        unset = {"references", *(name for name in _KEEPING if getattr(self, name) == "refuse")}
        return {names.get(name, name): value for name, value in asdict(self).items() if name not in unset}


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeSettings(RemovalSettings):
    """The operator's numbers. Without Spark jobs (`has_spark`), purges that need them are refused. An attempt extends a
    plan by at most `most_extensions` segments, each for the commits since the last comparison. Counting to choose an
    engine ends after `counting_seconds`."""

    counting_seconds: float = 20.0
    neighbours_per_second: float = 50.0
    most_extensions: int = 10


_MAX_AGE: Final = "reference-max-age"
_INTERVAL: Final = "reference-refresh-interval"
_CATALOGS: Final = "reference-catalogs"
_LOADS: Final = "reference-loads-per-second"
_NONE: Final = frozenset({"0", "0s", "PT0S"})
_MOST_LOADS: Final = 100_000
REFERENCE_SETTINGS: Final = frozenset({_MAX_AGE, _INTERVAL, _CATALOGS, _LOADS})
"""Their names after `delegation.purge.`."""


@dataclass(frozen=True, slots=True)
class ReferenceSettings:
    """How the index is refreshed, and which catalogs are checked besides the task's own. The recurring task refreshes
    it every `refresh_interval`. A purge makes a pass or waits for one that started after its moment, unless the last
    one is at most `max_age` old; 0 is never. A pass loads at most `loads_per_second` tables."""

    max_age: timedelta = timedelta(0)
    refresh_interval: timedelta = timedelta(hours=1)
    catalogs: tuple[str, ...] = ()
    loads_per_second: int = 500

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Read the settings among the service's properties. Raises InvalidProperty."""
        settings = cls()
        ages = {_MAX_AGE: settings.max_age, _INTERVAL: settings.refresh_interval}
        for name in ages:
            full = f"delegation.purge.{name}"
            text = properties.get(full, "").strip()
            if full in properties and not (name == _MAX_AGE and text in _NONE):
                ages[name] = duration_property(full, text)
        listed = properties.get(f"delegation.purge.{_CATALOGS}")
        catalogs = () if listed is None else tuple(name.strip() for name in listed.split(","))
        if not all(catalogs):
            raise InvalidProperty(f"delegation.purge.{_CATALOGS}", f"{listed!r} has an empty name")
        loads = properties.get(f"delegation.purge.{_LOADS}", str(settings.loads_per_second)).strip()
        if not (loads.isascii() and loads.isdigit() and 0 < int(loads) <= _MOST_LOADS):
            raise InvalidProperty(f"delegation.purge.{_LOADS}", f"{loads!r} is not a number from 1 to {_MOST_LOADS}")
        return cls(ages[_MAX_AGE], ages[_INTERVAL], catalogs, int(loads))

    def of(self, catalog: str) -> tuple[str, ...]:
        """Return every catalog that a purge of a table in `catalog` checks, its own first."""
        return (catalog, *(name for name in self.catalogs if name != catalog))


def _limited(name: str, values: tuple[str, ...], loosest: str, meaning: str) -> Option:
    """Return a caller's option whose loosest value the operator sets. Deleting more or checking less is looser."""
    return Option(name=name, by=SetBy.BOTH, values=values, loosest=loosest, meaning=meaning)


def _fixed(name: str, values: tuple[str, ...], meaning: str) -> Option:
    """Return an option of the operator alone: it protects other tables, or leaves files that nothing names."""
    return Option(name=name, by=SetBy.OPERATOR, values=values, meaning=meaning)


OPTIONS: Final = OptionTable(
    PREFIX,
    (
        Option(
            name="outside",
            by=SetBy.BOTH,
            values=("refuse", "keep", "delete"),
            setting="outside-loosest",
            loosest="keep",
            default="refuse",
            default_setting="outside",
            meaning="The loosest value of `outside` that a request may choose.",
            default_meaning="The default for files outside the table's locations: `refuse`, `keep`, `delete`.",
        ),
        _limited(
            "uncovered",
            ("refuse", "keep"),
            "refuse",
            "If no vended credential covers a file: `refuse` the purge, or `keep` the file.",
        ),
        _limited(
            "shared",
            ("refuse", "subtract"),
            "subtract",
            "If another table references a file: `refuse` the purge, or `subtract` the file from the plan.",
        ),
        _limited(
            "overlap-scan",
            ("catalog", "namespace"),
            "namespace",
            "Where a purge looks for overlapping tables: `namespace` or `catalog`.",
        ),
        _limited(
            "versioned",
            ("refuse", "report"),
            "report",
            "If the bucket is versioned: `refuse` the purge, or `report` it.",
        ),
        Option(
            name="deleteMarkerFiles",
            by=SetBy.BOTH,
            values=("false", "true"),
            setting="delete-marker-files",
            loosest="true",
            default="false",  # directory markers are deleted only if a request chooses it
            meaning="Whether requests may delete directory markers.",
        ),
        Option(name="engine", by=SetBy.CALLER, values=("", "inline", "spark")),
        DRY_RUN_OPTION,
        Option(name=PRIORITY, by=SetBy.CALLER, values=PRIORITIES),
        # Object stores have no trash, so files cannot be moved there.
        Option(name="skipTrash", by=SetBy.CALLER, values=("true",)),
        PLAN_OPTION,
        CALLBACK_OPTION,
        _fixed(
            "gc-disabled",
            ("refuse", "ignore"),
            "If the table's `gc.enabled` is not true: `refuse` the purge, or `ignore` the property.",
        ),
        _fixed("delete-probe", ("true", "false"), "Whether the permission to delete is probed before the plan."),
        _fixed(
            "experimental-format",
            ("false", "true"),
            "Whether tables of unsupported format versions are purged.",
        ),
        _fixed(
            "references",
            ("index", "location", "namespace"),
            "Where a purge looks for other tables' references: `index`, `location` or `namespace`.",
        ),
        _fixed(
            "damaged",
            ("refuse", "keep"),
            "If a manifest is lost or corrupt: `refuse` the purge, or `keep` the manifest's files.",
        ),
        _fixed(
            "unsupported",
            ("refuse", "keep"),
            "If files are encrypted or in another storage: `refuse` the purge, or `keep` the files.",
        ),
        _fixed(
            "ambiguous",
            ("refuse", "keep"),
            "If a path is ambiguous: `refuse` the purge, or `keep` the file.",
        ),
        _fixed(
            "neighbour",
            ("refuse", "report"),
            "If a neighbour table is unreadable: `refuse` the purge, or `report` the table.",
        ),
    ),
    others=REFERENCE_SETTINGS,
    exclusive=((PLAN, DRY_RUN),),
)


_NAMES: Final = {"deleteMarkerFiles": "remove_directory_markers", "delete-probe": "probe"}
_FIELDS: Final = {
    by: {option.name: _NAMES.get(option.name, option.name.replace("-", "_")) for option in OPTIONS.by(by)}
    for by in SetBy
}
_FLAGS: Final = frozenset(option.name for option in OPTIONS.options if set(option.values) == {"true", "false"})


def fields_of(by: SetBy, chosen: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of PurgeOptions for these options, with the chosen values."""
    return {field: chosen[name] == "true" if name in _FLAGS else chosen[name] for name, field in _FIELDS[by].items()}


@dataclass(frozen=True, slots=True)
class Limits:
    """What requests may choose, and in `base` what only the operator sets."""

    requests: SetLimits = field(default_factory=OPTIONS.limits)
    base: PurgeOptions = field(default_factory=PurgeOptions)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Read the properties that start with PREFIX and ignore all others. Raises InvalidProperty."""
        limits = OPTIONS.limits(properties)
        return cls(limits, PurgeOptions(**fields_of(SetBy.OPERATOR, limits.fixed)))


class TablePurge(TableWork):
    """A purge of a known table."""

    work_task_type: ClassVar[str] = TASK_TYPE
    plan_task_type: ClassVar[str] = PLAN_TASK_TYPE
    does: ClassVar[str] = "purges"
    half_done: ClassVar[str] = (
        "the table is half deleted and can only be purged as it was begun. Send the properties in the payload of the "
        "failed task"
    )

    def dry_run_id(self, options: Mapping[str, Any]) -> str:
        """Return the id of a dry run: another one for another state, identifier or option of the table's purge. So the
        same request attaches or is replayed, and an approved plan is found again after a commit."""
        parts = [
            *(self.realm, PLAN_TASK_TYPE, self.identifier.catalog, self.table.table_uuid.lower()),
            [self.identifier.catalog, *self.identifier.namespace, self.identifier.name],
            self.table.metadata_location,
            dict(options),
        ]
        return id_of_parts(parts)

    def replays(self, task: Task) -> bool:
        """Return whether a task succeeded in purging this identifier at this metadata file or a later one, or in
        planning that."""
        if task.status is not Status.SUCCESS:
            return False
        if self.is_dry_run:
            return True  # its id names the identifier, the metadata file and the options
        details = PurgeDetails.of(task)
        if details.purged_identifier != identifier_text(self.identifier):
            return False
        location = self.table.metadata_location
        return details.purged_metadata_location == location or state_of(location) in details.purged_states

    def is_same(self, task: Task, current: Self) -> bool:
        """See TableWork.is_same. Also without its `plan`, which failed because a commit outdated it or it is lost."""
        rest = {name: value for name, value in current.of_the_work().items() if name != PLAN}
        without_plan = task.error_code in {PlanOutdated.code, PlanLost.code} and self.of_the_work() == rest
        return super().is_same(task, current) or without_plan


def identifier_text(identifier: TableIdentifier) -> str:
    """Return `purged_identifier` as a JSON array: a dotted name is ambiguous if a level contains a dot."""
    return json.dumps([identifier.catalog, *identifier.namespace, identifier.name], ensure_ascii=False)


_NO_LIMITS: Final = Limits()


def options_of(properties: Mapping[str, str], limits: Limits = _NO_LIMITS, *, accepted: bool = False) -> PurgeOptions:
    """Read a request's properties. Raises InvalidOption or DelegationError (PROPERTY_NOT_ALLOWED), which name the
    property. In a request that was already `accepted`, a value looser than today's settings is replaced by the
    setting."""
    chosen = OPTIONS.chosen(properties, limits.requests, accepted=accepted)
    return replace(
        limits.base,
        **fields_of(SetBy.BOTH, chosen),
        engine=cast("EngineChoice | None", chosen["engine"] or None),
        dry_run=chosen[DRY_RUN] == "true",
        execute_plan=chosen.get(PLAN),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeForm(TableForm[TablePurge]):
    """RequestForm of purges with the loaded table. Their callers may wait."""

    deletes: ClassVar[bool] = True
    is_waited_for: ClassVar[bool] = True
    waits_with_table: ClassVar[bool] = True

    def request(self, wanted: TableRequest, *, synchronous: bool) -> Mapping[str, Any]:
        return PurgeRequest(**dict(wanted)).request(synchronous=synchronous)

    def refuse_waiting(self, body: PurgePayload) -> None:
        """See RequestForm.refuse_waiting. Refuses a dry run, because its caller would drop the table after a 200."""
        if body.operation_parameters.properties.get(DRY_RUN, "").lower() == "true":
            expected = (
                "absent or false here, because status 200 means that the files are deleted. Send a dry run to POST "
                "/v1/tasks"
            )
            raise InvalidOption(DRY_RUN, expected)

    def plan_id(self, work: TablePurge, limits: Limits) -> str:
        return work.dry_run_id(options_of(work.properties, limits).recorded())


def _checks(properties: Mapping[str, str], limits: Limits, _sources: RequestSources) -> TableCheck:
    """Check a request's options. Raises InvalidOption and DelegationError (PROPERTY_NOT_ALLOWED)."""
    OPTIONS.chosen(properties, limits.requests)
    return bool


PURGE_FORM: Final = PurgeForm(
    operations=OPERATIONS,
    body=PurgePayload,
    options=OPTIONS,
    running="Purging {} …",
    work_type=TablePurge,
    limits=Limits.from_properties,
    checks=_checks,
)


def execution_result(task: Task) -> ExecutionResult:
    """Return the totals of a successful purge. Raises MalformedRecord."""
    details = PurgeDetails.of(task)
    return ExecutionResult(
        files_deleted=details.files_deleted,
        bytes_deleted=details.bytes_deleted,
        files_kept=details.files_kept,
        findings=tuple(KeptFiles(code=finding.code, count=finding.count) for finding in details.findings),
    )
