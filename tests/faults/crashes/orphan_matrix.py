"""The crash matrix of removals of orphan files with Spark, which lists, compares and deletes: executors are processes.

Run it by hand, with a number to play every so many kill points:

    PYTHONPATH=functions:. python -m tests.faults.crashes.orphan_matrix [STEP]

What is killed, and what has to follow, is as in `expiry_matrix`: the next attempt finishes the same plan, if one was
published, and deletes what is not needed and nothing else. Half of the story is a commit that takes one of the orphan
files over while others are deleted, so that the plan is reduced between two jobs.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, ClassVar
from unittest import mock

from delegation.removal import spark as spark_jobs
from delegation.removal.orphans.context import OrphanContext, OrphanResult
from delegation.storage import memory
from delegation.storage.memory import Faults
from tests.faults.crashes.kills import POLL_SECONDS, KilledRuns, main
from tests.faults.crashes.switch import Switch
from tests.kit.stories.orphans import SweptTables
from tests.kit.stories.tables import StoryTable

_ORPHANS = tuple(f"s3://lake/wh/t/data/p={number % 3}/{number:02d}.parquet" for number in range(16))
_TAKEN = max(_ORPHANS)


@dataclass
class OrphanStory:
    """A table with orphan files, the last of which is committed when the first one is deleted."""

    world: SweptTables = field(default_factory=SweptTables)
    table: StoryTable = field(init=False)
    is_taken: bool = False
    published: str | None = None
    deleted: int = 0

    def __post_init__(self) -> None:
        self.table = self.world.table()
        for uri in _ORPHANS:
            self.world.orphan(uri)
        self.world.lake.pass_days(4)

    def take(self) -> None:
        """Commit a file of the plan."""
        if not self.is_taken:
            self.is_taken = True
            self.table.append(paths=[_TAKEN])


class OrphanExecutors(KilledRuns[OrphanStory]):
    """Removes the orphan files of stories with the executors of one context."""

    name: ClassVar[str] = "orphan files on Spark"
    ended: ClassVar[str] = "SWEPT"

    def begin(self) -> OrphanStory:
        return OrphanStory()

    def run(self, story: OrphanStory, switch: Switch | None = None) -> OrphanResult:
        def take_at_first_delete(ctx: OrphanContext) -> None:
            usual: Callable[..., Any] = ctx.store.delete_unchanged

            def delete(*which: Any) -> Any:
                story.take()
                return usual(*which)

            ctx.store.delete_unchanged = delete  # type: ignore[assignment,method-assign]

        # Executors list the pages after the first one of each part.
        with mock.patch.object(memory, "PAGE", 3):
            result = self.remove(story.world, story.table, switch, prepare=take_at_first_delete)
        story.deleted = result.files_deleted
        return result

    def missing(self, story: OrphanStory) -> list[str]:
        story.world.plans.faults = Faults()  # this look is no call of a process
        if story.world.head.read() and (index := story.world.plan()).stage == "planned":
            story.published = story.published or index.origin
        return [f"{path} is missing" for path in sorted(story.world.missing())]

    def wrong_at_end(self, story: OrphanStory) -> list[str]:
        wrong = [] if _TAKEN in story.world.lake.uris() else ["the file that was committed is deleted"]
        wrong += [] if story.world.plan().reduces else ["the plan was not reduced"]
        wrong += [] if story.world.plan().origin == story.published else ["another plan was made"]
        return wrong if story.deleted == len(_ORPHANS) - 1 else [*wrong, f"the receipt counts {story.deleted} files"]

    def left(self, story: OrphanStory) -> set[str]:
        uris = story.world.lake.uris()
        return {uri for uri in uris if uri in _ORPHANS} | {f"{len(uris)} files"}

    def remove(
        self,
        world: SweptTables,
        table: StoryTable,
        switch: Switch | None = None,
        *,
        prepare: Callable[[OrphanContext], object] = lambda _ctx: None,
        **more: Any,
    ) -> OrphanResult:
        """Run one attempt; `prepare` changes its context before."""
        from delegation.removal.orphans.spark import remove_with_spark

        numbers = count()
        if not world.attempts:  # executors have the machine's clock, from which the store's may not be far
            world.lake.move_to(time.time_ns() // 1_000_000)
        ctx = world.context(table, faults=switch or Switch(), **more)
        # The same names in each run, by which the switch knows a call again.
        ctx = replace(ctx, nonce=lambda: f"{next(numbers):04x}")
        prepare(ctx)
        # Few rows are spread over several parts.
        with (
            mock.patch.object(spark_jobs, "POLL_SECONDS", POLL_SECONDS),
            mock.patch.object(spark_jobs, "_ROWS_PER_TASK", 8),
        ):
            return remove_with_spark(self.spark, ctx, self.server.resources(ctx))  # type: ignore[arg-type]


if __name__ == "__main__":
    sys.exit(main(OrphanExecutors))
