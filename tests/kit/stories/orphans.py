"""Tables of stories in a store with a clock, and what a removal of their orphan files needs.

Every context is a new attempt. The references are as of a pass that lists the names of the catalog: `renew` asks for a
new one, which is made at the next look, or after `late` looks that find none.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from delegation.polaris.answers import TableMetadataMissing
from delegation.polaris.model import with_uuid
from delegation.references.errors import ReferencesNotKnown
from delegation.removal.attempt import PlanHead, PlanSegment
from delegation.removal.chunks import Phase
from delegation.removal.errors import NeighbourUnreadable
from delegation.removal.index import planned_paths, segment_of
from delegation.removal.neighbourhood import Neighbour
from delegation.removal.orphans.context import Claim, OrphanContext, OrphanOptions, OrphanResult, OrphanSettings
from delegation.removal.orphans.details import APPROVAL_HOLDS, Approval, ApprovalLimits, Approver
from delegation.removal.orphans.index import OrphanIndex, load_plan
from delegation.removal.orphans.place import Place
from delegation.removal.orphans.run import remove_orphan_files
from delegation.storage.locations import parse
from delegation.storage.memory import Faults, MemoryObjectStore, MemoryPlanStore
from tests.kit.lakes.lake import FAST, MortalAttempt
from tests.kit.stories.tables import StandInCatalog, StoryTable, Warehouse, identifier

SMALL = OrphanSettings(
    chunk_paths=3,
    lot_paths=3,
    run_records=5,
    read_threads=1,
    list_threads=1,
    prefixes=4,
    pages_here=1,
    pages_at_once=1,
    rows_here=0,
    delete=FAST,
)
DAYS = 86_400_000
AT_ONCE = ApprovalLimits(max_share=1.0, first_run_deletes=True)
"""What is found is deleted without a person."""


@dataclass
class Shore(Warehouse):
    """A warehouse whose store notes when an object was written."""

    modified: dict[tuple[str, str], int] = field(default_factory=dict)

    def put(self, uri: str, data: bytes = b"x") -> str:
        where = parse(uri)
        self.modified[where.bucket, where.key] = self.now_ms // 1000
        return super().put(uri, data)

    def move_to(self, now_ms: int) -> None:
        """Let it be another time, and everything as old as it is."""
        later, self.now_ms = now_ms - self.now_ms, now_ms
        self.modified.update({key: at + later // 1000 for key, at in self.modified.items()})

    def pass_days(self, days: float) -> None:
        self.now_ms += int(days * DAYS)


@dataclass
class Passes:
    """Which names of the catalog the last pass saw; a ReferenceCheck."""

    lake: Shore
    seen: frozenset[str] = frozenset()
    wanted: bool = True
    late: int = 0
    renewed: int = 0
    before: Callable[[], object] = lambda: None

    def summary(self) -> list[dict[str, Any]]:
        return [{"catalog": "cat", "tables": len(self.seen)}]

    def ensure_known(self) -> None:
        """Wait for no pass: `look` does."""

    def renew(self) -> None:
        self.renewed += 1
        self.wanted = True

    def look(self) -> frozenset[str]:
        """Return the names of the last pass that was asked for; raise ReferencesNotKnown while there is none."""
        self.before()
        if self.wanted and self.late:
            self.late -= 1
            raise ReferencesNotKnown("cat", 0, None)
        if self.wanted:
            self.seen, self.wanted = frozenset(self.lake.pointers), False
        return self.seen


@dataclass
class SweptTables:
    """A warehouse and the removals of its orphan files. `unreadable` are yielded beside the tables.

    Tables that are `dying` are tombstones: they are in the catalog, and purged.
    """

    lake: Shore = field(default_factory=Shore)
    plans: MemoryPlanStore = field(default_factory=MemoryPlanStore)
    head: PlanHead = field(default_factory=PlanHead)
    attempts: int = 0
    places: list[Place] = field(default_factory=list)
    claimed: list[Claim] = field(default_factory=list)
    unreadable: list[NeighbourUnreadable] = field(default_factory=list)
    dying: set[str] = field(default_factory=set)
    exempt: dict[str, tuple[str, ...]] = field(default_factory=dict)
    approvals: dict[str, Approval] = field(default_factory=dict)
    passes: Passes = field(init=False)
    catalog: StandInCatalog = field(init=False)
    store: MemoryObjectStore = field(init=False)

    def __post_init__(self) -> None:
        self.passes = Passes(self.lake)

    def table(self, name: str = "t", **properties: Any) -> StoryTable:
        """Create a table and append to it twice."""
        table = StoryTable.create(self.lake, name, **properties)
        table.append(2)
        table.append(1)
        return table

    def orphan(self, uri: str, data: bytes = b"orphan") -> str:
        return self.lake.put(uri, data)

    def littered(self, *names: str) -> set[str]:
        """Put orphan files below the table's `data` that are four days old."""
        found = {self.orphan(f"s3://lake/wh/t/data/{name}") for name in names}
        self.lake.pass_days(4)
        return found

    def context(
        self,
        table: StoryTable,
        *,
        faults: Faults | None = None,
        settings: OrphanSettings = SMALL,
        task_id: str = "task",
        limits: ApprovalLimits = AT_ONCE,
        waiting: PlanSegment | None = None,
        **options: Any,
    ) -> OrphanContext:
        faults = faults or Faults()
        self.attempts += 1
        self.store = MemoryObjectStore(faults=faults, clock=lambda: self.lake.now_ms / 1000)
        self.store.objects, self.store.modified = self.lake.objects, self.lake.modified
        self.plans.faults = faults
        attempt = MortalAttempt(task_id, self.attempts, head=self.head)
        attempt.faults = faults
        self.catalog = StandInCatalog(table, faults)
        return OrphanContext(
            attempt=attempt,
            identifier=identifier(table.name),
            table_uuid=str(with_uuid(table.document, "cat", table.pointer)["table-uuid"]),
            tables=self.catalog,
            store=self.store,
            plans=self.plans,
            neighbours=lambda _roots: self.neighbours(table.name),
            references=self.passes,
            places=lambda: list(self.places),
            claims=lambda: list(self.claimed),
            options=OrphanOptions(limits=limits, **options),
            settings=settings,
            clock=self.clock,
            now=lambda: 0.0,
            sleep=lambda _seconds: None,
            approval=self.approved,
            waiting=waiting,
        )

    def clock(self) -> datetime:
        return datetime.fromtimestamp(self.lake.now_ms / 1000, UTC)

    def approve(self, plan_id: str, *, including: tuple[str, ...] = ()) -> PlanSegment:
        """Record an operator's approval of a plan, and return the plan."""
        segment = segment_of(self.plans, plan_id)
        by = Approver(client_id="operator")
        self.approvals[plan_id] = Approval(
            plan=plan_id,
            sha256=segment.sha256,
            by=by,
            at=self.clock(),
            until=self.clock() + APPROVAL_HOLDS,
            including=including,
        )
        return segment

    def approved(self, plan: PlanSegment) -> Approval | None:
        found = self.approvals.get(plan.id)
        return found if found is not None and found.holds(plan.id, plan.sha256, self.clock()) else None

    def neighbours(self, name: str) -> Iterator[Neighbour | NeighbourUnreadable]:
        """Yield the tables that the last pass saw, as they are now."""
        seen = self.passes.look()
        yield from self.unreadable
        yield from self.others(name, seen)

    def others(self, name: str, seen: frozenset[str] | None = None) -> Iterator[Neighbour | NeighbourUnreadable]:
        """Yield the tables but one as they are now, by default all; one whose metadata file is purged is unreadable."""
        names = self.lake.pointers.keys() if seen is None else seen & self.lake.pointers.keys()
        for other in sorted(names - {name}):
            store = MemoryObjectStore()
            store.objects = self.lake.objects
            try:
                found = StandInCatalog(StoryTable(self.lake, other)).load()
            except TableMetadataMissing as error:
                yield NeighbourUnreadable(str(identifier(other)), error)
                continue
            areas = self.exempt.get(other, ())
            yield Neighbour(found, store, certain=True, areas=areas, exempt=other in self.exempt)

    def sweep(self, table: StoryTable, **more: Any) -> OrphanResult:
        """Remove with a task of its own, in one attempt."""
        self.head = PlanHead()
        return remove_orphan_files(self.context(table, task_id=f"task{self.attempts}", **more))

    def plan(self) -> OrphanIndex:
        return load_plan(self.plans, self.head.read()[-1])

    def claim(self, head: PlanHead) -> None:
        """Let the task of a plan be unfinished, and of another table."""
        self.claimed.extend(Claim("task", "another", "s3://lake/wh/zoo", one) for one in head.read())

    def planned(self) -> set[str]:
        return set(planned_paths(self.plans, [self.plan()], (Phase.DATA,)))

    def live(self) -> set[str]:
        """Return every file that some table of the catalog names."""
        pointers = [pointer for name, pointer in self.lake.pointers.items() if name not in self.dying]
        return set().union(*map(self.reach, pointers))

    def reach(self, pointer: str) -> set[str]:
        """Return every file that a metadata file names, itself included."""
        document = self.lake.document(pointer)
        log = {one["metadata-file"] for one in document.get("metadata-log") or ()}
        return {pointer, *log} | self.lake.named_by(document, _ids(document))

    def unlist(self, name: str) -> set[str]:
        """Take a table out of the catalog and keep its files, as an unregistration does; return what it reaches."""
        return self.reach(self.lake.pointers.pop(name))

    def read(self) -> set[str]:
        """Return every file that a reader of some table of the catalog opens, and the files of the logs."""
        found: set[str] = set()
        for name in self.lake.pointers.keys() - self.dying:
            document = self.lake.document(self.lake.pointers[name])
            log = {one["metadata-file"] for one in document.get("metadata-log") or ()}
            found |= {self.lake.pointers[name], *log} | self.lake.read_by(document)
        return found

    def missing(self) -> set[str]:
        """Return the files that a table needs and that are gone."""
        return {path for paths in self.lake.readable().values() for path in paths}


def _ids(document: dict[str, Any]) -> Iterable[int]:
    return [one["snapshot-id"] for one in document["snapshots"]]


def hours(number: float) -> timedelta:
    return timedelta(hours=number)
