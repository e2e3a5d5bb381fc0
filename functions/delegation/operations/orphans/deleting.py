"""Deleting the chunks of a plan: only objects that are still as they were listed, and what became of each chunk.

Beside the marks of all plans, `{plan}/changed/{chunk}-{files}-{bytes}` has the files of a chunk that stay because
somebody wrote them again, and `{plan}/looked/{chunk}-{files}` says how many were deleted after a look alone. `markers`
has what was deleted in a bucket with versions.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from threading import Lock

from delegation.operations.orphans.context import OrphanContext
from delegation.operations.orphans.index import Candidate, OrphanIndex, read_candidates
from delegation.operations.orphans.markers import record_markers
from delegation.storage.base import BatchResult
from delegation.storage.deleter import Deleter
from delegation.storage.listing.model import CHANGED, ListableStore, ListedObject
from delegation.storage.locations import split, uri_of
from delegation.storage.lots import THROTTLED, Outcome
from delegation.worksets.chunks import Chunk
from delegation.worksets.errors import FilesNotDeleted, FilesNotDeletedYet, FilesThrottled
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


class _Conditional:
    """A store whose deletes have the condition of the listing, for the Deleter; it knows the objects in flight.

    Delete markers are recorded beside the plan with each batch: a process that dies later still says which are its own.
    """

    def __init__(self, ctx: OrphanContext, plan_id: str) -> None:
        self._store: ListableStore = ctx.store
        self._ctx = ctx
        self._plan_id = plan_id
        self._lock = Lock()
        self._listed: dict[tuple[str, str], ListedObject] = {}
        self.looked_only: dict[str, int] = {}
        self._chunk_of: dict[tuple[str, str], str] = {}

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
        record_markers(self._ctx.plans, self._plan_id, self._ctx.nonce(), named, found.markers)
        with self._lock:
            self.looked_only[chunk] = self.looked_only.get(chunk, 0) + found.looked_only
        return found.result


def delete_chunks(ctx: OrphanContext, index: OrphanIndex, chunks: Sequence[Chunk]) -> None:
    """Delete chunks and mark those of which every object is deleted or stays because it changed.

    Raises FilesNotDeleted, or FilesNotDeletedYet if only transient failures are left, after all of them.
    """
    store, marks = _Conditional(ctx, index.plan_id), Marks(ctx.plans, index.plan_id)
    bad: list[tuple[str, str]] = []
    count = permanent = throttled = 0
    deleter = Deleter(store, ctx.settings.delete, now=ctx.now, sleep=ctx.sleep)  # type: ignore[arg-type]
    with deleter, closing(deleter.delete_each(_lots(ctx, index, chunks, store), ctx.attempt.checkpoint)) as done:
        for chunk, outcome in done:
            failures = [one for one in outcome.failures if one.code != CHANGED]
            _record(ctx, index, chunk, outcome, store.forget(chunk.name))
            if failures:
                marks.keep_failures(chunk, [(one.path, one.code) for one in failures])
            else:
                marks.mark_done(chunk)
            count += len(failures)
            permanent += sum(not one.transient for one in failures)
            throttled += sum(one.code in THROTTLED for one in failures)
            bad = [*bad, *((one.path, one.code) for one in failures)][:SAMPLE]
            now = swept(ctx, [index])
            ctx.attempt.progress(files_deleted=now.files, files_failed=count, bytes_deleted=now.bytes)
    if permanent:
        raise FilesNotDeleted(count, tuple(bad))
    if count:
        temporary = FilesThrottled if throttled == count else FilesNotDeletedYet
        raise temporary(count, tuple(bad))


def _lots(
    ctx: OrphanContext, index: OrphanIndex, chunks: Sequence[Chunk], store: _Conditional
) -> Iterator[tuple[Chunk, Sequence[Candidate]]]:
    guard = PlanGuard(index)
    for chunk in chunks:
        some = read_candidates(ctx.plans, index.plan_id, chunk)
        guard.check_all([one.path for one in some], f"{index.plan_id}/{chunk.name}")
        store.expect(chunk.name, split(index.roots[0])[0], some)
        yield chunk, some


def _record(ctx: OrphanContext, index: OrphanIndex, chunk: Chunk, outcome: Outcome, looked_only: int) -> None:
    """Store what a chunk came to besides its mark, before the mark."""
    marks = Marks(ctx.plans, index.plan_id)
    if outcome.delete_markers:
        marks.mark_versioned()
    if outcome.absent and marks.absent_of(chunk) is None and not marks.has_result(chunk):
        marks.mark_absent(chunk, Absent(outcome.absent, outcome.absent_bytes))
    changed = sorted(one.path for one in outcome.failures if one.code == CHANGED)
    if changed:
        sizes = {one.path: one.size for one in read_candidates(ctx.plans, index.plan_id, chunk)}
        name = f"{chunk.name}-{len(changed)}-{sum(sizes[path] for path in changed)}"
        ctx.plans.put(f"{index.plan_id}/changed/{name}", "".join(json.dumps(one) + "\n" for one in changed).encode())
    if looked_only:
        ctx.plans.put(f"{index.plan_id}/looked/{chunk.name}-{looked_only}-0", b"{}\n")


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
