"""Makes and reduces the plan of a removal, and has the engine of this process."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Protocol

from delegation.iceberg.metadata import ParsedMetadata
from delegation.iceberg.paths import FileType
from delegation.polaris.model import LoadedTable
from delegation.removal.attempt import PlanSegment
from delegation.removal.choice import EngineChoice
from delegation.removal.chunks import Total
from delegation.removal.deletes import DeleteEngine, Tally, Work
from delegation.removal.errors import foreign_location
from delegation.removal.index import ReplacedPlan, store_index
from delegation.removal.marks import Marks
from delegation.removal.neighbourhood import LENIENT_PATHS
from delegation.removal.neighbours import PassRequest
from delegation.removal.orphans.context import OrphanContext
from delegation.removal.orphans.deletes import ConditionalStore, delete_unchanged
from delegation.removal.orphans.foreign import foreign_findings, merged_parts, to_include
from delegation.removal.orphans.index import Compared, OrphanIndex, Stage
from delegation.removal.orphans.listing import ListedProgress, ListParts, PartLister, PartsListing, walk
from delegation.removal.orphans.needed_files import NeededAtLocation, metadata_of
from delegation.removal.orphans.needed_rows import NeededSet, SortedNeeded
from delegation.removal.orphans.place import Eligible, age_of, check_allowed, hidden_partitions, place_of
from delegation.removal.orphans.subtraction import Orphans
from delegation.removal.path_guard import covered_roots
from delegation.storage.base import ObjectNotFound
from delegation.storage.deleter import Deleter
from delegation.storage.locations import split


def make_listing(
    ctx: OrphanContext, table: LoadedTable, list_parts: ListParts, *, resume: bool
) -> tuple[OrphanIndex, PlanSegment]:
    """List the table's location and store what may be an orphan, without publishing it. `resume` is as for `walk`."""
    metadata = metadata_of(table)
    check_allowed(metadata)
    root = place_of(metadata, ctx.options.location)
    if ctx.settings.delete.foreign.contain(root.uri):
        raise foreign_location(root.uri)
    age = int(max(age_of(ctx.options.older_than, metadata.properties), ctx.asked_age(table)).total_seconds())
    plan_id = ctx.new_plan_id()
    eligible = Eligible(root, age, hidden_partitions(table.metadata))
    walked = walk(ctx, eligible, plan_id, list_parts, resume=resume)
    index = _index(ctx, table, metadata, plan_id, "listed", elsewhere=ctx.options.location).model_copy(
        update={
            "listed": Total(files=walked.total.files, bytes=walked.total.bytes),
            "listed_at": walked.at,
            "age": age,
            "parts": walked.parts,
            "signs": walked.signs,
            "elsewhere": ctx.options.location or "",
        }
    )
    return index, store_index(ctx.plans, index)


def make_plan(ctx: OrphanContext, table: LoadedTable, listing: OrphanIndex, keep: NeededAtLocation) -> OrphanIndex:
    """Return the plan of the files that nothing needs. Its chunks are stored, its index is not."""
    plan_id = ctx.new_plan_id()
    orphans = keep.subtracted([(part.plan_id, part.chunks) for part in listing.parts], plan_id, listing)
    stage: Stage = "tagging" if ctx.options.quarantine else "planned"
    fresh = _index(ctx, table, metadata_of(table), plan_id, stage, elsewhere=listing.elsewhere)
    kept = {
        "listed": listing.listed,
        "listed_at": listing.listed_at,
        "age": max(listing.age, keep.seconds),
        "elsewhere": listing.elsewhere,
        "signs": listing.signs,
    }
    return fresh.model_copy(update={**kept, **_found(orphans, keep, plan_id)})


def reduced(ctx: OrphanContext, index: OrphanIndex, segment: PlanSegment, keep: NeededAtLocation) -> OrphanIndex | None:
    """Return the rest of a published plan without needed files, with its chunks stored; None if none of it is needed.
    Files stay that are younger than a table now requires. Deleted chunks are left out. The files of foreign tables that
    the approval includes are added."""
    done = Marks(ctx.plans, index.plan_id).done()
    chunks = [chunk for chunk in index.chunks if chunk.name not in done]
    plan_id = ctx.new_plan_id()
    included = to_include(index, keep.included)
    more = [(part.plan_id, part.chunks) for table in included for part in table.parts]
    orphans = keep.subtracted([(index.plan_id, chunks), *more], plan_id, index)
    left = tuple(keep.of_approval(table) for table in index.foreign_tables if table not in included)
    if not orphans.kept and not included and left == index.foreign_tables:
        return None
    update = _found(orphans, keep, plan_id)
    return index.model_copy(
        update={
            "plan_id": plan_id,
            "attempt": ctx.attempt.attempt,
            "created_at": ctx.clock().isoformat(),
            "reduces": (*index.reduces, ReplacedPlan(id=segment.id, sha256=segment.sha256, done=tuple(sorted(done)))),
            **update,
            "included": included,
            "foreign_tables": tuple(map(keep.of_approval, merged_parts(left, update["foreign_tables"]))),
            "age": max(index.age, keep.seconds),
            "foreign": ctx.settings.delete.foreign.uris,
            "neighbours": keep.checked or index.neighbours,
        }
    )


