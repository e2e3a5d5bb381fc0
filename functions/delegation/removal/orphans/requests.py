"""Requests for removals of orphan files: parameters, options and their limits, and who may approve a plan."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Final, Self

from delegation.removal.attempt import PlanSegment
from delegation.removal.orphans.details import (
    APPROVAL_HOLDS,
    Approval,
    ApprovalLimits,
    Approver,
    OrphanDetails,
    waiting_plan,
)
from delegation.removal.orphans.index import load_plan
from delegation.removal.orphans.task_type import BACKGROUND, PLAN_TASK_TYPE, PREFIX, TASK_TYPE, TASK_TYPES
from delegation.removal.requests import PLAN, PLAN_OPTION, TableCheck, TableForm, TableWork
from delegation.storage.base import PlanStore
from delegation.tasks.errors import TaskNotFound
from delegation.tasks.life.model import Caller, Status, Task
from delegation.tasks.life.policy import InvalidProperty
from delegation.tasks.options import (
    CALLBACK_OPTION,
    DRY_RUN,
    DRY_RUN_OPTION,
    Argument,
    Option,
    OptionTable,
    RequestSources,
    SetBy,
    SetLimits,
    text_option,
)
from delegation.tasks.work.reads import TaskReads
from delegation.tasks.work.writes import WriteLoop
from delegation.wire.tables import ORPHAN_FILES, OrphanFilesPayload, PlanApproval
from polaris_common.errors import DelegationError, printable

FILE_AGE: Final = "file-age"
EQUAL_SCHEMES: Final = "equal-schemes"
EQUAL_AUTHORITIES: Final = "equal-authorities"
MISMATCH: Final = "prefix-mismatch-mode"
LOCATION: Final = "location"
LOCATIONS: Final = "locations"
FIRST_RUN: Final = "first-run"
MAX_SHARE: Final = "max-share"
MAX_FILES: Final = "max-files"
QUARANTINE: Final = "quarantine"
ROLES: Final = "roles"
APPROVERS: Final = "delegation.approvers"
"""The operator's property that states who may approve a plan."""
OPERATORS: Final = "operators"
SUBMITTERS: Final = "submitters"
_DURATION: Final = "([0-9]{1,9}(ms|[smhd])|[Pp][0-9A-Za-z.]{1,40})"
_NAME: Final = "[!-+\\-.0-:<>-~]{1,255}"
_LIST: Final = f"{_NAME}(,{_NAME}){{0,9}}={_NAME}"
_LISTS: Final = f"{_LIST}(;{_LIST}){{0,9}}"
_SHARE: Final = "0(\\.[0-9]{1,6})?|1(\\.0{1,6})?"
_ROLE: Final = "[a-z0-9][a-z0-9.-]{2,62}=arn:aws[a-z-]{0,20}:iam::[0-9]{12}:role/[A-Za-z0-9+=@_./-]{1,576}"
_MOST_ROLES: Final = 100
_COUNT: Final = "[0-9]{1,12}"
_BUCKET: Final = "s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]/"
_LOCATION: Final = "[sS]3[aAnN]?://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]/[!-~]{1,900}"
_PLACE: Final = f"{_BUCKET}([A-Za-z0-9!'()_./=+@:-]{{0,900}}/)?"
_MOST_PLACES: Final = 20
_NONE: Final = "none"
_APPROVER: Final = "[!-+\\--~]{1,255}"
_MOST_APPROVERS: Final = 100


