"""The input of a removal of orphan files (table, stores, settings, attempt), and its result."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal, NamedTuple

from delegation.polaris.model import LoadedTable
from delegation.removal.attempt import PlanSegment
from delegation.removal.choice import EngineChoice, RemovalSettings
from delegation.removal.context import RemovalContext, RemovalResult
from delegation.removal.errors import NeighbourUnreadable
from delegation.removal.neighbourhood import Neighbour, ReferenceCheck
from delegation.removal.orphans.details import NO_AMOUNT, Approval, ApprovalLimits, ListedAmount, Wait
from delegation.removal.orphans.errors import no_role
from delegation.removal.orphans.place import AGE, Equal, MismatchMode, Place
from delegation.removal.path_guard import NOBODYS
from delegation.storage.deleter import DeletePolicy
from delegation.storage.listing.model import TagStore
from delegation.storage.locations import ForeignLocations, Roots

Status = Literal["SWEPT", "PLANNED", "WAITING", "NOTHING", "INCOMPLETE"]


@dataclass(frozen=True, slots=True)
class Claim:
    """What another unfinished task may do to files. Its published plan is None if it has none yet. `what` names the
    task in messages, `location` is its table's location at submission. Of an `unread` task nothing else is known;
    without a location it may concern any table."""

    what: str
    table_uuid: str
    location: str
    segment: PlanSegment | None
    unread: bool = False


def few_threads(foreign: ForeignLocations = NOBODYS) -> DeletePolicy:
    """Return how orphan files are deleted; none at a foreign location."""
    # Every object is checked within its batch, without lease checks: seconds for a thousand, four at a time. In smaller
    # batches a page of the listing would confirm fewer objects. A client has 32 connections.
    return DeletePolicy(batch=1_000, threads=8, foreign=foreign)


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanSettings(RemovalSettings):
    """The operator's numbers.

    A listing is split until it has `prefixes` parts, of which `list_threads` are listed at a time. What an interrupted
    attempt listed is reused for `listing_serves`. A chunk has `lot_paths` files, or `chunk_paths` if executors wrote
    it. Spark also plans if more than `inline_max_listed` files are listed: their sorted runs take 0.4 GB of disk per
    million, and a function has 2 GB. In a job the driver lists `pages_here` of each part, and executors list the rest,
    `pages_at_once`. The driver compares up to `rows_here` listed and needed files itself.
    """

    list_threads: int = 16
    prefixes: int = 64
    pages_here: int = 4
    pages_at_once: int = 250
    rows_here: int = 250_000
    probe: bool = True
    inline_max_listed: int = 3_000_000
    listing_serves: timedelta = timedelta(hours=6)
    delete: DeletePolicy = field(default_factory=few_threads)

    def is_wide(self, listed: int) -> bool:
        """Return whether a function's disk may be too small to compare this many files with the needed ones."""
        return listed > self.inline_max_listed


@dataclass(frozen=True, slots=True)
class OrphanOptions:
    """The choices of a request and its operator. `execute_plan` is the id of an earlier plan, which is only reduced.

    `loosest` is the loosest mode that the operator allows now for mismatched files, also for an approved plan. An
    unreadable table that may have files at the location always holds the removal. `location` is searched instead of the
    table's current location, and is at or below one of `locations`; these are canonical URIs that end in a slash. With
    `quarantine` files are tagged instead of deleted. `including` are the uuids of foreign tables that the plan's
    approval includes; no request names any.
    """

    older_than: timedelta = AGE
    dry_run: bool = False
    execute_plan: str | None = None
    equal: Equal = field(default_factory=Equal)
    mismatch: MismatchMode = MismatchMode.ERROR
    loosest: MismatchMode = MismatchMode.IGNORE
    limits: ApprovalLimits = field(default_factory=ApprovalLimits)
    location: str | None = None
    locations: tuple[str, ...] = ()
    quarantine: bool = False
    including: tuple[str, ...] = ()

    @property
    def outside(self) -> Literal["keep"]:
        """What happens to files outside the table's location."""
        return "keep"

    @property
    def neighbour(self) -> Literal["refuse"]:
        """What happens if another table cannot be read."""
        return "refuse"


def always_permitted(_table: LoadedTable) -> None:
    """Return no reason to stop: nothing withdraws a caller's request."""


def no_age(_table: LoadedTable) -> timedelta:
    """Return no age: there are no policies."""
    return timedelta(0)


@dataclass(frozen=True, kw_only=True)
class OrphanContext(RemovalContext):
    """One attempt at removing the orphan files of one table.

    `neighbours` include tombstones, as of a pass over the catalog that started after `references.renew` was called.
    `places` yields the locations of views, of tables of other formats and of namespaces; `claims` the other unfinished
    tasks. `submission` names the request; its attempts share a listing. `began` states that an earlier attempt may have
    deleted files. `permitted` returns why a loaded table must no longer be swept, None if it may be; it is called after
    each load of the table. `asked_age` returns the minimum age of orphan files by a loaded table's policies. `tags`
    opens what tags objects of a bucket, below a location, as an operator's role; it raises OperatorRoleRequired. An
    attempt that `leaves_plan` leaves it to Spark, and so does one that listed too many files. `approval` returns the
    valid approval of a published plan. `waiting` is the plan of an earlier submission that waits for a person. Earlier
    attempts deleted `deleted_before`, of `planned_before` files.
    """

    # field() removes the base class's default: without the other tables a removal would delete their files.
    neighbours: Callable[[Roots | None], Iterable[Neighbour | NeighbourUnreadable]] = field()
    references: ReferenceCheck = field()
    places: Callable[[], Iterable[Place]]
    claims: Callable[[], Iterable[Claim]]
    options: OrphanOptions = field(default_factory=OrphanOptions)
    settings: OrphanSettings = field(default_factory=OrphanSettings)
    submission: str = ""
    began: bool = False
    permitted: Callable[[LoadedTable], str | None] = always_permitted
    asked_age: Callable[[LoadedTable], timedelta] = no_age
    leaves_plan: bool = False
    tags: Callable[[str, str], TagStore] = no_role
    approval: Callable[[PlanSegment], Approval | None] = lambda _plan: None
    waiting: PlanSegment | None = None
    deleted_before: ListedAmount = NO_AMOUNT
    planned_before: int = 0


class ForeignKept(NamedTuple):
    """The number of files and bytes kept for a table that no catalog lists, which is below the folder `place`."""

    uuid: str
    place: str
    files: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanResult(RemovalResult):
    """What a removal deleted, or would with `status` PLANNED and WAITING.

    WAITING: the plan `plan_ids[-1]` waits for approval, for the reason `waits`. NOTHING: there are no orphan files.
    INCOMPLETE: some could not be deleted; the receipt lists them. `files_changed` were kept because they are not as
    listed, `files_untagged` because they have no room for a tag. `files_quarantined` are tagged and still exist, with
    `quarantine`. `files_looked_only` were deleted after a check alone, because the store has no conditional deletes.
    `deletes_with` is the engine for the number of planned files. A lost plan had deleted `deleted_before`. `foreign` is
    what stays for tables that no catalog lists.
    """

    status: Status
    location: str
    waits: Wait = ""
    files_listed: int = 0
    bytes_listed: int = 0
    files_changed: int = 0
    files_looked_only: int = 0
    quarantine: bool = False
    files_quarantined: int = 0
    bytes_quarantined: int = 0
    files_untagged: int = 0
    deleted_before: ListedAmount = NO_AMOUNT
    approval: Approval | None = None
    foreign: Sequence[ForeignKept] = ()
    deletes_with: EngineChoice = "inline"
