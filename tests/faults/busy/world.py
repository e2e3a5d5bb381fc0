"""A table that receives commits all the time, and work on it or beside it: nothing live is deleted, and the work ends.

A second of the virtual clock passes with each load and each batch of deletes. Events happen before loads: what is
committed between a load and its lot is the window that docs/limits.md states.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Final
from unittest.mock import patch

from delegation.removal.expiry.reduction import SortedRows
from delegation.removal.expiry.run import expire_snapshots
from delegation.removal.orphans.needed_files import NeededAtLocation
from delegation.removal.orphans.run import remove_orphan_files
from delegation.removal.purge.context import PurgeContext
from delegation.removal.purge.requests import PurgeSettings
from delegation.removal.purge.run import purge_table
from polaris_common.errors import DelegationError
from tests.kit.explorer import Story, WrongOutcome
from tests.kit.lakes.lake import FAST
from tests.kit.stories.expiries import ExpiringTables
from tests.kit.stories.orphans import SweptTables
from tests.kit.stories.tables import ADDED, Entry, StandInCatalog, StoryTable, identifier

_MOST_ATTEMPTS: Final = 4
KINDS: Final = ("expiry", "orphans")
DONE: Final = ("EXPIRED", "SWEPT", "PURGED", "NOTHING")


@dataclass
class Each(dict[int, Callable[[], object]]):
    """What runs before every call of a catalog."""

    event: Callable[[], object]

    def get(self, *_: Any) -> Any:
        return self.event


@dataclass
class TableClock:
    """Seconds of the virtual clock."""

    seconds: float = 0.0

    def pass_(self, seconds: float = 1.0) -> None:
        self.seconds += seconds


@dataclass
class BusyTable:
    """A table with candidates that a writer may take before each load; `files` are those that only candidates are."""

    table: StoryTable
    choose: random.Random
    files: Sequence[str]
    removed: list[dict[str, Any]] = field(default_factory=list)
    staged: list[dict[str, Any]] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)

    def _left(self) -> list[str]:
        return [path for path in self.files if path in self.table.lake.uris() and path not in self.taken]

    def append(self) -> None:
        """Replace all that the table has, as a stream does that keeps the last snapshots."""
        fresh = [Entry(ADDED, path) for path in self.table.data()]
        self.table.snapshot([self.table.lake.manifest(self.table.folder, fresh)])
        if len(self.table.ids) > 8:
            self.table.remove_snapshots(*sorted(set(self.table.ids) - set(self.table.refs.values()))[:2])

    def take(self, *, ref: str | None = "main") -> None:
        """Commit, or stage, a file that is a candidate."""
        if left := self._left():
            path = self.choose.choice(left)
            self.taken.add(path)
            self.table.append(paths=[path], ref=ref)
            if ref is None:
                self.staged.append(self.table.document["snapshots"][-1])

    def stage(self) -> None:
        self.take(ref=None)

    def cherry_pick(self) -> None:
        """Publish a staged snapshot, or one that the expiry removed, as a new one with the manifests of that."""
        if found := self._whole():
            one = self.choose.choice(found)
            self.table.snapshot(self.table.lake.lists[one["manifest-list"]])
            self.taken |= self.table.lake.read_by({"snapshots": [one]})

    def recommit(self) -> None:
        """Add a snapshot again that was removed, as an engine that repeats its commit; it keeps its manifest list."""
        document = self.table.document
        found = [one for one in self._whole() if one["snapshot-id"] not in self.table.ids]
        if found:
            one = self.choose.choice(found)
            fresh = {**one, "sequence-number": document["last-sequence-number"] + 1}
            self.table.apply({"action": "add-snapshot", "snapshot": {**fresh, "timestamp-ms": self.table.lake.now_ms}})
            self.taken |= self.table.lake.read_by({"snapshots": [one]})

    def roll_back(self) -> None:
        self.table.rollback(self.choose.choice(self.table.ids))

    def statistics(self) -> None:
        self.table.statistics(self.choose.choice(self.table.ids))

    def _whole(self) -> list[dict[str, Any]]:
        """Return snapshots of which every file is left."""
        there = self.table.lake.uris()
        return [one for one in (*self.removed, *self.staged) if self.table.lake.read_by({"snapshots": [one]}) <= there]

    def act(self) -> None:
        """Do one of these things."""
        acts = [self.append, self.take, self.stage, self.cherry_pick, self.recommit, self.roll_back, self.statistics]
        self.choose.choice(acts)()


@dataclass
class Outcome:
    """How a history ended."""

    kind: str
    status: str
    missing: set[str]
    deleted: int
    taken: int
    seconds: float


class BusyHistory(Story):
    """An expiry or a removal, in turn, with an event before most of its loads."""

    steps = 0
    events = 0.7

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.kind = KINDS[seed % len(KINDS)]

    def end(self) -> None:
        clock = TableClock()
        world: Any = ExpiringTables() if self.kind == "expiry" else SweptTables()
        table = StoryTable.create(world.lake)
        busy = _expiring(table, self.random) if self.kind == "expiry" else _with_orphans(world, table, self.random)

        def event() -> None:
            clock.pass_()
            if self.random.random() < self.events:
                busy.act()

        before = world.lake.uris()
        # Lots grow while they take less than five seconds.
        status = _run(self.kind, world, table, clock, event, lambda: clock.pass_(6))
        missing = {path for paths in world.lake.readable().values() for path in paths}
        self.counts.update({f"{self.kind} {status}": 1, "deleted": len(before - world.lake.uris())})
        self.counts["taken"] += len(busy.taken)
        if missing or status not in DONE:
            raise WrongOutcome(f"{self.kind} {status}, {sorted(missing)} are missing")


class BusiestHistory(BusyHistory):
    """The same with an event before each load."""

    events = 1.0


def _expiring(table: StoryTable, choose: random.Random) -> BusyTable:
    """Return a table with snapshots, some of them staged, that an expiry removes, and files that only they have."""
    for _ in range(choose.randint(2, 5)):
        table.append(choose.randint(1, 4))
        table.append(choose.randint(1, 3), ref=None)
        table.delete(*table.live())
    table.append()
    removed = [one for one in table.document["snapshots"] if one["snapshot-id"] not in table.refs.values()]
    files = sorted(table.lake.read_by({"snapshots": removed}) - set(table.live()))
    return BusyTable(table, choose, [path for path in files if path.endswith(".parquet")], removed)


def _with_orphans(world: Any, table: StoryTable, choose: random.Random) -> BusyTable:
    table.append(2)
    files = [world.orphan(f"{table.folder}/data/o{number:03d}.parquet") for number in range(choose.randint(4, 20))]
    world.lake.pass_days(4)
    return BusyTable(table, choose, files)


def play_hours(kind: str, files: int, *, most_seconds: float = 36_000) -> Outcome:
    """Work on a table with a commit every second; a purge is of another table, of which it has a file.

    A load takes two seconds and a batch of three deletes eight.
    """
    clock = TableClock()
    world: Any = ExpiringTables() if kind == "expiry" else SweptTables()
    lake = world.lake
    lake.successive = True
    table = StoryTable.create(lake)
    candidates = _candidates(kind, world, table, files)
    busy, before, done = BusyTable(table, random.Random(1), ()), lake.uris(), 0

    def pass_(seconds: float) -> None:
        """Let time pass, and the table have a commit each second."""
        nonlocal done
        clock.pass_(seconds)
        while done < min(clock.seconds, most_seconds):
            busy.append()
            done += 1

    if kind == "purge":
        status = _purge(world, StoryTable(lake, "other", "s3://lake/wh/other"), clock, lambda: pass_(2))
    else:
        status = _run(kind, world, table, clock, lambda: pass_(2), lambda: pass_(8))
    missing = {path for paths in lake.readable().values() for path in paths}
    return Outcome(kind, status, missing, len(candidates & (before - lake.uris())), done, clock.seconds)


def _candidates(kind: str, world: Any, table: StoryTable, files: int) -> set[str]:
    if kind == "orphans":
        found = {world.orphan(f"{table.folder}/data/o{number:06d}.parquet") for number in range(files)}
        world.lake.pass_days(4)
        return found
    of = table if kind == "expiry" else StoryTable.create(world.lake, "other")
    of.append(files)
    found = set(of.live())
    if kind == "expiry":
        of.snapshot([])
    else:
        shared = min(found)
        table.append(paths=[shared])
        table.tag("kept", table.refs["main"])
        found.remove(shared)
    return found


def _purge(world: SweptTables, table: StoryTable, clock: TableClock, event: Callable[[], None]) -> str:
    usual = world.context(table)
    usual.tables.before = Each(event)  # type: ignore[attr-defined]

    def neighbours(_roots: object) -> Iterator[Any]:
        event()
        yield from world.others(table.name)

    ctx = PurgeContext(
        attempt=usual.attempt,
        identifier=identifier(table.name),
        table_uuid=usual.table_uuid,
        tables=usual.tables,
        store=usual.store,
        plans=usual.plans,
        settings=PurgeSettings(chunk_paths=3, read_threads=1, delete=FAST),
        neighbours=neighbours,
        clock=usual.clock,
        now=lambda: clock.seconds,
        sleep=lambda _seconds: None,
    )
    status = purge_table(ctx).status
    del world.lake.pointers[table.name]
    return str(status)


def _run(
    kind: str,
    world: Any,
    table: StoryTable,
    clock: TableClock,
    event: Callable[[], None],
    deletes: Callable[[], None] = lambda: None,
) -> str:
    """Run attempts until one ends the work; return its status, or the code of the last error."""
    error = "NONE"
    for _ in range(_MOST_ATTEMPTS):
        ctx = replace(world.context(table), now=lambda: clock.seconds)
        catalog: StandInCatalog = ctx.tables
        catalog.before = Each(event)
        _slow(ctx.store, deletes)
        try:
            return str((expire_snapshots if kind == "expiry" else remove_orphan_files)(ctx).status)
        except DelegationError as found:
            error = found.code
            if not found.retryable:
                break
    return error


def _slow(store: Any, before: Callable[[], None]) -> None:
    """Let something happen before each batch of deletes."""

    def after(usual: Callable[..., Any]) -> Callable[..., Any]:
        def called(*given: Any) -> Any:
            before()
            return usual(*given)

        return called

    for name in ("delete", "delete_unchanged"):
        setattr(store, name, after(getattr(store, name)))


@contextmanager
def without_lots() -> Iterator[None]:
    """Compare no lot with what was committed since the plan was compared."""
    with (
        patch.object(SortedRows, "need_any", lambda *_: False),
        patch.object(NeededAtLocation, "needed_among", lambda *_: iter(())),
    ):
        yield


MUTATIONS: Final[dict[str, Callable[[], AbstractContextManager[None]]]] = {"none": nullcontext, "lots": without_lots}