OPTIONS: Final = OptionTable(
    PREFIX,
    (
        text_option(
            FILE_AGE,
            _DURATION,
            "a duration such as 7d or PT72H, 24 hours or more",
            "The minimum age of an orphan file, by the store's clock. Default: 3 days. A property of the table "
            "may raise it.",
            Argument(
                "The minimum age by the store's clock, such as 7d or 72h; at least 24 hours. Default: 3 days.",
                "AGE",
                "older-than",
            ),
        ),
        text_option(
            EQUAL_SCHEMES,
            _LISTS,
            "lists such as s3n,s3a=s3, separated by semicolons",
            "Schemes of the same store, as in Iceberg's equal_schemes: `s3a,s3n=s3` compares s3a and s3n as s3.",
            Argument("Schemes to treat as equal, such as cos,oss=store; s3, s3a and s3n are always equal.", "LISTS"),
        ),
        text_option(
            EQUAL_AUTHORITIES,
            _LISTS,
            "lists such as bucket-alias=bucket, separated by semicolons",
            "Names of the same bucket, as in Iceberg's equal_authorities: `a,b=c` compares a and b as c.",
            Argument("Buckets to treat as equal, such as alias=bucket.", "LISTS"),
        ),
        Option(
            name=MISMATCH,
            by=SetBy.BOTH,
            values=("error", "ignore", "delete"),
            loosest="ignore",
            default="error",
            meaning=(
                "The loosest mode for files that have a needed file's path under another scheme or bucket: `error`,"
                " `ignore` or `delete`."
            ),
            described="What happens to files that have a needed file's path under another scheme or bucket.",
            argument=Argument(
                (
                    "What to do if a file has a needed file's path under another scheme or bucket: error, ignore or "
                    "delete. Default: error."
                ),
                "MODE",
            ),
        ),
        DRY_RUN_OPTION,
        PLAN_OPTION,
        text_option(
            LOCATION,
            _LOCATION,
            "a location such as s3://lake/written-elsewhere/orders",
            "The location to scan instead of the table's. The operator must allow this location or one above it "
            "(`delegation.orphan-files.locations`).",
            Argument("Scan this place, if the operator allows it, instead of the table's location.", "URI"),
        ),
        Option(
            name=FIRST_RUN,
            by=SetBy.OPERATOR,
            values=("report", "delete"),
            meaning=(
                "Whether the first plan of orphan files at a location waits for approval (`report`), or runs "
                "within the other limits (`delete`)."
            ),
        ),
        Option(
            name=QUARANTINE,
            by=SetBy.BOTH,
            values=("tag", "none"),
            meaning=(
                "`none`: a removal deletes orphan files. `tag`: it tags them `delegation-quarantine` = `orphan` "
                "for a lifecycle rule, with a role of `delegation.orphan-files.roles`. Requests then cannot choose "
                "`none`."
            ),
            described="With `tag`, orphan files get a tag for a lifecycle rule of the bucket instead of being deleted.",
            argument=Argument(
                "tag: an approved plan's files are tagged for the bucket's lifecycle rule. none: they are deleted."
                " Default: the operator's setting.",
                "MODE",
            ),
        ),
        CALLBACK_OPTION,
    ),
    others=frozenset({MAX_SHARE, MAX_FILES, LOCATIONS, ROLES}),
    exclusive=((PLAN, DRY_RUN),),
)


@dataclass(frozen=True, slots=True)
class Approvers:
    """Who may approve a plan: operators, or the OAuth2 clients `clients`, but never the plan's requester. With
    `submitters` everybody who may submit tasks may, also for their own requests."""

    operators: bool = True
    submitters: bool = False
    clients: frozenset[str] = frozenset()

    def admit(self, client_id: str, *, is_operator: bool, is_own: bool) -> bool:
        """Return whether a client may approve a plan. `is_own` is true for the caller's own request."""
        if self.submitters:
            return True
        return is_operator and not is_own and (self.operators or client_id in self.clients)


