"""Requests for expiries: parameters, options and their limits, and how each relates to the stored task."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import ClassVar, Final, Self

from delegation.removal.expiry.retention import Retention
from delegation.removal.expiry.snapshots import LONG
from delegation.removal.expiry.task_type import BY_POLICY, ENDS_PLAN, PLAN_TASK_TYPE, PREFIX, TASK_TYPE, UPKEEP
from delegation.removal.requests import PLAN, PLAN_OPTION, TableCheck, TableForm, TableWork
from delegation.tasks.errors import MalformedPayload
from delegation.tasks.life.model import Task
from delegation.tasks.life.policy import InvalidProperty, duration_property
from delegation.tasks.options import (
    CALLBACK_OPTION,
    DRY_RUN,
    DRY_RUN_OPTION,
    Argument,
    InvalidOption,
    Option,
    OptionTable,
    RequestSources,
    SetBy,
    option_not_allowed,
    text_option,
)
from delegation.wire.tables import EXPIRE_SNAPSHOTS, ExpireSnapshotsPayload

_POLICY: Final = "policy"


class TableExpiry(TableWork):
    """An expiry of a known table's snapshots, with the table's state when the request was accepted. `policy` names the
    policy that required it, None for a caller's. No request can set it."""

    work_task_type: ClassVar[str] = TASK_TYPE
    plan_task_type: ClassVar[str] = PLAN_TASK_TYPE
    does: ClassVar[str] = "expires snapshots of"
    began: ClassVar[str] = "its commit"
    half_done: ClassVar[str] = (
        "it still has to delete files of removed snapshots. Retry the task, or send the properties in the payload of "
        "the failed task"
    )
    ends_plan: ClassVar[frozenset[str]] = ENDS_PLAN

    policy: str | None = None

    @property
    def payload_version(self) -> int:
        return 1 if self.policy is None else BY_POLICY

    def of_the_work(self) -> dict[str, str]:
        """Return the properties that decide what is done, not who is notified, and the policy."""
        of_policy = {} if self.policy is None else {"the policy": self.policy}
        return super().of_the_work() | of_policy

    def to_payload(self) -> str:
        """Return `task_payload` as JSON text (Delegation Service proposal, Persistence)."""
        document = self.document(self.task_type)
        if self.policy is not None:
            document["operation_parameters"][_POLICY] = self.policy
        return json.dumps(document, sort_keys=True)

    @classmethod
    def of(cls, task: Task) -> Self:
        """Read a stored task's parameters. Raises MalformedPayload if its payload is not an expiry's."""
        expiry = super().of(task)
        try:
            policy = json.loads(task.task_payload)["operation_parameters"].get(_POLICY)
        except (ValueError, KeyError, TypeError) as error:
            raise MalformedPayload(task.task_id, type(error).__name__) from None
        return expiry if policy is None else expiry.model_copy(update={"policy": str(policy)})


OLDER_THAN: Final = "older-than"
MAX_SNAPSHOT_AGE: Final = "max-snapshot-age-ms"
RETAIN_LAST: Final = "retain-last"
MAX_REF_AGE: Final = "max-ref-age-ms"
SNAPSHOT_IDS: Final = "snapshot-ids"
CLEAN: Final = "clean-expired-metadata"
NOW: Final = "now"
MOST_IDS: Final = 50
"""Ids in one request. With 20 characters each they fit into a property."""
LEAST_AGE: Final = "least-snapshot-age"
LEAST_SNAPSHOTS: Final = "least-snapshots"
_DATE: Final = "[12][0-9]{3}-[01][0-9]-[0-3][0-9]T[0-2][0-9](:[0-5][0-9]){2}"
_TIME: Final = rf"({NOW}|{_DATE}(\.[0-9]{{1,6}})?(Z|[+\-][0-2][0-9]:[0-5][0-9]))"
_COUNT: Final = "[1-9][0-9]{0,8}"
_MILLISECONDS: Final = "[1-9][0-9]{0,14}"
_ID: Final = "-?[0-9]{1,19}"
_IDS: Final = rf"{_ID}(,{_ID}){{0,{MOST_IDS - 1}}}"


