"""The crash matrix of expiries whose files Spark deletes, with real local Spark and executors as separate processes.

Run it by hand, with a number to play every so many kill points:

    PYTHONPATH=functions:. python -m tests.faults.crashes.expiry_matrix [STEP]

What is killed, and what has to follow, is as in `spark_matrix` without Spark's retries: a killed driver's attempt ends
at once, a killed executor's with EngineFailed, and the next attempt finishes the same plan with one commit.
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import ClassVar
from unittest import mock

from delegation.removal import spark as spark_jobs
from delegation.removal.expiry.context import ExpiryResult
from tests.faults.crashes.kills import POLL_SECONDS, KilledRuns, main
from tests.faults.crashes.switch import Switch
from tests.unit.removal.expiry.test_orders import Story


class Executors(KilledRuns[Story]):
    """Expires the snapshots of stories with the executors of one context."""

    name: ClassVar[str] = "expiry on Spark"
    ended: ClassVar[str] = "EXPIRED"

    def begin(self) -> Story:
        return Story()

    def run(self, story: Story, switch: Switch | None = None) -> ExpiryResult:
        return self.expire(story, switch)

    def missing(self, story: Story) -> list[str]:
        return [f"{name} misses {files}" for name, files in story.lake.readable().items() if files]

    def wrong_at_end(self, story: Story) -> list[str]:
        return [] if story.world.commits() == 1 else [f"{story.world.commits()} commits"]

    def left(self, story: Story) -> set[str]:
        return names_left(story)

    def expire(self, story: Story, switch: Switch | None = None, **before: Callable[[], object]) -> ExpiryResult:
        """Run one attempt; `before` has what happens before a load or commit, as `call_5=…` for the fifth."""
        from delegation.removal.expiry.spark import expire_with_spark

        numbers = count()
        ctx = story.world.context(story.table, faults=switch or Switch())
        # The same names in each run, by which the switch knows a call again.
        ctx = replace(ctx, nonce=lambda: f"{next(numbers):04x}")
        for name, action in before.items():
            story.world.catalogs[-1].before[int(name.removeprefix("call_"))] = action
        with mock.patch.object(spark_jobs, "POLL_SECONDS", POLL_SECONDS):
            return expire_with_spark(self.spark, ctx, self.server.resources(ctx))  # type: ignore[arg-type]


def names_left(story: Story) -> set[str]:
    """Return the names of the files that are left, without metadata files, whose names are random."""
    return {uri.rpartition("/")[2] for uri in story.lake.uris() if not uri.endswith(".metadata.json")}


if __name__ == "__main__":
    sys.exit(main(Executors))