@dataclass(frozen=True, slots=True)
class OrphanLimits:
    """What requests may choose, and when a plan waits for a person. `locations` are where orphan files may be searched
    beside a table's current location. `roles` are the ARNs of the operator's roles by bucket."""

    requests: SetLimits = field(default_factory=OPTIONS.limits)
    approval: ApprovalLimits = field(default_factory=ApprovalLimits)
    locations: tuple[str, ...] = ()
    roles: Mapping[str, str] = field(default_factory=dict)
    approvers: Approvers = field(default_factory=Approvers)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Read APPROVERS and what starts with PREFIX, and ignore all other properties. Raises InvalidProperty."""
        limits, usual = OPTIONS.limits(properties), ApprovalLimits()
        share = properties.get(PREFIX + MAX_SHARE, str(usual.max_share))
        files = properties.get(PREFIX + MAX_FILES, str(usual.max_files))
        if not re.fullmatch(_SHARE, share, re.ASCII):
            raise InvalidProperty(PREFIX + MAX_SHARE, f"{share!r} is not a share from 0 to 1, such as 0.2")
        if not re.fullmatch(_COUNT, files, re.ASCII):
            raise InvalidProperty(PREFIX + MAX_FILES, f"{files!r} is not a number from 0 to 999999999999")
        approval = ApprovalLimits(float(share), int(files), limits.fixed[FIRST_RUN] == "delete")
        return cls(limits, approval, allowed_locations(properties), roles_of(properties), approvers_of(properties))


def allowed_locations(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Return where orphan files may be searched beside a table's location, as `s3://bucket/prefix/`. Raises
    InvalidProperty."""
    name = PREFIX + LOCATIONS
    text = properties.get(name, _NONE)
    places = () if text == _NONE else tuple(place.strip() for place in text.split(","))
    for place in places:
        if not re.fullmatch(_PLACE, place, re.ASCII):
            raise InvalidProperty(
                name, f"{place!r} is not a location with a slash at its end, such as s3://lake/elsewhere/"
            )
    if len(places) > _MOST_PLACES:
        raise InvalidProperty(name, f"has more than {_MOST_PLACES} locations")
    return places