OPTIONS: Final = OptionTable(
    PREFIX,
    (
        text_option(
            OLDER_THAN,
            _TIME,
            "an RFC 3339 date-time with an offset, such as 2026-06-11T16:21:00Z, or now",
            "Snapshots older than this time expire. `now` is the time when the request is accepted. Default: the "
            "table's property history.expire.max-snapshot-age-ms.",
            Argument(
                "Expire snapshots older than a time (2026-11-01T00:00:00Z), date, age (7d, 12h) or now. Default: the "
                "table's properties, else 5 days.",
                "TIME|AGE|now",
            ),
        ),
        text_option(
            MAX_SNAPSHOT_AGE,
            _MILLISECONDS,
            "a number of milliseconds, 1 or more",
            "Snapshots that are older than this many milliseconds when the request is accepted expire.",
        ),
        text_option(
            RETAIN_LAST,
            _COUNT,
            "a number from 1 to 999999999",
            "How many snapshots of each branch are kept whatever their age. Default: the table's property "
            "history.expire.min-snapshots-to-keep.",
            Argument(
                "Keep N snapshots of each branch. Default: the table's properties, else 1.",
                "N",
                type=int,
                least=1,
            ),
        ),
        text_option(
            SNAPSHOT_IDS,
            _IDS,
            f"1 to {MOST_IDS} comma-separated snapshot ids",
            "Snapshots to expire whatever their age, unless a branch or tag points to them.",
            Argument("Also expire this snapshot; may be repeated.", "ID", "snapshot-id", type=list[int]),
        ),
        text_option(
            MAX_REF_AGE,
            _MILLISECONDS,
            "a number of milliseconds, 1 or more",
            "Branches and tags whose snapshot is older are removed, except main. Default: the table's property "
            "history.expire.max-ref-age-ms.",
            Argument(
                "Remove branches and tags whose snapshot is older, except main. Default: the table's properties.",
                "AGE",
                "max-ref-age",
            ),
        ),
        Option(
            name=CLEAN,
            by=SetBy.CALLER,
            values=("false", "true"),
            described="Whether the expiry removes schemas and partition specs that no kept snapshot uses.",
            argument=Argument("Remove schemas and partition specs that no kept snapshot uses.", type=bool),
        ),
        replace(
            DRY_RUN_OPTION,
            argument=Argument("Only show what would expire, and why other snapshots stay.", type=bool),
        ),
        replace(PLAN_OPTION, argument=Argument("Execute the plan of a dry run.", "PLAN_ID")),
        CALLBACK_OPTION,
    ),
    others=frozenset({LEAST_AGE, LEAST_SNAPSHOTS}),
    exclusive=((PLAN, DRY_RUN),),
)


@dataclass(frozen=True, slots=True)
class Floor:
    """What the operator keeps of every table, whatever a request, table properties or refs state."""

    age: timedelta = timedelta(0)
    snapshots: int = 1

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Read the properties that start with PREFIX and ignore all others. Raises InvalidProperty."""
        OPTIONS.limits(properties)
        age, snapshots = properties.get(PREFIX + LEAST_AGE), properties.get(PREFIX + LEAST_SNAPSHOTS, "1")
        if not re.fullmatch(_COUNT, snapshots):
            raise InvalidProperty(PREFIX + LEAST_SNAPSHOTS, f"{snapshots!r} is not a number from 1 to 999999999")
        if age is None or re.fullmatch("0(ms|[smhd])?", age):
            return cls(snapshots=int(snapshots))
        return cls(duration_property(PREFIX + LEAST_AGE, age), int(snapshots))


_NO_FLOOR: Final = Floor()


@dataclass(frozen=True, slots=True)
class ExpiryChoices:
    """The choices of a request. `execute_plan` is the id of a dry run's plan."""

    retention: Retention
    dry_run: bool = False
    execute_plan: str | None = None


