"""Actors that run one at a time in an order made from a seed, with a simulated clock.

Each actor has a thread, but only the one with the baton runs, so that a seed always leads to the same steps.
"""

import random
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from delegation.storage.memory import Killed

START = datetime(2026, 11, 21, 12, tzinfo=UTC)


class Actor:
    """One simulated process: a name, a clock that is off by `skew`, and a thread that waits for its turn."""

    def __init__(self, world: "Simulation", name: str, work: Callable[["Actor"], None], skew: timedelta) -> None:
        self.world = world
        self.name = name
        self.skew = skew
        self.wake = world.now
        self.cut_off_until = world.now
        self.deadline: datetime | None = None
        self.spared = False
        self.done = False
        self.error: BaseException | None = None
        self._work = work
        self._kill = False
        self._turn = threading.Lock()
        self._turn.acquire()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._nonces = 0

    def clock(self) -> datetime:
        """Return the time of this process's clock."""
        return self.world.now + self.skew

    def nonce(self) -> str:
        self._nonces += 1
        return f"{self.name}/{self._nonces}"

    def pause(self) -> None:
        """Let other actors run."""
        self.sleep(timedelta(0))

    def sleep(self, duration: timedelta) -> None:
        """Let other actors run for at least this time."""
        self.wake = self.world.now + duration
        self.world.baton.release()
        self._turn.acquire()
        if self._kill:
            raise Killed

    def kill(self) -> None:
        """Kill the process when it would run next."""
        self._kill = True
        self.wake = self.world.now

    def start(self) -> None:
        self._thread.start()

    def turn(self) -> None:
        """Run until the actor pauses or ends; only the scheduler calls this."""
        self._turn.release()
        self.world.baton.acquire()
        if self.done:
            self._thread.join()

    def _run(self) -> None:
        self._turn.acquire()
        try:
            if not self._kill:
                self._work(self)
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001 - handed to the scheduler, which raises it
            self.error = error
        self.done = True
        self.world.baton.release()


class Simulation:
    """The clock, the actors and the random numbers of one simulation."""

    def __init__(self, seed: int, drift: timedelta) -> None:
        self.seed = seed
        self.dice = random.Random(seed)
        self.now = START
        self.drift = drift
        self.actors: list[Actor] = []
        self.baton = threading.Lock()
        self.baton.acquire()
        self.steps = 0
        self._names: dict[str, int] = {}
        self.log: list[str] = []

    def note(self, what: str) -> None:
        """Add a line to the log; equal runs have equal logs."""
        self.log.append(f"{self.steps} {(self.now - START).total_seconds():.3f} {what}")

    def chance(self, probability: float) -> bool:
        return self.dice.random() < probability

    def seconds(self, low: float, high: float) -> timedelta:
        return timedelta(milliseconds=round(1000 * self.dice.uniform(low, high)))

    def spawn(self, kind: str, work: Callable[[Actor], None], *, after: timedelta = timedelta(0)) -> Actor:
        """Start a process; no two clocks differ by more than `drift`."""
        self._names[kind] = self._names.get(kind, 0) + 1
        # Often the largest difference allowed.
        skew = self.dice.choice((-0.5, self.dice.random() - 0.5, 0.5)) * self.drift
        actor = Actor(self, f"{kind}.{self._names[kind]}", work, skew)
        actor.wake = self.now + after
        actor.start()
        self.actors.append(actor)
        return actor

    def step(self) -> None:
        """Run one actor until it pauses; if all sleep, advance the clock to the next wake-up."""
        self.steps += 1
        earliest = min(actor.wake for actor in self.actors)
        self.now = max(self.now, earliest) + timedelta(milliseconds=self.dice.randrange(20))
        awake = [actor for actor in self.actors if actor.wake <= self.now]
        actor = awake[self.dice.randrange(len(awake))]
        actor.turn()
        if actor.done:
            self.actors.remove(actor)
        if actor.error is not None:
            raise actor.error

    def close(self) -> None:
        """Kill every process."""
        for actor in self.actors:
            actor.kill()
        while self.actors:
            actor = self.actors.pop()
            while not actor.done:
                actor.turn()
