"""Planning again what is left of a table whose plan was lost after its first delete.

The order of the steps makes that possible: manifests are deleted after all files, manifest lists after all manifests,
and the head records which of these steps are done. So a missing manifest is no unknown one. What can still be read of
the lost plan is used too: it was verified by the hashes on the head, and may name former metadata files that nothing
else names any more. A part that was altered is not lost: it is refused, because somebody wrote to the plan bucket.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from delegation.iceberg.files import TableFile
from delegation.iceberg.metadata import ParsedMetadata
from delegation.iceberg.paths import Spelling
from delegation.operations.purge.errors import metadata_replaced
from delegation.operations.purge.planning.succession import check_not_replaced, continues
from delegation.storage.base import PlanStore
from delegation.worksets.attempt import PlanSegment, StepsDone
from delegation.worksets.chunks import DeleteStep, Phase, read_chunk
from delegation.worksets.errors import PlanLost
from delegation.worksets.index import SAMPLE, Finding, PlanIndex, load_index
from delegation.worksets.marks import Marks

REPLANNED: Final = "REPLANNED"
_MOST_ROOTS: Final = 64
_MOST_ROOT_BYTES: Final = 16_384
"""A task's record has at most 400 KB (Amazon DynamoDB, Quotas)."""


@dataclass(frozen=True, slots=True)
class LostPlan:
    """A plan of which parts are missing: its segments, what is left of their indexes, and what the head records."""

    segments: tuple[PlanSegment, ...]
    left: tuple[PlanIndex, ...]
    done: StepsDone | None

    @classmethod
    def read(cls, plans: PlanStore, segments: Sequence[PlanSegment], done: StepsDone | None) -> "LostPlan":
        """Read what is left of published segments; raise PlanTampered for a part that was altered."""
        left = []
        for segment in segments:
            try:
                index = load_index(plans, segment)
            except PlanLost:
                continue
            stored = set(plans.keys(f"{segment.id}/"))
            chunks = tuple(chunk for chunk in index.chunks if f"{segment.id}/{chunk.name}" in stored)
            left.append(index.model_copy(update={"chunks": chunks}))
        return cls(tuple(segments), tuple(left), done)

    @property
    def roots(self) -> tuple[str, ...]:
        """The locations that the table is known to have had."""
        recorded = () if self.done is None else self.done.roots
        return (*recorded, *(root for index in self.left for root in index.roots))

    @property
    def is_known(self) -> bool:
        """Whether the head records that this plan is lost."""
        return self.done is not None and self.done.lost == self.segments[-1].id

    def known(self) -> StepsDone:
        """Return what the head has to record for that."""
        return replace(self.done or StepsDone(of="", state="", steps=()), lost=self.segments[-1].id)

    @property
    def root(self) -> str | None:
        """The metadata file that the plan was to delete last, if it is known."""
        if self.left:
            return self.left[-1].metadata_location
        return (self.done.state or None) if self.done is not None else None

    def steps_known(self, *, root_is_next: bool) -> tuple[str, ...]:
        """Return the steps of which everything is deleted, by the head's record or the mark that the root is next."""
        if root_is_next:
            order = list(DeleteStep)
            return tuple(order[: order.index(DeleteStep.ROOT)])
        done = self.done
        return done.steps if done is not None and done.of == self.segments[-1].id else ()

    def files(self, plans: PlanStore) -> Iterator[TableFile]:
        """Yield what is left to delete of the plan except data files, which the remaining manifests name."""
        for index in self.left:
            done = Marks(plans, index.plan_id).once_done()
            for chunk in index.chunks:
                if chunk.kind is Phase.META and chunk.name not in done:
                    yield from read_chunk(plans, index.plan_id, chunk)

    def check_continues(self, plans: PlanStore, metadata: ParsedMetadata) -> None:
        """Raise GuardRefused (METADATA_REPLACED) if the metadata does not continue from where the plan was made."""
        check_not_replaced(plans, metadata, self.left)
        if self.done is not None and self.done.state and not self.left and not continues(metadata, self.done.state):
            raise metadata_replaced(
                f"the catalog names {metadata.path}, whose log does not have {self.done.state}, from where the purge "
                "deleted; its plan is lost, so nothing tells which of these files are the table's"
            )

    def excuses(self, metadata: ParsedMetadata, spelling: Spelling) -> Callable[[str], bool]:
        """Return a function that tells of a missing manifest or manifest list whether this purge deleted it."""
        steps = self.steps_of(metadata)
        named = (one.manifest_list for one in metadata.snapshots if one.manifest_list is not None)
        lists = {spelling.one(path) for path in named}
        return lambda path: (DeleteStep.META if path in lists else DeleteStep.DATA) in steps

    def steps_of(self, metadata: ParsedMetadata) -> frozenset[str]:
        """Return the steps that are done for this state of the table, by the record of this plan."""
        done = self.done
        if (
            done is None
            or not done.state
            or done.of != self.segments[-1].id
            or not continues(metadata, done.state, exactly=True)
        ):
            return frozenset()
        return frozenset(done.steps)

    def finding(self) -> Finding:
        """Return the finding that names what was lost."""
        return Finding(code=REPLANNED, count=len(self.segments), sample=tuple(one.id for one in self.segments[:SAMPLE]))


def steps_before(step: DeleteStep, indexes: Sequence[PlanIndex]) -> StepsDone:
    """Return the record that all steps before this one are deleted."""
    order = list(DeleteStep)
    roots = tuple(dict.fromkeys(root for index in indexes for root in index.roots))
    if len(roots) > _MOST_ROOTS or sum(len(root.encode()) for root in roots) > _MOST_ROOT_BYTES:
        roots = ()
    last = indexes[-1]
    return StepsDone(last.plan_id, last.metadata_location, tuple(order[: order.index(step)]), roots)