def choices_of(
    properties: Mapping[str, str], *, asked_at: datetime, floor: Floor = _NO_FLOOR, refuse_looser: bool = False
) -> ExpiryChoices:
    """Read the properties of an accepted request. Raises InvalidOption, which names the property. Times and ages are as
    of `asked_at`, so a retry expires nothing that the first attempt would have kept. What keeps less than the `floor`
    is raised to it when the expiry decides; with `refuse_looser` it is DelegationError (PROPERTY_NOT_ALLOWED)."""
    chosen = OPTIONS.chosen(properties, OPTIONS.limits())
    if OLDER_THAN in chosen and MAX_SNAPSHOT_AGE in chosen:
        raise InvalidOption(OLDER_THAN, f"absent if {MAX_SNAPSHOT_AGE} is given")
    asked_ms = _milliseconds(asked_at)
    older_than = None
    if OLDER_THAN in chosen:
        older_than = _time(chosen[OLDER_THAN], asked_ms)
    elif MAX_SNAPSHOT_AGE in chosen:
        older_than = asked_ms - int(chosen[MAX_SNAPSHOT_AGE])
    if refuse_looser:
        _check_floor(chosen, older_than, asked_ms, floor)
    retention = Retention(
        older_than_ms=older_than,
        retain_last=int(chosen[RETAIN_LAST]) if RETAIN_LAST in chosen else None,
        snapshot_ids=_ids(chosen.get(SNAPSHOT_IDS)),
        max_ref_age_ms=int(chosen[MAX_REF_AGE]) if MAX_REF_AGE in chosen else None,
        clean_expired_metadata=chosen[CLEAN] == "true",
        least_age_ms=floor.age // timedelta(milliseconds=1),
        least_snapshots=floor.snapshots,
    )
    return ExpiryChoices(retention, chosen[DRY_RUN] == "true", chosen.get(PLAN))


def _check_floor(chosen: Mapping[str, str], older_than: int | None, asked_ms: int, floor: Floor) -> None:
    """Raise DelegationError (PROPERTY_NOT_ALLOWED) for the request's own values. What it leaves to the table is bounded
    later."""
    if older_than is not None and older_than > asked_ms - floor.age // timedelta(milliseconds=1):
        name = OLDER_THAN if OLDER_THAN in chosen else MAX_SNAPSHOT_AGE
        raise option_not_allowed(name, chosen[name], f"{PREFIX}{LEAST_AGE}={floor.age}")
    if RETAIN_LAST in chosen and int(chosen[RETAIN_LAST]) < floor.snapshots:
        raise option_not_allowed(RETAIN_LAST, chosen[RETAIN_LAST], f"{PREFIX}{LEAST_SNAPSHOTS}={floor.snapshots}")


def _time(text: str, asked_ms: int) -> int:
    if text == NOW:
        return asked_ms
    try:
        milliseconds = _milliseconds(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        raise InvalidOption(OLDER_THAN, "a valid date and time, or now") from None
    if not 0 <= milliseconds <= asked_ms:
        raise InvalidOption(OLDER_THAN, "a time since 1970 that is not in the future, or now")
    return milliseconds


def _ids(text: str | None) -> tuple[int, ...]:
    ids = tuple(dict.fromkeys(int(number) for number in text.split(","))) if text else ()
    outside = next((number for number in ids if number not in LONG), None)
    if outside is not None:
        raise InvalidOption(SNAPSHOT_IDS, f"snapshot ids up to {LONG[-1]}, but one is {outside}")
    return ids


def _milliseconds(moment: datetime) -> int:
    """Return an aware time in milliseconds since 1970."""
    since = moment.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000


def _checks(properties: Mapping[str, str], floor: Floor, sources: RequestSources) -> TableCheck:
    """Check a request's options; raises as `choices_of`. The result raises as `check_table`."""
    # Loaded with the first request for an expiry: the API of most deployments gets only purges.
    from delegation.iceberg.metadata import parse_metadata  # noqa: PLC0415
    from delegation.removal.expiry.errors import check_table  # noqa: PLC0415

    choices_of(properties, asked_at=sources.clock(), floor=floor, refuse_looser=True)
    return lambda loaded: check_table(
        parse_metadata(loaded.metadata_location, loaded.metadata), table_uuid=loaded.table_uuid
    )


EXPIRY_FORM: Final = TableForm(
    operations=(EXPIRE_SNAPSHOTS,),
    body=ExpireSnapshotsPayload,
    options=OPTIONS,
    running="Expiring snapshots of {} …",
    work_type=TableExpiry,
    known=UPKEEP,
    limits=Floor.from_properties,
    checks=_checks,
)
