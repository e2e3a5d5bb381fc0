"""The crash matrix of expiries whose files Spark deletes, with real local Spark and executors as separate processes.

Run it by hand, with a number to play every so many kill points:

    PYTHONPATH=functions:. python -m tests.faults.crashes.expiry_matrix [STEP]

What is killed, and what has to follow, is as in `spark_matrix` without Spark's retries: a killed driver's attempt ends
at once, a killed executor's with EngineFailed, and the next attempt finishes the same plan with one commit.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from typing import Any
from unittest import mock

from delegation.errors import DelegationError
from delegation.operations.expiry.context import ExpiryResult
from delegation.storage.memory import Killed
from delegation.worksets.engines import spark as spark_jobs
from delegation.worksets.errors import EngineFailed
from tests.faults.crashes.switch import DRIVER, Call, StoreServer, Switch
from tests.spark_sessions import spark_session
from tests.unit.operations.expiry.test_orders import Story

POLL_SECONDS = 0.1
# The number of these calls depends on the speed of the executors, so a recorded one may not be made.
_POLLS = frozenset({"plan list", "progress"})


@dataclass(frozen=True)
class Executors:
    """Expires the snapshots of stories with the executors of one context."""

    spark: Any
    server: StoreServer

    def expire(self, story: Story, switch: Switch | None = None, **before: Callable[[], object]) -> ExpiryResult:
        """Run one attempt; `before` has what happens before a load or commit, as `call_5=…` for the fifth."""
        from delegation.operations.expiry.engines.spark import expire_with_spark

        numbers = count()
        ctx = story.world.context(story.table, faults=switch or Switch())
        # The same names in each run, by which the switch knows a call again.
        ctx = replace(ctx, nonce=lambda: f"{next(numbers):04x}")
        for name, action in before.items():
            story.world.catalogs[-1].before[int(name.removeprefix("call_"))] = action
        with mock.patch.object(spark_jobs, "POLL_SECONDS", POLL_SECONDS):
            return expire_with_spark(self.spark, ctx, self.server.resources(ctx))  # type: ignore[arg-type]

    def calls(self) -> list[Call]:
        """Return the calls of an undisturbed attempt."""
        counted = Switch()
        self.expire(Story(), counted)
        return counted.made

    def play(self, call: Call, *, after: bool, left: set[str]) -> list[str]:
        """Kill one call and run the expiry again; return what is wrong then."""
        story, switch = Story(), Switch(call, after=after)
        expected, found = "killed" if call.side == DRIVER else "failed", "ended well"
        try:
            self.expire(story, switch)
        except Killed:
            found = "killed"
        except EngineFailed:
            found = "failed"
        except DelegationError as error:
            found = f"raised {error.code}: {error}"
        if not switch.fired and call.name in _POLLS:
            return []
        wrong = [] if switch.fired and found == expected else [f"{found} instead of {expected}"]
        wrong += [f"{name} misses {files}" for name, files in story.lake.readable().items() if files]
        try:
            ended = self.expire(story)
        except DelegationError as error:
            return [*wrong, f"the next attempt raised {error.code}: {error}"]
        wrong += [] if ended.status == "EXPIRED" else [f"the next attempt ended as {ended.status}"]
        wrong += [f"{name} misses {files} at the end" for name, files in story.lake.readable().items() if files]
        wrong += [] if story.world.commits() == 1 else [f"{story.world.commits()} commits"]
        different = names_left(story) ^ left
        return [*wrong, *([f"other files are left: {sorted(different)}"] if different else [])]


def names_left(story: Story) -> set[str]:
    """Return the names of the files that are left, without metadata files, whose names are random."""
    return {uri.rpartition("/")[2] for uri in story.lake.uris() if not uri.endswith(".metadata.json")}


def play(executors: Executors, *, step: int = 1) -> tuple[int, list[str]]:
    """Kill every `step`th call, before and after its effect; return how many were killed, and what was wrong."""
    undisturbed = Story()
    executors.expire(undisturbed)
    left, calls, played, wrong = names_left(undisturbed), executors.calls(), 0, list[str]()
    for after in (False, True):
        for call in calls[step // 2 if after else 0 :: step]:
            played += 1
            when = "after" if after else "before"
            wrong += [f"{when} {call}: {one}" for one in executors.play(call, after=after, left=left)]
    return played, wrong


def main(step: int) -> int:
    """Play and print the result."""
    with spark_session("local[2]") as session, StoreServer() as server:
        session.sparkContext.setLogLevel("OFF")
        played, wrong = play(Executors(session.sparkContext, server), step=step)
    print(f"{played} kill points of an expiry on Spark, {len(wrong)} wrong", *wrong, sep="\n")  # noqa: T201
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1))
