"""Runs of one operation on real Spark whose driver or executors are killed at a call, and run again."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic, TypeVar

from delegation.removal.errors import EngineFailed
from delegation.storage.memory import Killed
from polaris_common.errors import DelegationError
from tests.faults.crashes.switch import DRIVER, Call, StoreServer, Switch
from tests.kit.explorer import Tally, play_all
from tests.kit.printing import print_now
from tests.spark_sessions import spark_session

POLL_SECONDS: Final = 0.1
# The number of these calls depends on the speed of the executors, so a recorded one may not be made.
_POLLS: Final = frozenset({"plan list", "progress"})
S = TypeVar("S")


@dataclass(frozen=True)
class KillPoint:
    """A call at which a process is killed, before or after its effect."""

    call: object
    after: bool

    @property
    def when(self) -> str:
        return "after" if self.after else "before"

    def __str__(self) -> str:
        return f"{self.when} {self.call}"


@dataclass(frozen=True)
class KilledRuns(ABC, Generic[S]):
    """Runs an operation on stories with the executors of one context; a killed run is followed by another one.

    A killed driver's attempt ends at once, a killed executor's with EngineFailed, and the next one ends as `ended`.
    """

    spark: Any
    server: StoreServer

    name: ClassVar[str]
    ended: ClassVar[str]

    @abstractmethod
    def begin(self) -> S:
        """Return a new story."""

    @abstractmethod
    def run(self, story: S, switch: Switch | None = None) -> Any:
        """Run one attempt; return its result."""

    @abstractmethod
    def missing(self, story: S) -> list[str]:
        """Return what is wrong at any time: files that are missing."""

    @abstractmethod
    def wrong_at_end(self, story: S) -> list[str]:
        """Return what else is wrong at the end."""

    @abstractmethod
    def left(self, story: S) -> set[str]:
        """Return the names of the files that are left, which are the same after every run."""

    def ends_as(self, call: Call) -> str:
        """Return how an attempt ends one of whose calls is killed."""
        return "killed" if call.side == DRIVER else "failed"

    def calls(self) -> list[Call]:
        """Return the calls of an undisturbed attempt."""
        counted = Switch()
        self.run(self.begin(), counted)
        return counted.made

    def kill(self, call: Call, *, after: bool, left: set[str]) -> list[str]:
        """Kill one call and run again; return what is wrong then."""
        story, switch = self.begin(), Switch(call, after=after)
        expected, found = self.ends_as(call), "ended well"
        try:
            self.run(story, switch)
        except Killed:
            found = "killed"
        except EngineFailed:
            found = "failed"
        except DelegationError as error:
            found = f"raised {error.code}: {error}"
        if not switch.fired and call.name in _POLLS:
            return []
        wrong = [] if switch.fired and found == expected else [f"{found} instead of {expected}"]
        wrong += self.missing(story)
        try:
            result = self.run(story)
        except DelegationError as error:
            return [*wrong, f"the next attempt raised {error.code}: {error}"]
        wrong += [] if result.status == self.ended else [f"the next attempt ended as {result.status}"]
        wrong += [f"{one} at the end" for one in self.missing(story)] + self.wrong_at_end(story)
        different = self.left(story) ^ left
        return [*wrong, *([f"other files are left: {sorted(different)}"] if different else [])]

    def play(self, *, step: int = 1, print_line: Callable[[str], object] = print_now) -> Tally:
        """Kill every `step`th call, before and after its effect."""
        undisturbed = self.begin()
        self.run(undisturbed)
        left, calls = self.left(undisturbed), self.calls()
        points = [
            KillPoint(call, after) for after in (False, True) for call in calls[step // 2 if after else 0 :: step]
        ]

        def killed(point: KillPoint) -> tuple[str, list[str]]:
            return point.when, self.kill(point.call, after=point.after, left=left)

        return play_all(self.name, points, killed, print_line)


def main(runs: type[KilledRuns[Any]]) -> int:
    """Play with the step that the command names."""
    step = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    with spark_session("local[2]") as session, StoreServer() as server:
        session.sparkContext.setLogLevel("OFF")
        return 1 if runs(session.sparkContext, server).play(step=step).wrong else 0
