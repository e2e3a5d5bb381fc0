"""How large a purge will be, before any manifest is read: from the counts that manifest lists carry."""

from dataclasses import dataclass

from delegation.purge.context import Engine, PurgeContext
from delegation.purge.plan import Phase, load_index
from delegation.purge.planning import survey
from delegation.purge.progress import Marks


@dataclass(frozen=True, slots=True)
class Estimate:
    """`files` is None when a manifest list does not count (some version 1 writers); `manifests` are distinct ones.

    `planned` says that the numbers are those of a plan: what is left of it, exactly.
    """

    files: int | None
    manifests: int
    engine: Engine
    planned: bool

    @property
    def nothing_left(self) -> bool:
        return self.planned and self.files == 0


def estimate(ctx: PurgeContext) -> Estimate:
    """Choose the engine: inline up to `inline_max_files` entries (added + existing + deleted), else Spark.

    With a published plan, what is left of that decides, and no table is loaded. Raises what guards and corrupt metadata
    raise, so a table that must not be purged starts no job.
    """
    segments = ctx.attempt.plan()
    most = ctx.settings.inline_max_files
    if segments:
        left = 0
        manifests = 0
        for index in (load_index(ctx.plans, segment) for segment in segments):
            done = Marks(ctx.plans, index.plan_id).done()
            left += sum(one.count for one in index.chunks if one.kind is not Phase.KEPT and one.name not in done)
            manifests += index.counts["manifest"].files if "manifest" in index.counts else 0
        return Estimate(left, manifests, "inline" if left <= most else "spark", planned=True)
    found = survey(ctx, ctx.tables.load())
    counts = [manifest.entries for manifest in found.manifests.values()]
    if any(count is None for count in counts):
        # Nothing is known of what such a manifest holds, but there are few of them or many.
        return Estimate(None, len(counts), "spark" if len(counts) * _V1_ENTRIES > most else "inline", planned=False)
    files = sum(count for count in counts if count is not None)
    return Estimate(files, len(counts), "inline" if files <= most else "spark", planned=False)


_V1_ENTRIES = 100
