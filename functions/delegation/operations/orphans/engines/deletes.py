"""The engines that list a location, compare, and delete the chunks of a plan: this process, or Spark executors."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

from delegation.operations.orphans.context import OrphanContext
from delegation.operations.orphans.deleting import ConditionalStore, delete_chunks
from delegation.operations.orphans.planning.needed import NeededSet, SortedNeeded
from delegation.operations.orphans.planning.parts import ListedProgress, PartLister, PartsListing
from delegation.removal.choice import EngineChoice
from delegation.removal.deletes import Tally, Work
from delegation.storage.deleter import Deleter
from delegation.storage.locations import split


class OrphanEngine(Protocol):
    """Lists the parts of a location, compares what is listed, and deletes chunks of a published plan."""

    @property
    def name(self) -> EngineChoice: ...

    def list_parts(
        self, ctx: OrphanContext, how: PartsListing, begun: Sequence[ListedProgress], listed: Callable[[int], None]
    ) -> Iterator[ListedProgress]:
        """List parts from where they are; yield each when it is done, and count the files of others with `listed`."""
        ...

    def needed(self, ctx: OrphanContext) -> NeededSet:
        """Return what gathers needed files for one comparison."""
        ...

    def delete(self, ctx: OrphanContext, work: Sequence[Work], report: Callable[[Tally], None]) -> None:
        """Delete chunks of one plan in any order; `report` what failed of one or more at a time."""
        ...


class InlineOrphans:
    """OrphanEngine with threads of this process."""

    name: EngineChoice = "inline"

    def list_parts(
        self, ctx: OrphanContext, how: PartsListing, begun: Sequence[ListedProgress], listed: Callable[[int], None]
    ) -> Iterator[ListedProgress]:
        """See OrphanEngine.list_parts."""
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
        """See OrphanEngine.needed."""
        return SortedNeeded(ctx)

    def delete(self, ctx: OrphanContext, work: Sequence[Work], report: Callable[[Tally], None]) -> None:
        """See OrphanEngine.delete."""
        index = work[0].index
        root = index.roots[0]
        tags = ctx.tags(split(root)[0], root) if ctx.options.quarantine else None
        store = ConditionalStore(ctx.store, ctx.plans, ctx.nonce, tags)
        store.begin(index.plan_id)
        policy, now, sleep = ctx.settings.delete, ctx.now, ctx.sleep
        with Deleter(store, policy, now=now, sleep=sleep, rate=ctx.rate) as deleter:  # type: ignore[arg-type]
            for _, tally in delete_chunks(ctx.plans, work, store, deleter, ctx.attempt.checkpoint):
                report(tally)


INLINE: Final = InlineOrphans()
