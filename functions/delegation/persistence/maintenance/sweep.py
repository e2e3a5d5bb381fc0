"""Mark and sweep of objects that are no longer needed (NoSQL persistence proposal, Handling no longer needed objects).

It is safe beside running commits and frozen processes: a reference is fenced before it is marked, so that every
compare-and-set prepared earlier fails, and objects younger than the grace period are kept. What a later head names was
written after the fence or is named by the marked head.
"""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from delegation.persistence.backends.base import SYSTEM, Backend, Locator, ObjectKey, Reference
from delegation.persistence.errors import CommitOutcomeUnknown, MaintenanceRefused
from delegation.persistence.ids.snowflake import join_id
from delegation.persistence.maintenance.bloom import BloomFilter
from delegation.persistence.maintenance.coordination import CoordinatedTask, TaskRun
from delegation.persistence.maintenance.marking import Marker
from delegation.persistence.objects.objects import ObjectRef, PersistedModel
from delegation.persistence.objects.store import CatalogStore
from delegation.persistence.objects.types import ObjectType
from delegation.persistence.objects.updateable import Updateables

_FENCES: Final = 20


class MarkedObjects(PersistedModel):
    """A stored Bloom filter, with which the next run continues one that ended early."""

    bits: bytes
    size: int
    hashes: int
    salt: bytes
    count: int


FILTER_TYPE: Final = ObjectType("maintenance-filter", MarkedObjects)


@dataclass(frozen=True, slots=True)
class SweepPolicy:
    """What a run deletes and when it refuses.

    Objects younger than `grace` seconds are kept; it must exceed every listing, commit and clock difference many times.
    The filter is made for `expected` objects, or `growth` times those of the last run, with `false_positive_rate` (the
    share of garbage left for the next run). A run ends if it marks `abort_ratio` times as many objects, or if its
    filter exceeds `max_false_positive_rate`.
    """

    grace: float = 86_400.0
    expected: int = 100_000
    growth: float = 1.5
    abort_ratio: float = 2.0
    false_positive_rate: float = 1e-5
    max_false_positive_rate: float = 1e-3
    page: int = 1_000
    checkpoint_after: float = 60.0
    lost_after: float = 600.0


@dataclass(frozen=True, slots=True)
class RealmSweepReport:
    """The counts of a run, with those of the runs it continues. `complete` is False if it was stopped."""

    complete: bool = False
    references: int = 0
    marked: int = 0
    scanned: int = 0
    deleted: int = 0
    young: int = 0
    unknown: int = 0
    false_positive_rate: float = 0.0


