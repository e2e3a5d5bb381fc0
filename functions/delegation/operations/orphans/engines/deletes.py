"""The engines that delete the chunks of a plan: this process, or Spark executors."""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from delegation.operations.orphans.context import OrphanContext, OrphanSettings
from delegation.operations.orphans.deleting import ConditionalStore, delete_chunks
from delegation.storage.deleter import Deleter
from delegation.worksets.engines.choice import EngineChoice
from delegation.worksets.engines.inline import Tally, Work


class OrphanEngine(Protocol):
    """Deletes chunks of a published plan."""

    @property
    def name(self) -> EngineChoice: ...

    def chunks_at_once(self, settings: OrphanSettings) -> int:
        """Return how many chunks are deleted between two looks at the table."""
        ...

    def delete(self, ctx: OrphanContext, work: Sequence[Work], report: Callable[[Tally], None]) -> None:
        """Delete chunks of one plan in any order; `report` what failed of one or more at a time."""
        ...


class InlineOrphans:
    """OrphanEngine with threads of this process."""

    name: EngineChoice = "inline"

    def chunks_at_once(self, settings: OrphanSettings) -> int:
        """See OrphanEngine.chunks_at_once."""
        return settings.chunks_per_look

    def delete(self, ctx: OrphanContext, work: Sequence[Work], report: Callable[[Tally], None]) -> None:
        """See OrphanEngine.delete."""
        store = ConditionalStore(ctx.store, ctx.plans, ctx.nonce)
        store.begin(work[0].index.plan_id)
        with Deleter(store, ctx.settings.delete, now=ctx.now, sleep=ctx.sleep) as deleter:  # type: ignore[arg-type]
            for _, tally in delete_chunks(ctx.plans, work, store, deleter, ctx.attempt.checkpoint):
                report(tally)


INLINE: Final = InlineOrphans()
