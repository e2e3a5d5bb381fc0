"""Deletes the chunks of a plan, only objects that are unchanged since the listing, and counts them for the receipt.

Beside the marks of all plans, `{plan}/changed/{chunk}-{files}-{bytes}` has the files of a chunk that stay because they
were written again. `{plan}/looked/{chunk}-{files}` states how many were deleted after a check alone. Markers state what
was deleted in a bucket with versions. In a quarantine `{plan}/quarantined/{chunk}-0-0` states that its files were
tagged instead, and `{plan}/untagged/…` has those without room for a tag.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from threading import Lock
from typing import Any, Final, NamedTuple

from delegation.removal.deletes import PlanGuard, Tally, Work, delete_chunks, marked, note_absent
from delegation.removal.index import ReplacedPlan
from delegation.removal.marks import Absent, Marks, counting
from delegation.removal.orphans.context import OrphanContext, OrphanResult
from delegation.removal.orphans.details import ListedAmount
from delegation.removal.orphans.index import Candidate, ForeignPart, OrphanIndex, read_candidates, record_markers
from delegation.removal.orphans.quarantine import tag_batch
from delegation.storage.base import BatchResult, PlanStore
from delegation.storage.deleter import Deleter, Outcome
from delegation.storage.listing.model import CHANGED, TAG, TAGS_FULL, ListableStore, ListedObject, TagStore
from delegation.storage.locations import ObjectLocation, split, uri_of
from delegation.timestamps import isoformat

_STAY: Final = {CHANGED: "changed", TAGS_FULL: "untagged"}
"""Codes of files that stay without a failure, and where they are listed."""


class OrphansDeleted(NamedTuple):
    """The results of a plan's done chunks. `files` and `bytes` are of deleted files; `bytes` excludes `absent` ones.
    `untagged` files stay."""

    files: int = 0
    bytes: int = 0
    absent: int = 0
    changed: int = 0
    looked_only: int = 0
    quarantined: int = 0
    quarantined_bytes: int = 0
    untagged: int = 0


class ConditionalStore:
    """A store for the Deleter, whose deletes have the condition of the listing. It knows the objects in flight. Delete
    markers are recorded beside the plan with each batch, so they are known even if the process dies later. With `tags`
    its objects are tagged instead of deleted."""

    def __init__(
        self, store: ListableStore, plans: PlanStore, nonce: Callable[[], str], tags: TagStore | None = None
    ) -> None:
        self._store = store
        self._plans = plans
        self._nonce = nonce
        self.tags = tags
        self._lock = Lock()
        self._listed: dict[tuple[str, str], ListedObject] = {}
        self.looked_only: dict[str, int] = {}
        self._chunk_of: dict[tuple[str, str], str] = {}
        self._plan_id = ""

    def begin(self, plan_id: str) -> None:
        """Forget what an interrupted run left. Deletes from here on belong to this plan."""
        with self._lock:
            self._plan_id = plan_id
            for known in (self._listed, self._chunk_of, self.looked_only):
                known.clear()

    def expect(self, chunk: str, bucket: str, some: Sequence[Candidate]) -> None:
        """Take a chunk's objects as listed."""
        with self._lock:
            for candidate in some:
                listed = candidate.listed()
                self._listed[bucket, listed.key] = listed
                self._chunk_of[bucket, listed.key] = chunk

    def forget(self, chunk: str) -> int:
        """Forget a chunk's objects. Returns how many of them were deleted after a check alone."""
        with self._lock:
            for name in [name for name, of in self._chunk_of.items() if of == chunk]:
                del self._chunk_of[name], self._listed[name]
            return self.looked_only.pop(chunk, 0)

    def delete(self, bucket: str, keys: Sequence[str]) -> BatchResult:
        """See ObjectStore.delete. A changed object is a failure with the code CHANGED."""
        with self._lock:
            listed = [self._listed[bucket, key] for key in keys]
            chunk = self._chunk_of[bucket, keys[0]]
        if self.tags is not None:
            return tag_batch(self.tags, bucket, listed)
        deleted = self._store.delete_unchanged(bucket, listed)
        named = [(uri_of(bucket, listed_object.key), listed_object) for listed_object in listed]
        record_markers(self._plans, self._plan_id, self._nonce(), named, deleted.markers)
        with self._lock:
            self.looked_only[chunk] = self.looked_only.get(chunk, 0) + deleted.looked_only
        return deleted.result

    def exists(self, _location: ObjectLocation) -> bool:
        """Return True, because nothing is known to be absent: `delete` checks each object itself."""
        return True


def delete_unchanged(
    plans: PlanStore, works: Iterable[Work], store: ConditionalStore, deleter: Deleter, checkpoint: Callable[[], None]
) -> Iterator[tuple[Work, Tally]]:
    """Delete chunks of one plan as `delete_chunks`, with a deleter of this store. A chunk is marked if every object is
    deleted or stays because it changed. The result of each chunk is its failures."""
    read, record = partial(_read, store), partial(_record, plans, store)
    return delete_chunks(plans, works, deleter, checkpoint, read=read, record=record)


def _read(store: ConditionalStore, plans: PlanStore, work: Work) -> Sequence[Candidate]:
    index, chunk = work.index, work.chunk
    some = read_candidates(plans, index.plan_id, chunk)
    PlanGuard(index).check_all([candidate.path for candidate in some], f"{index.plan_id}/{chunk.name}")
    store.expect(chunk.name, split(index.roots[0])[0], some)
    return some