class RealmMaintenance:
    """Runs mark and sweep over all realms of a store, in one process at a time.

    `store_of` makes a CatalogStore for (realm, catalog) that bypasses the shared cache.
    """

    def __init__(
        self,
        backend: Backend,
        store_of: Callable[[str, str], CatalogStore],
        *,
        now_us: Callable[[], int],
        policy: SweepPolicy = SweepPolicy(),
        salt: Callable[[], bytes] = lambda: secrets.token_bytes(16),
    ) -> None:
        self._backend = backend
        self._store_of = store_of
        self._system = store_of(SYSTEM, SYSTEM)
        self._now_us = now_us
        self._policy = policy
        self._salt = salt
        # An id with a reserved timestamp, as for node leases.
        key = ObjectKey(SYSTEM, SYSTEM, "coordinated-task", join_id(1, 0, 0))
        updateables = Updateables(backend, self._system.types, now_us)
        self.task = CoordinatedTask(updateables, key, policy.lost_after, now_us)

    def run(self, stop: Callable[[], bool] = lambda: False) -> RealmSweepReport:
        """Mark and sweep, or continue where the last run stopped; `stop` is called between steps.

        Raises TaskHeld, TaskTakenOver, MaintenanceRefused (nothing more is deleted; the next run gets a larger filter
        if this one was too small), CorruptObject, CommitOutcomeUnknown, BackendUnavailable.
        """
        run = self.task.start()
        progress = self._resumed(run.state) or self._begun(run.state)
        try:
            if not self._mark(run, progress, stop) or not self._sweep(run, progress, stop):
                self._save(run, progress)
                run.hand_over()
                return progress.report
        except MaintenanceRefused:
            self._finish(run, progress, max(progress.filter.count, progress.expected))
            raise
        self._finish(run, progress, progress.filter.count)
        return replace(progress.report, complete=True)

    def _begun(self, state: Mapping[str, Any]) -> "_Progress":
        policy = self._policy
        expected = max(policy.expected, round(state.get("expected", 0) * policy.growth))
        empty = BloomFilter.for_keys(expected, policy.false_positive_rate, self._salt())
        now = self._now_us()
        return _Progress(empty, expected, cutoff=now - round(policy.grace * 1e6), saved_at=now)

    def _resumed(self, state: Mapping[str, Any]) -> "_Progress | None":
        if "filter" not in state or state["cutoff"] <= self._now_us() - round(2 * self._policy.grace * 1e6):
            # The marks are still right, but the stored filter may be swept at any time.
            return None
        found = self._system.fetch(ObjectRef(*state["filter"]), MarkedObjects)
        if found is None:
            return None
        marked = found.value
        restored = BloomFilter(marked.size, marked.hashes, marked.salt, marked.bits, marked.count)
        progress = _Progress(restored, state["expected"], cutoff=state["cutoff"], saved_at=self._now_us())
        progress.stored, progress.unsaved = found.ref, False
        progress.marked_to = state["marked_to"]
        progress.swept_to = state["swept_to"]
        progress.sweeping = state["sweeping"]
        # A newer release may have stored more counts.
        known = RealmSweepReport.__slots__
        progress.report = RealmSweepReport(**{name: n for name, n in state["report"].items() if name in known})
        return progress

    def _mark(self, run: TaskRun, progress: "_Progress", stop: Callable[[], bool]) -> bool:
        if progress.sweeping:
            return True
        marker = Marker(self._system.types, progress.filter, progress.cutoff)
        for reference in sorted(self._backend.references(), key=lambda one: one.key):
            name = [reference.key.realm, reference.key.catalog, reference.key.name]
            if progress.marked_to is not None and name <= progress.marked_to:
                continue
            if stop():
                return False
            fenced = self._fenced(reference)
            if fenced is not None:
                progress.unsaved = True
                marker.mark(self._store_of(reference.key.realm, reference.key.catalog), fenced)
            if progress.filter.count > self._policy.abort_ratio * progress.expected:
                count, expected = progress.filter.count, progress.expected
                raise MaintenanceRefused(
                    f"{count} objects are needed, but the filter was made for {expected}; run again"
                )
            progress.marked_to = name
            progress.report = replace(progress.report, references=progress.report.references + 1)
            self._checkpoint(run, progress)
        rate = progress.filter.false_positive_rate()
        if rate > self._policy.max_false_positive_rate:
            raise MaintenanceRefused(f"the filter's false positive rate is {rate:.1e}, above the limit of the policy")
        progress.sweeping = True
        progress.report = replace(progress.report, marked=progress.filter.count, false_positive_rate=rate)
        self._save(run, progress)
        return True

    def _fenced(self, reference: Reference) -> Reference | None:
        """Fence a reference, so that every swap prepared before fails; return it, None if it was deleted."""
        current: Reference | None = reference
        for _ in range(_FENCES):
            if current is None:
                return None
            fenced = current.fenced()
            try:
                refused = self._backend.replace_reference(fenced, expected=current)
            except CommitOutcomeUnknown:
                current = self._backend.read_reference(reference.key)
                continue
            if refused is None:
                return fenced
            current = refused.stored
        raise MaintenanceRefused(f"reference {reference.key} moves too often to be fenced; run again later")

    def _sweep(self, run: TaskRun, progress: "_Progress", stop: Callable[[], bool]) -> bool:
        while True:
            if stop():
                return False
            page = self._backend.scan(after=progress.swept_to, limit=self._policy.page)
            locators: list[Locator] = []
            report = progress.report
            for row in page.rows:
                if row.created_at >= progress.cutoff:
                    report = replace(report, young=report.young + 1)
                elif row.token is None and row.key not in progress.filter:
                    if self._system.types.get(row.key.type) is None:
                        report = replace(report, unknown=report.unknown + 1)
                    else:
                        locators.append(Locator(row.key, row.parts))
            if locators:
                self._backend.delete_many(locators)
            deleted = report.deleted + len({one.key for one in locators})
            progress.report = replace(report, scanned=report.scanned + len(page.rows), deleted=deleted)
            progress.swept_to = page.after
            if page.after is None:
                return True
            self._checkpoint(run, progress)

    def _checkpoint(self, run: TaskRun, progress: "_Progress") -> None:
        if self._now_us() - progress.saved_at >= self._policy.checkpoint_after * 1e6:
            self._save(run, progress)

    def _save(self, run: TaskRun, progress: "_Progress") -> None:
        old = progress.stored
        if progress.unsaved:
            made = progress.filter
            marked = MarkedObjects(
                bits=bytes(made.bits), size=made.size, hashes=made.hashes, salt=made.salt, count=made.count
            )
            [progress.stored] = self._system.write([marked])
            progress.unsaved = False
        run.checkpoint(progress.state())
        if old is not None and old != progress.stored:
            self._system.delete([old])
        progress.saved_at = self._now_us()

    def _finish(self, run: TaskRun, progress: "_Progress", expected: int) -> None:
        run.finish({"expected": expected})
        # Only after that, because a run that took over from this one may be using the filter.
        if progress.stored is not None:
            self._system.delete([progress.stored])


@dataclass
class _Progress:
    filter: BloomFilter
    expected: int
    cutoff: int
    saved_at: int
    stored: ObjectRef | None = None
    unsaved: bool = True
    marked_to: list[str] | None = None
    swept_to: str | None = None
    sweeping: bool = False
    report: RealmSweepReport = RealmSweepReport()

    def state(self) -> dict[str, Any]:
        return {
            "filter": list(self.stored) if self.stored else None,
            "expected": self.expected,
            "cutoff": self.cutoff,
            "marked_to": self.marked_to,
            "swept_to": self.swept_to,
            "sweeping": self.sweeping,
            "report": {name: getattr(self.report, name) for name in RealmSweepReport.__slots__},
        }