def roles_of(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the ARN of the operator's role of each bucket. Raises InvalidProperty."""
    text = properties.get(PREFIX + ROLES, _NONE)
    pairs = [] if text == _NONE else [pair.strip() for pair in text.split(",")]
    roles: dict[str, str] = {}
    for pair in pairs:
        if not re.fullmatch(_ROLE, pair, re.ASCII):
            raise InvalidProperty(PREFIX + ROLES, f"{pair!r} is not of the form BUCKET=ARN (a bucket and its role)")
        bucket, _, arn = pair.partition("=")
        roles[bucket] = arn
    if len(roles) < len(pairs) or len(roles) > _MOST_ROLES:
        raise InvalidProperty(PREFIX + ROLES, f"names a bucket twice, or more than {_MOST_ROLES} buckets")
    return roles


def approvers_of(properties: Mapping[str, str]) -> Approvers:
    """Return who may approve plans. Raises InvalidProperty."""
    names = [name.strip() for name in properties.get(APPROVERS, OPERATORS).split(",")]
    if len(names) > _MOST_APPROVERS or not all(re.fullmatch(_APPROVER, name, re.ASCII) for name in names):
        raise InvalidProperty(APPROVERS, f"is not {OPERATORS}, {SUBMITTERS}, or comma-separated OAuth2 clients")
    return Approvers(OPERATORS in names, SUBMITTERS in names, frozenset(names) - {OPERATORS, SUBMITTERS})


class TableOrphans(TableWork):
    """A removal of a known table's orphan files, with the table's state when the request was accepted."""

    work_task_type: ClassVar[str] = TASK_TYPE
    plan_task_type: ClassVar[str] = PLAN_TASK_TYPE
    does: ClassVar[str] = "removes orphan files of"

    def replays(self, task: Task) -> bool:
        """Return whether a SUCCESS executed the requested plan, and does not wait with it."""
        asks_for_plan = task.status is Status.SUCCESS and PLAN in self.properties
        return asks_for_plan and self._is_of(task) and OrphanDetails.of(task).waiting_plan is None

    def resumes(self, task: Task) -> bool:
        """See TableWork.resumes. Only the same request resumes; another finds the remaining files again."""
        return super().resumes(task) and self._is_of(task)

    def _is_of(self, task: Task) -> bool:
        current = self.readable(task)
        return current is not None and current.identifier == self.identifier and self.is_same(task, current)


def approve(
    writes: WriteLoop,
    plans: Callable[[], PlanStore],
    approvers: Approvers,
    task_id: str,
    wanted: PlanApproval,
    *,
    by: Caller,
    is_operator: bool,
) -> Task:
    """Record the approval of a waiting plan, or of a dry run's, and return its task. A repeat changes nothing. Raises
    TaskNotFound, MalformedRecord, PlanLost, PlanTampered and DelegationError (APPROVAL_NOT_ALLOWED,
    APPROVAL_REFUSED)."""
    plan, included = wanted.plan, tuple(sorted(set(wanted.including)))
    if included:
        reported = {
            table.uuid for table in load_plan(plans(), _waiting(writes.reads.get(task_id), plan)).foreign_tables
        }
        if unknown := set(included) - reported:
            raise DelegationError(
                f"the plan {plan} reports no foreign table {', '.join(sorted(unknown))}. Its finding FOREIGN_TABLE has "
                "the uuids that an approval may include",
                code="APPROVAL_REFUSED",
            )

    def decide(task: Task, now: datetime) -> Task:
        segment = _waiting(task, plan)
        if not approvers.admit(by.client_id, is_operator=is_operator, is_own=by == task.requested_by):
            raise DelegationError(
                f"{printable(by.client_id)} may not approve the plan {plan}: {APPROVERS} admits operators, but never "
                "the plan's requester. Ask another operator",
                code="APPROVAL_NOT_ALLOWED",
            )
        if wanted.sha256 not in (None, segment.sha256):
            raise DelegationError(
                f"the plan {plan} has the SHA-256 {segment.sha256}, not the SHA-256 in the request. Check the plan "
                "(`delegation orphans show`), then approve it",
                code="APPROVAL_REFUSED",
            )
        before = OrphanDetails.of(task).approval
        if before is not None and before.holds(segment.id, segment.sha256, now) and before.including == included:
            return task
        approver = Approver(client_id=by.client_id, subject=by.subject)
        until = now + APPROVAL_HOLDS
        approval = Approval(
            plan=segment.id, sha256=segment.sha256, by=approver, at=now, until=until, including=included
        )
        return task.with_details({"approval": approval.model_dump(mode="json")})

    return writes.change(task_id, decide)


def _waiting(task: Task, plan: str) -> PlanSegment:
    """Return the plan that waits with a task. Raises DelegationError (APPROVAL_REFUSED) if it is not `plan`."""
    segment = waiting_plan(task) if task.task_type in TASK_TYPES else None
    if segment is None or segment.id != plan:
        present = "it has no waiting plan" if segment is None else f"its waiting plan is {segment.id}"
        raise DelegationError(
            f"the plan {plan} of task {task.task_id} cannot be approved: {present}. Approve the plan that "
            "`delegation tasks show` names",
            code="APPROVAL_REFUSED",
        )
    return segment


def approval_of(
    reads: TaskReads, approvers: Approvers, segment: PlanSegment, executing: Task, now: datetime
) -> Approval | None:
    """Return the valid approval of a plan; None if the approver requests its execution and may not."""
    try:
        task = executing if segment.id.startswith(f"{executing.task_id}/") else reads.get(segment.id.partition("/")[0])
    except TaskNotFound:
        return None
    approval = OrphanDetails.of(task).approval
    if approval is None or not approval.holds(segment.id, segment.sha256, now):
        return None
    by = Caller(client_id=approval.by.client_id, subject=approval.by.subject)
    return approval if approvers.submitters or by != executing.requested_by else None


def _checks(properties: Mapping[str, str], limits: OrphanLimits, _sources: RequestSources) -> TableCheck:
    """Check a request's options. Raises InvalidOption and DelegationError (PROPERTY_NOT_ALLOWED). The result raises
    GuardRefused."""
    # Loaded with the first such request: the API of most deployments gets only purges.
    from delegation.iceberg.metadata import parse_metadata  # noqa: PLC0415
    from delegation.removal.orphans.errors import no_role  # noqa: PLC0415
    from delegation.removal.orphans.options import options_of  # noqa: PLC0415
    from delegation.removal.orphans.place import (  # noqa: PLC0415
        age_of,
        check_allowed,
        place_of,
    )

    chosen = options_of(properties, limits)

    def check(loaded: Any) -> None:
        metadata = parse_metadata(loaded.metadata_location, loaded.metadata)
        check_allowed(metadata)
        bucket = place_of(metadata, chosen.location).bucket
        if chosen.quarantine and bucket not in limits.roles:
            no_role(bucket)
        age_of(chosen.older_than, metadata.properties)

    return check


ORPHANS_FORM: Final = TableForm(
    operations=(ORPHAN_FILES,),
    body=OrphanFilesPayload,
    options=OPTIONS,
    running="Looking for orphan files of {} …",
    work_type=TableOrphans,
    known=BACKGROUND,
    limits=OrphanLimits.from_properties,
    checks=_checks,
)
