"""Deleting the chunks of a plan: only objects that are still as they were listed, and what became of each chunk.

Beside the marks of all plans, `{plan}/changed/{chunk}-{files}-{bytes}` has the files of a chunk that stay because
somebody wrote them again, and `{plan}/looked/{chunk}-{files}` says how many were deleted after a look alone. `markers`
has what was deleted in a bucket with versions.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from threading import Lock

from delegation.operations.orphans.context import OrphanContext
from delegation.operations.orphans.index import Candidate, OrphanIndex, read_candidates
from delegation.operations.orphans.markers import record_markers
from delegation.storage.base import BatchResult, PlanStore
from delegation.storage.deleter import Deleter
from delegation.storage.listing.model import CHANGED, ListableStore, ListedObject
from delegation.storage.locations import split, uri_of
from delegation.storage.lots import THROTTLED, Outcome
from delegation.worksets.engines.inline import Tally, Work
from delegation.worksets.index import SAMPLE
from delegation.worksets.limits import PlanGuard
from delegation.worksets.marks import Absent, Marks


@dataclass(frozen=True, slots=True)
class OrphansDeleted:
    """What the chunks of a plan that are done came to; `bytes` has neither those of `absent` nor of `changed` files."""

    files: int = 0
    bytes: int = 0
    absent: int = 0
    changed: int = 0
    looked_only: int = 0

    def __add__(self, other: "OrphansDeleted") -> "OrphansDeleted":
        return OrphansDeleted(
            self.files + other.files,
            self.bytes + other.bytes,
            self.absent + other.absent,
            self.changed + other.changed,
            self.looked_only + other.looked_only,
        )


class ConditionalStore:
    """A store whose deletes have the condition of the listing, for the Deleter; it knows the objects in flight.

    Delete markers are recorded beside the plan with each batch: a process that dies later still says which are its own.
    """

    def __init__(self, store: ListableStore, plans: PlanStore, nonce: Callable[[], str]) -> None:
        self._store = store
        self._plans = plans
        self._nonce = nonce
        self._lock = Lock()
        self._listed: dict[tuple[str, str], ListedObject] = {}
        self.looked_only: dict[str, int] = {}
        self._chunk_of: dict[tuple[str, str], str] = {}
        self._plan_id = ""

    def begin(self, plan_id: str) -> None:
        """Forget what an interrupted run left; what is deleted from here on is of this plan."""
        with self._lock:
            self._plan_id = plan_id
            for known in (self._listed, self._chunk_of, self.looked_only):
                known.clear()

    def expect(self, chunk: str, bucket: str, some: Sequence[Candidate]) -> None:
        """Take a chunk's objects as they were listed."""
        with self._lock:
            for one in some:
                listed = one.listed()
                self._listed[bucket, listed.key] = listed
                self._chunk_of[bucket, listed.key] = chunk

    def forget(self, chunk: str) -> int:
        """Forget a chunk's objects; return how many of them were deleted after a look alone."""
        with self._lock:
            for name in [name for name, of in self._chunk_of.items() if of == chunk]:
                del self._chunk_of[name], self._listed[name]
            return self.looked_only.pop(chunk, 0)

    def delete(self, bucket: str, keys: Sequence[str]) -> BatchResult:
        """See ObjectStore.delete: an object that is not as it was listed is a failure with the code CHANGED."""
        with self._lock:
            listed = [self._listed[bucket, key] for key in keys]
            chunk = self._chunk_of[bucket, keys[0]]
        found = self._store.delete_unchanged(bucket, listed)
        named = [(uri_of(bucket, one.key), one) for one in listed]
        record_markers(self._plans, self._plan_id, self._nonce(), named, found.markers)
        with self._lock:
            self.looked_only[chunk] = self.looked_only.get(chunk, 0) + found.looked_only
        return found.result


