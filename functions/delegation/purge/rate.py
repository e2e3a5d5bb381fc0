"""How fast to delete: a rate of our own, in keys per second, that finds what the store takes and stays around it.

boto3's retry modes cannot do it: measured against a bucket of 3,500 keys/s they left a tenth to a third of the keys, or
crept. Here the rate doubles every second until the store first says SlowDown. From then on it follows the curve of
CUBIC (RFC 9438, section 4.2): a small step back from the rate at which the store was full, back to it within a second,
along it for a while, and past it faster and faster, for a limit that rises. Executors that share a bucket do not talk:
each sees its own SlowDowns, and those that send more see more.
"""

import math
import threading
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RatePolicy:
    """Keys per second and seconds.

    `start`: before anything is known. `decrease`: the part given up on a SlowDown, and at most once in `interval`.
    `recovery`: how long it takes to come back to the rate where the store was full. `add_per_second`: what every
    process adds whatever its rate, which evens out those that share a store. `batch_seconds`: how much time's keys
    go into one batch, so that a slow rate is not sent in lumps. `floor`: never less.
    """

    start: float = 2_000.0
    decrease: float = 0.05
    interval: float = 0.25
    recovery: float = 1.0
    add_per_second: float = 100.0
    batch_seconds: float = 0.03
    floor: float = 10.0

    def __post_init__(self) -> None:
        if not 0 < self.decrease < 1:
            raise ValueError("decrease lies between 0 and 1")
        if (
            min(self.start, self.interval, self.recovery, self.batch_seconds, self.floor) <= 0
            or self.add_per_second < 0
        ):
            raise ValueError("rates and times are positive")


# How long the memory of accepted keys is, in seconds; and the share of the rate below which it is believed instead.
_MEMORY = 1.0
_OVERLOADED = 0.8


class AdaptiveRate:
    """Shared by the threads of a process; times are seconds of a monotonic clock."""

    def __init__(self, policy: RatePolicy, *, now: float) -> None:
        self._policy = policy
        self._lock = threading.Lock()
        self._rate = policy.start
        self._free_at = now
        self._full: float | None = None
        self._decreased_at = -math.inf
        self._accepted = 0.0
        self._accepted_at = now

    @property
    def keys_per_second(self) -> float:
        return self._rate

    def batch(self, most: int) -> int:
        """How many keys the next batch should hold, at most `most`."""
        return max(1, min(most, round(self._rate * self._policy.batch_seconds)))

    def wait(self, now: float) -> float:
        """Seconds until the next batch may be sent."""
        with self._lock:
            return max(0.0, self._free_at - now)

    def sent(self, keys: int, now: float) -> None:
        """A batch of so many keys is on its way."""
        with self._lock:
            self._free_at = max(self._free_at, now) + keys / self._rate

    def answered(self, deleted: int, now: float, *, throttled: bool) -> None:
        """The store deleted so many keys of a batch and, if `throttled`, asked for less."""
        with self._lock:
            self._remember(deleted, now)
            if throttled:
                self._step_back(now)
            elif self._full is None:
                self._rate += deleted
            elif deleted:
                self._rate = self._curve(self._full, now - self._decreased_at)

    def _step_back(self, now: float) -> None:
        """Answers to what was sent before the last step back say nothing new."""
        if now - self._decreased_at < self._policy.interval:
            return
        # A rate that the store refuses in great part is far beyond it, and what it took tells where it stands.
        full = self._rate if self._accepted >= _OVERLOADED * self._rate else max(self._accepted, self._rate / 2)
        self._full = max(self._policy.floor, full)
        self._decreased_at = now
        self._rate = self._curve(self._full, 0.0)

    def _curve(self, full: float, seconds: float) -> float:
        policy = self._policy
        rate = full * (1 + policy.decrease * (seconds / policy.recovery - 1) ** 3) + policy.add_per_second * seconds
        return max(policy.floor, rate)

    def _remember(self, keys: int, now: float) -> None:
        """Keys a second that the store took lately, the older the less."""
        passed = max(0.0, now - self._accepted_at)
        self._accepted = self._accepted * math.exp(-passed / _MEMORY) + keys / _MEMORY
        self._accepted_at = now
