"""The input of a removal of orphan files (table, stores, settings, attempt) and its result."""

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
    """What another unfinished task may do to files: its published plan, None if it has none yet.

    `what` names the task in messages, `location` is where its table was when it was submitted. Of an `unread` one
    nothing else is known; without a location it may be about any table.
    """

    what: str
    table_uuid: str
    location: str
    segment: PlanSegment | None
    unread: bool = False


def few_threads(foreign: ForeignLocations = NOBODYS) -> DeletePolicy:
    """Return how orphan files are deleted, none at a foreign location."""
    # Every object is looked at within its batch, and no lease is checked meanwhile: seconds for a thousand, four at a
    # time. In smaller batches a page of the listing would settle fewer. A client has 32 connections.
    return DeletePolicy(batch=1_000, threads=8, foreign=foreign)


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanSettings(RemovalSettings):
    """The operator's numbers.

    A listing is split until it has `prefixes` parts, of which `list_threads` are listed at a time. What an interrupted
    attempt listed is used again for `listing_serves`. A chunk has `lot_paths` files, or `chunk_paths` if executors
    wrote it. Spark also plans where more than `inline_max_listed` are listed: their sorted runs take 0.4 GB of disk for
    a million, and a function has 2 GB. In a job the driver lists `pages_here` of each part, and executors list the
    others, `pages_at_once`; it compares up to `rows_here` listed and needed files itself.
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
        """Return whether a function's disk may be too small to compare so many files with what is needed."""
        return listed > self.inline_max_listed


@dataclass(frozen=True, slots=True)
class OrphanOptions:
    """The choices of a request and its operator. `execute_plan` is the id of an earlier plan, which is only reduced.

    `loosest` is what the operator allows at most for mismatched files at this time, in an approved plan too. A table
    that cannot be read and may have files at the location always holds the removal back.
    `location` is where to look instead of the table's present location, at or below one of `locations`, as canonical
    URIs that end in a slash. With `quarantine` files are tagged instead of deleted. `including` are the uuids of
    foreign tables that the plan's approval includes; no request names any.
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
    """Return no reason to stop: nobody can take back what a caller asked for."""


def no_age(_table: LoadedTable) -> timedelta:
    """Return no age: no policies are asked."""
    return timedelta(0)


@dataclass(frozen=True, kw_only=True)
class OrphanContext(RemovalContext):
    """One attempt at removing the orphan files of one table.

    `neighbours` include tombstones, as of a pass over the catalog that began after `references.renew` was called.
    `places` yields the locations of views, of tables of other formats and of namespaces; `claims` the other unfinished
    tasks. `submission` names the request: attempts of one share a listing. `began` states that an earlier attempt may
    have deleted files. `permitted` returns why a loaded table must not be swept any more, None if it may be; it is
    asked whenever the table is loaded. `asked_age` returns how old orphan files are at least by the policies of a
    loaded table. `tags` opens what tags objects of a bucket, below a location, as an operator's role; it raises
    OperatorRoleRequired. An attempt that `leaves_plan` leaves it to Spark, and so does one that listed too many.
    `approval` returns the approval of a published plan that holds now. `waiting` is the plan that an earlier submission
    of the task left to a person. Attempts before deleted `deleted_before`, of `planned_before` files.
    """

    # field(): without a default, also where the base has one, because a removal without the others deletes their files.
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
    """How much stays for a table that no catalog lists, which is below the folder `place`."""

    uuid: str
    place: str
    files: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanResult(RemovalResult):
    """What a removal deleted, or with `status` PLANNED and WAITING what it would.

    WAITING: the plan `plan_ids[-1]` waits for approval, for the reason `waits`. NOTHING: there are no orphan files.
    INCOMPLETE: some could not be deleted, which the receipt lists. `files_changed` are those that were kept because
    they are not as they were listed, `files_untagged` because they have no place for a tag; `files_quarantined` are
    tagged and still there, with `quarantine`. `files_looked_only` were deleted after a look alone, because the store
    has no conditional deletes. `deletes_with` is the engine for so many files as are planned. A lost plan had deleted
    `deleted_before`. `foreign` is what stays for tables that no catalog lists.
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
