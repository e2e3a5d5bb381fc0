"""Operators who pause all tasks and resume them, in some of the worlds."""

import random
from collections.abc import Callable
from datetime import timedelta

from delegation.tasks.errors import StoreUnavailable
from delegation.tasks.life.model import Caller
from delegation.tasks.pauses import EVERYTHING, PauseMode, PauseRecord, ReadPauses, WorkPause, nothing_paused
from tests.faults.simulator.scheduler import START, Actor, Simulation

LONGEST = timedelta(minutes=5)


class Operators:
    """Their pauses, made from dice of their own: a seed without pauses plays as if there were no operators."""

    def __init__(self, world: Simulation) -> None:
        self._world = world
        self._dice = random.Random(f"interrupted by operators {world.seed}")
        self._begin = sorted(self._dice.uniform(0, 240) for _ in range(self._dice.choice((0, 0, 1, 2))))
        self._record = PauseRecord()

    def start(self) -> None:
        """Start an operator, if this world has one."""
        if self._begin:
            self._world.spawn("pausing operator", self._work)

    def lookout(self, read_fails: Callable[[], bool], monotonic: Callable[[], float]) -> ReadPauses:
        """Return how a process knows what is paused; its reads fail as others do."""
        if not self._begin:
            return nothing_paused()

        def read() -> PauseRecord:
            if read_fails():
                raise StoreUnavailable("the pauses could not be read")
            return self._record

        return ReadPauses(read, monotonic=monotonic)

    def _work(self, actor: Actor) -> None:
        for seconds in self._begin:
            actor.sleep(max(START + timedelta(seconds=seconds) - self._world.now, timedelta(0)))
            mode = self._dice.choice(list(PauseMode))
            pause = WorkPause(EVERYTHING, actor.clock(), Caller(client_id=actor.name), mode=mode)
            self._record = self._record.with_pause(pause)
            self._world.note(f"{actor.name} pauses everything ({mode})")
            actor.sleep(LONGEST * self._dice.uniform(0.02, 1))
            self._record = self._record.without(EVERYTHING)
            self._world.note(f"{actor.name} resumes everything")