def delete_chunks(
    plans: PlanStore, works: Iterable[Work], store: ConditionalStore, deleter: Deleter, checkpoint: Callable[[], None]
) -> Iterator[tuple[Work, Tally]]:
    """Delete chunks of one plan, several at a time, with a deleter of this store.

    Yields what failed of each after it is marked, if every object is deleted or stays because it changed.
    """
    with closing(deleter.delete_each(_lots(plans, works, store), checkpoint)) as done:
        for work, outcome in done:
            marks = Marks(plans, work.index.plan_id, work.voided)
            failures = [one for one in outcome.failures if one.code != CHANGED]
            _record(plans, work, marks, outcome, store.forget(work.chunk.name))
            bad = [(one.path, one.code) for one in failures]
            if bad:
                marks.keep_failures(work.chunk, bad)
            else:
                marks.mark_done(work.chunk)
            yield (
                work,
                Tally(
                    failed=len(bad),
                    permanent=sum(not one.transient for one in failures),
                    throttled=sum(one.code in THROTTLED for one in failures),
                    sample=tuple(bad[:SAMPLE]),
                ),
            )


def _lots(
    plans: PlanStore, works: Iterable[Work], store: ConditionalStore
) -> Iterator[tuple[Work, Sequence[Candidate]]]:
    for work in works:
        index, chunk = work.index, work.chunk
        some = read_candidates(plans, index.plan_id, chunk)
        PlanGuard(index).check_all([one.path for one in some], f"{index.plan_id}/{chunk.name}")
        store.expect(chunk.name, split(index.roots[0])[0], some)
        yield work, some


def _record(plans: PlanStore, work: Work, marks: Marks, outcome: Outcome, looked_only: int) -> None:
    """Store what a chunk came to besides its mark, before the mark."""
    plan_id, chunk = work.index.plan_id, work.chunk
    if outcome.delete_markers:
        marks.mark_versioned()
    if outcome.absent and marks.absent_of(chunk) is None and not marks.has_result(chunk):
        marks.mark_absent(chunk, Absent(outcome.absent, outcome.absent_bytes))
    changed = sorted(one.path for one in outcome.failures if one.code == CHANGED)
    if changed:
        sizes = {one.path: one.size for one in read_candidates(plans, plan_id, chunk)}
        name = f"{chunk.name}-{len(changed)}-{sum(sizes[path] for path in changed)}"
        plans.put(f"{plan_id}/changed/{name}", "".join(json.dumps(one) + "\n" for one in changed).encode())
    if looked_only:
        plans.put(f"{plan_id}/looked/{chunk.name}-{looked_only}-0", b"{}\n")


def swept(ctx: OrphanContext, indexes: Sequence[OrphanIndex]) -> OrphansDeleted:
    """Return what the chunks of plans that are done came to."""
    total = OrphansDeleted()
    for index in indexes:
        marks = Marks(ctx.plans, index.plan_id)
        done, found = marks.done(), marks.deleted(index.chunks)
        changed = _figures(ctx, f"{index.plan_id}/changed/", done)
        looked = _figures(ctx, f"{index.plan_id}/looked/", done)
        files, size = (sum(one[at] for one in changed) for at in (0, 1))
        total += OrphansDeleted(
            found.files - files, found.bytes - size, found.absent, files, sum(number for number, _ in looked)
        )
    return total


def _figures(ctx: OrphanContext, prefix: str, done: frozenset[str]) -> list[tuple[int, int]]:
    """Return the figures in names below a prefix, of chunks that are done, for each the last run's."""
    found: dict[str, tuple[int, int]] = {}
    for key in ctx.plans.keys(prefix):
        chunk, files, size = key.removeprefix(prefix).rsplit("-", 2)
        if chunk in done:
            found[chunk] = max(found.get(chunk, (0, 0)), (int(files), int(size)))
    return list(found.values())


def changed_files(ctx: OrphanContext, index: OrphanIndex) -> list[str]:
    """Return the keys of the lists of files that stay because they changed."""
    return list(ctx.plans.keys(f"{index.plan_id}/changed/"))
