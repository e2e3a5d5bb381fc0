"""One run of mark and sweep: its three steps, each of which can be stopped and continued anywhere."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, TypeVar

from pydantic import Field

from polaris_persistence.backends.base import (
    Backend,
    Locator,
    ObjectKey,
    Reference,
    ReferenceKey,
    ScanPage,
    Segment,
    key_text,
)
from polaris_persistence.errors import CorruptObject
from polaris_persistence.maintenance.keys import KeyChunk, KeySet, MaintenanceKeys, MaintenanceMarks
from polaris_persistence.maintenance.marking import Marker, fence, refusal
from polaris_persistence.objects.objects import ObjectRef, PersistedModel
from polaris_persistence.objects.store import CatalogStore, of_model

Stop = Callable[[], bool]
T = TypeVar("T")
A = TypeVar("A")

_SECOND: Final = 1_000_000
"""The precision of the database's time, in µs."""
_SCAN: Final = "scan"
_MARK: Final = "mark"
_SWEEP: Final = "sweep"


@dataclass(frozen=True, slots=True)
class SweepPolicy:
    """How long unneeded objects are kept, and how a run works.

    An object is deleted `grace` seconds after a run found it unneeded, by the next run; every listing and commit must
    be shorter. `segments` parts of the table are scanned at a time, `page` rows a call. A run's memory is stored in
    chunks of at most `chunk` keys (8 bytes each), every `checkpoint_after` seconds. The commits of the last `log_kept`
    seconds stay in the log (`commits.feed`), at most 100,000 of a reference.
    """

    grace: float = 86_400.0
    page: int = 1_000
    segments: int = 1
    chunk: int = 400_000
    checkpoint_after: float = 60.0
    lost_after: float = 600.0
    log_kept: float = 0.0


@dataclass(frozen=True, slots=True)
class RealmSweepReport:
    """The counts of a run, with those of the runs it continues. `complete` is False if it was stopped.

    `young` are objects found unneeded for the first time, which the next run deletes. `refused` has each catalog
    (`realm/catalog` as in keys), or realm, that was not swept, with the reason. `not_before` is set if the run did
    nothing because the last one is less than a grace period ago: the database's time (µs) from which a run deletes.
    """

    complete: bool = False
    references: int = 0
    marked: int = 0
    scanned: int = 0
    deleted: int = 0
    young: int = 0
    unknown: int = 0
    refused: tuple[tuple[str, str], ...] = ()
    not_before: int | None = None


class SegmentState(PersistedModel):
    """How far a segment is scanned."""

    after: str | None = None
    done: bool = False


class RunState(PersistedModel):
    """The progress of a run. `began` and `ended_marking` are the database's time in µs, refs name stored chunks.

    `marking` is the reference in progress, `marked_to` the last one completed, `refused` the reasons by realm and
    `refused_catalogs` those by realm and catalog, `swept` how many of the unmarked keys were decided, `unneeded` those
    kept for the next run.
    """

    began: int
    step: str = _SCAN
    segments: tuple[SegmentState, ...]
    scanned: tuple[ObjectRef, ...] = ()
    marks: ObjectRef | None = None
    marking: tuple[str, ...] | None = None
    marked_to: tuple[str, ...] | None = None
    refused: dict[str, str] = Field(default_factory=dict)
    refused_catalogs: dict[str, dict[str, str]] = Field(default_factory=dict)
    ended_marking: int = 0
    swept: int = 0
    unneeded: tuple[ObjectRef, ...] = ()
    counts: dict[str, int] = Field(default_factory=dict)


class SweepState(PersistedModel):
    """Kept between runs: the chunks of `unneeded` keys, `since` when (the database's time in µs), and a stopped run."""

    unneeded: tuple[ObjectRef, ...] = ()
    since: int = 0
    run: RunState | None = None

    def not_before(self, policy: SweepPolicy) -> int:
        """Return the database's time in µs from which a run may delete these keys."""
        return self.since + round(policy.grace * 1e6) + _SECOND


def begun(now: int, segments: int) -> RunState:
    """Return the state of a run that starts `now`."""
    return RunState(began=now, segments=(SegmentState(),) * segments)


