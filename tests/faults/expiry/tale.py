"""One expiry among events, each of which happens just before a chosen call of a store, the catalog or the policies.

What an event makes others depend on is a promise from the next look on that the expiry takes before it deletes: a load
of the table, a pass over the other tables, a look at the policy. What happens between a look and the deletes that
follow it cannot be seen, by Iceberg's own action neither: such a case is a window, counted and not checked.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

from delegation.polaris.answers import PolarisError, PolarisOutcomeUnknown, PolarisUnavailable
from delegation.polaris.credentials import VendedCredentials
from delegation.polaris.model import LoadedTable
from delegation.removal.attempt import PlanSegment
from delegation.removal.chunks import Phase
from delegation.removal.errors import PlanLost
from delegation.removal.expiry.context import ExpiryContext, ExpiryIndex, ExpiryResult
from delegation.removal.expiry.errors import RefLost, RefsUnknown, check_table
from delegation.removal.expiry.planning import metadata_of
from delegation.removal.expiry.retention import Permission, Retention, Withdrawn
from delegation.removal.expiry.run import expire_snapshots
from delegation.removal.index import load_index_as, planned_paths
from delegation.storage.base import BatchResult
from delegation.storage.locations import ObjectLocation
from delegation.storage.memory import Faults, Killed, MemoryObjectStore
from polaris_common.errors import DelegationError
from tests.kit.stories.expiries import ExpiringTables
from tests.kit.stories.tables import MINUTE, StandInCatalog, StoryTable, Warehouse

Look = Literal["load", "neighbours", "policy", "renewal"]
Answer = Literal["at once", "lost", "late"]
"""Of the first commit: it is made and answered, made and not answered, or neither until an event has it arrive."""
Ended = ExpiryResult | DelegationError
Expire = Callable[[ExpiryContext], ExpiryResult]
"""One attempt by an engine."""
FOREVER: Final = 2**62
ASKED: Final = Retention(older_than_ms=FOREVER, retain_last=1, max_ref_age_ms=3 * MINUTE)
"""What the expiry is asked for: whatever no ref is at, and refs whose snapshots are older than three minutes."""
TIGHT: Final = {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "2"}
_MOST_ATTEMPTS: Final = 12
_A_DAY: Final = 25 * 60 * MINUTE
_SOON: Final = 10 * MINUTE


class Calls(Faults):
    """Runs `before[n]` before call n, and raises Killed from call `kill_at` on as Faults does; `done` took effect."""

    def __init__(
        self, before: Mapping[int, Callable[[], object]], *, kill_at: int | None = None, after: bool = False
    ) -> None:
        super().__init__(kill_at=kill_at, after=after)
        self._before = dict(before)
        self._one_at_a_time = threading.RLock()
        self.done: list[str] = []

    @contextmanager
    def call(self, name: str) -> Iterator[None]:
        # Executors call beside the driver: what happens before a call happens before all that follow.
        with self._one_at_a_time:
            act = self._before.pop(self.calls + 1, None)
            if act is not None:
                act()
            with super().call(name):
                self.done.append(name)
                yield


class Vending:
    """The table of an attempt, and credentials for an hour, which each load renews, and the store if it has to."""

    def __init__(self, tale: "Tale", calls: Calls, catalog: StandInCatalog) -> None:
        self._tale = tale
        self._calls = calls
        self._catalog = catalog
        self._credentials = self._vended(None)

    def load(self) -> LoadedTable:
        """Load the table; its credentials are used from then on."""
        table = self._dated(self._catalog.load())
        self._credentials = self._vended(table)
        return table

    def check(self, uri: str) -> None:
        """Raise the errors of a renewal, if one is due."""
        self._credentials.for_uri(uri)

    def _vended(self, table: LoadedTable | None) -> VendedCredentials:
        return VendedCredentials(self._renewed, clock=self._now, margin=timedelta(0), loaded=table)

    def _renewed(self) -> LoadedTable:
        with self._calls.call("renewal"):
            if self._tale.renewal_fails:
                raise PolarisUnavailable("the catalog does not answer", status=503)
            return self._dated(StandInCatalog(self._tale.table).load())

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._tale.lake.now_ms / 1000, UTC)

    def _dated(self, table: LoadedTable) -> LoadedTable:
        until = self._now() + timedelta(hours=1)
        return replace(table, credentials=tuple(replace(one, expires_at=until) for one in table.credentials))


class VendedStore(MemoryObjectStore):
    """A table's files, for which the vended credentials have to be valid."""

    vending: Vending

    def read(self, location: ObjectLocation, *, limit: int) -> bytes:
        self.vending.check(location.uri)
        return super().read(location, limit=limit)

    def delete(self, bucket: str, keys: Sequence[str]) -> BatchResult:
        self.vending.check(f"s3://{bucket}/{keys[0]}")
        return super().delete(bucket, keys)