def _record(plans: PlanStore, store: ConditionalStore, marks: Marks, work: Work, outcome: Outcome) -> Tally:
    """Store a chunk's results besides its mark, before the mark."""
    plan_id, chunk, looked_only = work.index.plan_id, work.chunk, store.forget(work.chunk.name)
    if outcome.delete_markers:
        marks.mark_versioned()
    note_absent(marks, chunk, outcome)
    for code, folder in _STAY.items():
        stay = sorted(failure.path for failure in outcome.failures if failure.code == code)
        if stay:
            sizes = {candidate.path: candidate.size for candidate in read_candidates(plans, plan_id, chunk)}
            name = f"{chunk.name}-{len(stay)}-{sum(sizes[path] for path in stay)}"
            plans.put(f"{plan_id}/{folder}/{name}", "".join(json.dumps(path) + "\n" for path in stay).encode())
    if store.tags is not None:
        plans.put(f"{plan_id}/quarantined/{chunk.name}-0-0", b"{}\n")
    if looked_only:
        plans.put(f"{plan_id}/looked/{chunk.name}-{looked_only}-0", b"{}\n")
    return marked(marks, chunk, [failure for failure in outcome.failures if failure.code not in _STAY], Tally())


def swept(ctx: OrphanContext, indexes: Sequence[OrphanIndex]) -> OrphansDeleted:
    """Return the results of the plans' done chunks."""
    amounts = [_swept(ctx, index, indexes[-1].reduces) for index in indexes]
    return OrphansDeleted(*map(sum, zip(*amounts, strict=True)))


def _swept(ctx: OrphanContext, index: OrphanIndex, replaced: Sequence[ReplacedPlan]) -> OrphansDeleted:
    marks, chunks = Marks(ctx.plans, index.plan_id), counting(index, replaced)
    (done, absents), deleted = marks.done_and_absent(), marks.deleted(chunks)
    done &= {chunk.name for chunk in chunks}
    changed, untagged, tagged, looked = (
        _figures(ctx, f"{index.plan_id}/{folder}/", done) for folder in ("changed", "untagged", "quarantined", "looked")
    )
    stay = [changed, untagged]
    kept = ListedAmount()
    for chunk in (each for each in chunks if each.name in tagged):
        absent = absents.get(chunk.name, Absent())
        others = sum((amounts.get(chunk.name, ListedAmount()) for amounts in stay), ListedAmount())
        kept += ListedAmount(chunk.count - absent.files - others.files, chunk.bytes - absent.bytes - others.bytes)
    all_changed, all_untagged, all_looked = (
        sum(amounts.values(), ListedAmount()) for amounts in (changed, untagged, looked)
    )
    return OrphansDeleted(
        files=deleted.files - all_changed.files - all_untagged.files - kept.files,
        bytes=deleted.bytes - all_changed.bytes - all_untagged.bytes - kept.bytes,
        absent=deleted.absent,
        changed=all_changed.files,
        looked_only=all_looked.files,
        quarantined=kept.files,
        quarantined_bytes=kept.bytes,
        untagged=all_untagged.files,
    )


def _figures(ctx: OrphanContext, prefix: str, done: frozenset[str]) -> dict[str, ListedAmount]:
    """Return the figures in names below a prefix, by done chunk, each of its last run."""
    amounts: dict[str, ListedAmount] = {}
    for key in ctx.plans.keys(prefix):
        chunk, files, size = key.removeprefix(prefix).rsplit("-", 2)
        if chunk in done:
            before = amounts.get(chunk, ListedAmount())
            amounts[chunk] = max(
                before, ListedAmount(int(files), int(size)), key=lambda amount: (amount.files, amount.bytes)
            )
    return amounts


def own_of_receipt(ctx: OrphanContext, result: OrphanResult, indexes: Sequence[OrphanIndex]) -> dict[str, Any]:
    """Return the members of the receipt that only removals have, with the keys of lists of files."""
    last = indexes[-1]
    return {
        "location": result.location,
        "plan": [each.plan_id for each in indexes],
        "approved": result.approval is not None,
        "approval": None if result.approval is None else result.approval.model_dump(mode="json"),
        "older_than_seconds": last.age,
        "listed_at": isoformat(datetime.fromtimestamp(last.listed_at, UTC)),
        "files_listed": result.files_listed,
        "bytes_listed": result.bytes_listed,
        "files_deleted_before": result.deleted_before.files,
        "files_absent": result.files_absent,
        "files_changed": result.files_changed,
        "changed": [key for each in indexes for key in ctx.plans.keys(f"{each.plan_id}/changed/")],
        "quarantine": "=".join(TAG) if ctx.options.quarantine or last.quarantine else None,
        "files_quarantined": result.files_quarantined,
        "bytes_quarantined": result.bytes_quarantined,
        "files_untagged": result.files_untagged,
        "untagged": [key for each in indexes for key in ctx.plans.keys(f"{each.plan_id}/untagged/")],
        "files_deleted_without_condition": result.files_looked_only,
        "neighbours": [neighbour.model_dump() for neighbour in last.neighbours],
        "foreign_tables": [_foreign(table) for table in last.foreign_tables],
        "included": [_foreign(table) for index in indexes for table in index.included],
    }


def _foreign(part: ForeignPart) -> dict[str, Any]:
    return part.model_dump(exclude={"parts"})