class SweepRun:
    """The steps of one run, for one thread; `scan` and deletions use one thread per segment."""

    def __init__(
        self,
        backend: Backend,
        store_of: Callable[[str, str], CatalogStore],
        system: CatalogStore,
        policy: SweepPolicy,
        kept: SweepState,
        *,
        stop: Stop,
        clock: Callable[[], float],
    ) -> None:
        self._backend = backend
        self._store_of = store_of
        self._system = system
        self._policy = policy
        self._kept = kept
        self._stop = stop
        self._clock = clock
        self._saved_at = clock()
        self._checkpoint: Callable[[RunState], None] = lambda _state: None
        self._chunk = KeyChunk()
        self._keys: KeySet | None = None
        self._pending: list[ObjectRef] = []
        self._beyond: set[ObjectKey] = set()

    def begin(self, state: RunState) -> None:
        """Start with the scan."""
        self._state = state

    def resume(self, state: RunState) -> bool:
        """Continue a stopped run; return False if its chunks are missing or damaged, so that it has to start again."""
        if state.step == _SCAN:
            self._state = state
            return True
        try:
            keys = self._load(state.scanned)
            found = self._system.fetch(state.marks, MaintenanceMarks) if state.marks else None
            if keys is None or (state.marks is not None and found is None):
                return False
            if found is not None:
                keys.restore(found.value.bits)
        except CorruptObject:
            return False
        self._state, self._keys = state, keys
        if found is not None:
            self._pending = [ObjectRef(*ref) for ref in found.value.pending]
            self._beyond = {ObjectKey(*key) for key in found.value.beyond}
        return True

    def on_checkpoint(self, checkpoint: Callable[[RunState], None]) -> None:
        """Set what stores the state; it raises TaskTakenOver."""
        self._checkpoint = checkpoint

    @property
    def report(self) -> RealmSweepReport:
        counts = self._state.counts
        return RealmSweepReport(
            references=counts.get("references", 0),
            marked=counts.get("marked", 0),
            scanned=counts.get("scanned", 0),
            deleted=counts.get("deleted", 0),
            young=counts.get("young", 0),
            unknown=counts.get("unknown", 0),
            refused=refusals(self._state.refused, self._state.refused_catalogs),
        )

    def scan(self) -> bool:
        """Collect the keys of all objects that may be deleted; return False if it was stopped."""
        while self._state.step == _SCAN:
            active = [number for number, segment in enumerate(self._state.segments) if not segment.done]
            if not active:
                self._enter(_MARK)
                return True
            if self._stop():
                return False
            segments = list(self._state.segments)
            for number, page in zip(active, self._at_once(self._page, active), strict=True):
                self._collect(page)
                segments[number] = SegmentState(after=page.after, done=page.after is None)
            self._set(segments=tuple(segments))
            self._save_if_due()
        return True

    def mark(self) -> bool:
        """Fence every reference and mark what it needs; return False if it was stopped."""
        if self._state.step != _MARK:
            return True
        for reference in sorted(self._backend.references(), key=lambda reference: reference.key):
            name = (reference.key.realm, reference.key.catalog, reference.key.name)
            if self._state.marked_to is not None and name <= self._state.marked_to:
                continue
            try:
                if not self._is_refused(*name[:2]) and not self._mark_one(reference, name):
                    return False
            except Exception as error:  # noqa: BLE001 - whatever a type raises, it is this catalog's alone
                self._refuse(reference.key, refusal(error))
            self._pending = []
            self._set(marked_to=name, marking=None)
            self._count(references=1)
            self._save_if_due()
        self._count(marked=self._scanned().marked())
        self._set(ended_marking=self._backend.time() + _SECOND)
        self._enter(_SWEEP)
        return True

    def sweep(self) -> bool:
        """Delete what is unneeded in this run and in the last one; return False if it was stopped."""
        may_delete = self._state.began >= self._kept.not_before(self._policy)
        before = (self._load(self._kept.unneeded) if may_delete else None) or KeySet()
        unmarked = itertools.islice(self._scanned().unmarked(), self._state.swept, None)
        for batch in _batches(unmarked, self._policy.page):
            if self._stop():
                return False
            mine = [locator for locator in batch if not self._is_refused(locator.key.realm, locator.key.catalog)]
            doomed = [locator for locator in mine if locator.key in before]
            self._delete(doomed)
            for locator in mine:
                if locator.key not in before:
                    self._remember(locator)
            self._count(deleted=len(doomed), young=len(mine) - len(doomed))
            self._set(swept=self._state.swept + len(batch))
            self._save_if_due()
        self._flush()
        return True

    def outcome(self) -> SweepState:
        return SweepState(unneeded=self._state.unneeded, since=self._state.ended_marking)

    def save(self) -> None:
        self._flush()
        old = self._state.marks
        if self._state.step == _MARK or (self._state.step == _SWEEP and old is None):
            marks = MaintenanceMarks(
                bits=self._scanned().bits(),
                beyond=tuple((key.realm, key.catalog, key.type, key.id) for key in self._beyond),
                pending=tuple(tuple(ref) for ref in self._pending),
            )
            [ref] = self._system.write([marks])
            self._set(marks=ref)
        self._checkpoint(self._state)
        if old is not None and old != self._state.marks:
            self._system.delete([old])
        self._saved_at = self._clock()

    def delete_chunks(self) -> None:
        """Delete what was stored for this run and the keys that the last one found."""
        marks = (self._state.marks,) if self._state.marks else ()
        done = [*self._kept.unneeded, *self._state.scanned, *marks]
        if done:
            self._system.delete(done)

    def _page(self, number: int) -> ScanPage:
        segments = self._state.segments
        segment = Segment(number, len(segments))
        return self._backend.scan(after=segments[number].after, limit=self._policy.page, segment=segment)

    def _collect(self, page: ScanPage) -> None:
        unknown = page.unread
        for row in page.rows:
            if row.token is not None:
                continue
            if self._system.types.get(row.key.type) is None:
                unknown += 1
            else:
                self._remember(Locator(row.key, row.parts))
        self._count(scanned=len(page.rows) + page.unread, unknown=unknown)

    def _mark_one(self, reference: Reference, name: tuple[str, ...]) -> bool:
        store = self._store_of(reference.key.realm, reference.key.catalog)
        since = self._state.began - round(self._policy.log_kept * 1e6) if self._policy.log_kept else None
        marker = Marker(self._system.types, self, log_since=since)
        if self._state.marking != name:
            if self._stop():
                return False
            if self._state.marked_to is not None and self._state.marked_to[:2] != name[:2]:
                self._beyond = set()
            fenced = fence(self._backend, reference)
            self._pending = marker.begin(store, fenced) if fenced else []
            self._set(marking=name)
        while self._pending:
            if self._stop():
                return False
            marker.advance(store, self._pending)
            self._save_if_due()
        return True

    def add(self, key: ObjectKey) -> bool:
        """Mark a key (MarkSet). A key that was written after the scan is remembered while its catalog is marked."""
        new = self._scanned().mark(key)
        if new is None:
            new = key not in self._beyond
            self._beyond.add(key)
        return new

    def _delete(self, doomed: Sequence[Locator]) -> None:
        if not doomed:
            return
        share = -(-len(doomed) // len(self._state.segments))
        self._at_once(self._backend.delete_many, list(_batches(doomed, share)))

    def _at_once(self, call: Callable[[A], T], arguments: Sequence[A]) -> list[T]:
        if len(arguments) == 1:
            return [call(arguments[0])]
        with ThreadPoolExecutor(len(arguments)) as pool:
            return list(pool.map(call, arguments))

    def _remember(self, locator: Locator) -> None:
        if self._chunk.count >= self._policy.chunk:
            self._flush()
        self._chunk.add(locator.key, locator.parts)

    def _flush(self) -> None:
        """Write the collected keys as a chunk of the present step."""
        if not self._chunk.count:
            return
        [ref] = self._system.write([self._chunk.value()])
        self._chunk = KeyChunk()
        if self._state.step == _SCAN:
            self._set(scanned=(*self._state.scanned, ref))
        else:
            self._set(unneeded=(*self._state.unneeded, ref))

    def _scanned(self) -> KeySet:
        if self._keys is None:
            self._keys = self._load(self._state.scanned) or KeySet()
        return self._keys

    def _load(self, refs: Iterable[ObjectRef]) -> KeySet | None:
        """Return the keys of stored chunks, None if one is missing or damaged."""
        try:
            found = self._system.fetch_many(refs)
            present = [of_model(loaded, MaintenanceKeys).value for loaded in found if loaded is not None]
            return KeySet(present) if len(present) == len(found) else None
        except CorruptObject:
            return None

    def _is_refused(self, realm: str, catalog: str) -> bool:
        return realm in self._state.refused or catalog in self._state.refused_catalogs.get(realm, {})

    def _refuse(self, key: ReferenceKey, reason: str) -> None:
        """Exclude a catalog from the sweep; a whole realm if the catalog is not known."""
        if not key.name:
            self._set(refused={**self._state.refused, key.realm: reason})
            return
        catalogs = self._state.refused_catalogs
        self._set(refused_catalogs={**catalogs, key.realm: {**catalogs.get(key.realm, {}), key.catalog: reason}})

    def _enter(self, step: str) -> None:
        self._flush()
        if step == _SWEEP:
            self.save()
        self._set(step=step)
        self.save()

    def _save_if_due(self) -> None:
        if self._clock() - self._saved_at >= self._policy.checkpoint_after:
            self.save()

    def _count(self, **more: int) -> None:
        counts = self._state.counts
        self._set(counts={**counts, **{name: counts.get(name, 0) + count for name, count in more.items()}})

    def _set(self, **fields: object) -> None:
        self._state = self._state.model_copy(update=fields)


def refusals(realms: Mapping[str, str], catalogs: Mapping[str, Mapping[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return the excluded realms and catalogs in the form of a report."""
    found = {key_text(realm, catalog): why for realm, some in catalogs.items() for catalog, why in some.items()}
    return tuple(sorted({**realms, **found}.items()))


def _batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    rest = iter(items)
    return iter(lambda: list(itertools.islice(rest, size)), [])