@dataclass
class Promise:
    """Files that stay if `look` is taken before they are deleted; of an unpromised one `tables` may be broken."""

    look: Look
    files: frozenset[str]
    tables: tuple[str, ...]
    attempt: int
    at: int


@dataclass
class Tale:
    """A table with old snapshots, an old tag and statistics; `tight` keeps two former metadata files alone."""

    tight: bool = False
    world: ExpiringTables = field(default_factory=ExpiringTables)
    promises: list[Promise] = field(default_factory=list)
    tags: dict[str, int] = field(default_factory=dict)
    attempts: list[Calls] = field(default_factory=list)
    withdrawn: bool = False
    renewal_fails: bool = False
    late: list[Callable[[], object]] = field(default_factory=list)
    ended: Ended | None = None
    answer: Answer = "at once"
    pointer_moved: bool = False
    plan_lost: bool = False
    deleted_by_others: set[str] = field(default_factory=set)
    expire: Expire = expire_snapshots

    def __post_init__(self) -> None:
        self.is_answered = self.answer == "at once"
        self.table = StoryTable.create(self.lake)
        if self.tight:
            self.table.set(**TIGHT)
        self.uuid = str(self.table.document["table-uuid"])
        self.old = self.table.append(6)
        self.old_pointer = self.table.pointer
        self.of_old = self.table.live()
        self.table.statistics(self.old)
        self.table.tag("stale", self.old)
        self.table.delete(*self.of_old[:4])
        self.middle = self.table.append()
        self.lake.now_ms += _SOON
        self.table.append()
        self.table.rewrite_manifests()
        self.first_files = self.lake.uris()

    @property
    def lake(self) -> Warehouse:
        return self.world.lake

    def is_there(self) -> bool:
        """Whether the table has its name, and its metadata file is there."""
        return self.lake.pointers.get("t") in self.lake.uris() and self.table.document["table-uuid"] == self.uuid

    def missing(self, *without: str) -> dict[str, list[str]]:
        """Return for each table, except these, the files that it reads and that are gone."""
        found = {}
        for name, pointer in self.lake.pointers.items():
            if name not in without:
                one = Warehouse(self.lake.objects, {name: pointer}, self.lake.manifests, self.lake.lists)
                found[name] = sorted(one.readable()[name]) if pointer in self.lake.uris() else [pointer]
        return {name: files for name, files in found.items() if files}

    def has(self, snapshot_id: int) -> bool:
        """Whether the table has a snapshot."""
        return self.is_there() and snapshot_id in self.table.ids

    def files_of_old(self) -> set[str]:
        """Return what the old metadata file needs, its log included; nothing if some of it is gone."""
        if self.old_pointer not in self.lake.uris():
            return set()
        document = self.lake.document(self.old_pointer)
        files = {self.old_pointer, *(one["metadata-file"] for one in document.get("metadata-log") or ())}
        files |= self.lake.read_by(document)
        return files if files <= self.lake.uris() else set()

    def promise(self, look: Look, files: set[str], *tables: str) -> None:
        """Expect files to stay, if they are there and the look is taken before deletes."""
        calls = len(self.attempts[-1].done) if self.attempts else 0
        there = frozenset(files & self.lake.uris())
        self.promises.append(Promise(look, there, tables, len(self.attempts) - 1, calls))

    def promise_snapshot(self, snapshot_id: int) -> None:
        """Expect what a snapshot of the table reads to stay."""
        self.promise("load", self.lake.read_by(self.table.document, [snapshot_id]))

    def is_seen(self, promise: Promise) -> bool:
        """Whether the attempt in which a promise was made took its look before it deleted anything further."""
        if promise.attempt < 0:
            return True
        names = self.attempts[promise.attempt].done[promise.at :]
        for name in names:
            if name == promise.look or (name, promise.look) == ("load", "renewal"):
                return True
            if name == "delete":
                return False
        return True

    def context(self, calls: Calls) -> ExpiryContext:
        """Return the context of a new attempt."""
        self.attempts.append(calls)
        self.renewal_fails = False
        ctx = self.world.context(self.table, ASKED, faults=calls, table_uuid=self.uuid)
        catalog, neighbours = self.world.catalogs[-1], ctx.neighbours
        commit = catalog.commit_table

        def looked(roots: Any) -> Any:
            with calls.call("neighbours"):
                return neighbours(roots)

        def permitted(_table: LoadedTable) -> Permission:
            with calls.call("policy"):
                return Withdrawn("the policy is detached") if self.withdrawn else ASKED

        def arrives(*call: Any) -> None:
            late = StandInCatalog(self.table)
            self.world.catalogs.append(late)
            late.commit_table(*call)

        def unanswered(*call: Any) -> LoadedTable:
            answer, self.answer = self.answer, "at once"
            if answer == "late":
                self.late.append(lambda: arrives(*call))
                raise PolarisOutcomeUnknown("Polaris did not answer", status=None)
            found = commit(*call)
            if answer == "lost":
                raise PolarisOutcomeUnknown("Polaris did not answer", status=None)
            return found

        def check(table: LoadedTable) -> None:
            check_table(metadata_of(table), table_uuid=self.uuid)

        catalog.commit_table = unanswered  # type: ignore[method-assign,assignment]
        vending, store = Vending(self, calls, catalog), VendedStore(faults=calls)
        store.objects, store.vending = self.lake.objects, vending
        return replace(ctx, tables=vending, store=store, neighbours=looked, permitted=permitted, check=check)

    def attempt(self, calls: Calls) -> Ended | None:
        """Run one attempt; return how the task ends, None if it is tried again."""
        try:
            self.ended = self.expire(self.context(calls))
        except Killed:
            return None
        except DelegationError as error:
            self.ended = error
            return None if error.retryable else error
        return self.ended

    def finish(self) -> Ended:
        """Run further attempts until the task ends; raise AssertionError if it does not."""
        self.ended = None
        for number in range(_MOST_ATTEMPTS):
            found = self.attempt(Calls({}))
            if found is not None:
                return found
            self.lake.now_ms += _A_DAY if number == _MOST_ATTEMPTS // 2 else _SOON
        raise AssertionError(f"the task does not end: {self.ended!r}")

    def arrive(self) -> None:
        """Have a commit without an answer be applied now."""
        if self.late:
            try:
                self.late.pop()()
            except PolarisError:
                return

    def wrong(self, ended: Ended) -> list[str]:
        """Return what is wrong now that the task ended."""
        return [*self.wrong_files(), *self._wrong_tags(ended), *self._wrong_words(ended)]

    def wrong_files(self) -> list[str]:
        """Return which files are missing that somebody reads."""
        unseen = {name for one in self.promises if not self.is_seen(one) for name in one.tables}
        # A table that was broken in a window is broken under its next name, too.
        missing = self.missing(*unseen, *(("renamed", "twin") if "t" in unseen else ()))
        kept = {path for one in self.promises if self.is_seen(one) for path in one.files}
        lost = sorted(kept - self.lake.uris() - self.deleted_by_others)
        return [
            *([f"tables miss files: {missing}"] if missing else []),
            *([f"promised files are gone: {lost}"] if lost else []),
            *self._wrong_commits(),
        ]

    def _wrong_commits(self) -> Iterator[str]:
        """Yield what is wrong with the commits: one whose answer is lost is followed by what expired of the plan since.

        A lost plan is made anew of what is expired then; a clone under the table's name has its snapshots still.
        """
        applied = [updates for one in self.world.catalogs for updates in one.applied]
        removed = [one for updates in applied for update in updates for one in update.get("snapshot-ids", ())]
        if len(applied) > 1 and self.is_answered and not self.plan_lost:
            yield f"{len(applied)} commits"
        if len(removed) != len(set(removed)) and not self.pointer_moved:
            yield f"two commits removed the same snapshots: {removed}"

    def windows(self) -> int:
        """Return how many promises were made in a window that the expiry cannot see."""
        return sum(not self.is_seen(one) for one in self.promises)

    def _wrong_tags(self, ended: Ended) -> Iterator[str]:
        if not self.is_there() or self.pointer_moved:
            return
        if isinstance(ended, ExpiryResult) and "EARLIER_PLAN_LOST" in {one.code for one in ended.findings}:
            # Nothing knows any more which snapshots the lost plan removed; no file of theirs was deleted.
            return
        for name, snapshot_id in self.tags.items():
            if self.table.refs.get(name) == snapshot_id or isinstance(ended, RefsUnknown):
                continue
            if not (isinstance(ended, RefLost) and name in ended.refs):
                yield f"the ref {name} is lost, and the task ended with {ended!r}"

    def _wrong_words(self, ended: Ended) -> Iterator[str]:
        """Yield what the task's end says that is not so."""
        self.world.plans.faults = Faults()
        if not isinstance(ended, ExpiryResult):
            return
        codes = {one.code for one in ended.findings}
        if self.is_there() and not self.pointer_moved:
            if still := set(ended.refs) & self.table.refs.keys():
                yield f"it says that it removed refs that are there: {sorted(still)}"
            if here := set(ended.snapshot_ids) & set(self.table.ids):
                yield f"it says that it removed snapshots that are there: {sorted(here)}"
        indexes = self._indexes()
        if "EARLIER_PLAN_LOST" in codes or not indexes:
            return
        if ended.status == "EXPIRED":
            planned = set(planned_paths(self.world.plans, indexes[:1], (Phase.DATA, Phase.META)))
            named = set(planned_paths(self.world.plans, indexes, (Phase.KEPT,)))
            if left := (planned & self.lake.uris()) - named:
                yield f"files of its plan are left, and not named: {sorted(left)}"
        if ended.status == "NOTHING" and self.has_lost_any(indexes[-1]) and not self.pointer_moved:
            yield "it says that nothing was changed, and snapshots of its plan are gone"
        if ended.status == "STOPPED" and ended.snapshot_ids and ended.receipt not in self.world.plans.objects:
            yield "it stopped after its commit without a receipt"

    def has_lost_any(self, index: ExpiryIndex) -> bool:
        """Whether any snapshot of the plan is gone."""
        return self.is_there() and not set(index.removal.snapshot_ids) <= set(self.table.ids)

    def _indexes(self) -> list[ExpiryIndex]:
        """Return the plan and those that it reduced, the first one first; none if a part of them is lost."""
        if not self.world.head.read():
            return []
        try:
            index = self.world.plan()
            reduced = [
                load_index_as(ExpiryIndex, self.world.plans, PlanSegment(one.id, one.sha256)) for one in index.reduces
            ]
            indexes = [*reduced, index]
            for _ in planned_paths(self.world.plans, indexes, Phase):
                pass
        except PlanLost:
            return []
        return indexes