def _found(orphans: Orphans, keep: NeededAtLocation, plan_id: str) -> dict[str, Any]:
    files, size = sum(chunk.count for chunk in orphans.chunks), sum(chunk.bytes for chunk in orphans.chunks)
    foreign = () if keep.foreign is None else keep.foreign.parts(plan_id, orphans.held)
    return {
        "chunks": orphans.chunks,
        "counts": {FileType.ORPHAN.value: Total(files=files, bytes=size)} if files else {},
        "findings": (*orphans.findings, *keep.findings, *foreign_findings(foreign)),
        "foreign_tables": foreign,
        "needed": orphans.needed,
        "neighbours": keep.checked,
    }


def _index(
    ctx: OrphanContext,
    table: LoadedTable,
    metadata: ParsedMetadata,
    plan_id: str,
    stage: Stage,
    *,
    elsewhere: str | None,
) -> OrphanIndex:
    covered = covered_roots(table, LENIENT_PATHS).uris if ctx.settings.vended else None
    return OrphanIndex(
        **ctx.plan_head(plan_id, metadata),
        snapshots=len(metadata.snapshots),
        engine="inline",
        roots=(place_of(metadata, elsewhere).uri,),
        covered=covered,
        chunks=(),
        counts={},
        findings=(),
        stage=stage,
        listed=Total(),
        listed_at=0,
        age=0,
        foreign=ctx.settings.delete.foreign.uris,
        compared=Compared(
            schemes=dict(ctx.options.equal.schemes),
            authorities=dict(ctx.options.equal.authorities),
            mismatch=ctx.options.mismatch,
        ),
    )


class OrphanEngine(DeleteEngine[OrphanContext], Protocol):
    """Lists the parts of a location, compares what is listed, and deletes chunks of a published plan."""

    def list_parts(
        self, ctx: OrphanContext, how: PartsListing, begun: Sequence[ListedProgress], listed: Callable[[int], None]
    ) -> Iterator[ListedProgress]:
        """List parts from their positions. Yields each when done; `listed` gets the number of others' files."""
        ...

    def needed(self, ctx: OrphanContext) -> NeededSet:
        """Return a collector of needed files for one comparison."""
        ...


class InlineOrphans:
    """OrphanEngine with threads of this process."""

    name: EngineChoice = "inline"

    def list_parts(
        self, ctx: OrphanContext, how: PartsListing, begun: Sequence[ListedProgress], listed: Callable[[int], None]
    ) -> Iterator[ListedProgress]:
        lister = PartLister(
            how,
            ctx.store,
            ctx.plans,
            ctx.attempt.checkpoint,
            ctx.clock,
            recorded=lambda progress: listed(progress.files),
        )
        return lister.run(begun)

    def needed(self, ctx: OrphanContext) -> NeededSet:
        return SortedNeeded(ctx)

    def delete(self, ctx: OrphanContext, work: Sequence[Work], report: Callable[[Tally], None]) -> None:
        index = work[0].index
        root = index.roots[0]
        tags = ctx.tags(split(root)[0], root) if ctx.options.quarantine else None
        store = ConditionalStore(ctx.store, ctx.plans, ctx.nonce, tags)
        store.begin(index.plan_id)
        policy, now, sleep = ctx.settings.delete, ctx.now, ctx.sleep
        with Deleter(store, policy, now=now, sleep=sleep, rate=ctx.rate) as deleter:  # type: ignore[arg-type]
            for _, tally in delete_unchanged(ctx.plans, work, store, deleter, ctx.attempt.checkpoint):
                report(tally)


INLINE: Final = InlineOrphans()


_DIGEST: Final = 20
_ASKED: Final = b"asked\n"
_USED: Final = b"used\n"


class AskedNote:
    """The note for one listing or plan, by the id that it had before reductions. A former release stored JSON when it
    handed over, which counts as no request."""

    def __init__(self, ctx: OrphanContext, origin: str) -> None:
        self._plans = ctx.plans
        self._key = f"{ctx.attempt.task_id}/renewed/{hashlib.sha256(origin.encode()).hexdigest()[:_DIGEST]}"

    def read(self) -> PassRequest | None:
        """Return the note, None without one."""
        try:
            data = self._plans.get(self._key)
        except ObjectNotFound:
            return None
        return PassRequest(asked=data == _ASKED)

    def write(self, note: PassRequest) -> None:
        """Store the note; replaces the former one."""
        self._plans.put(self._key, _ASKED if note.asked else _USED)
