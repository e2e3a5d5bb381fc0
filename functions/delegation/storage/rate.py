"""How fast to delete: a rate of our own, in keys per second, that finds what the store takes and stays around it.

boto3's retry modes cannot do it: measured against a bucket of 3,500 keys/s they left a tenth to a third of the keys, or
crept. Here the rate multiplies until the store first says SlowDown. From then on every refused batch takes a small part
of it, and every accepted one adds the more, the longer the last refusal is past (convex, as CUBIC's far side, RFC
9438): little while refusals come, so that a few of a hundred batches are refused and all that the store can give is
used; much when none come, so that a limit that rises, or that others stop drawing on, is found within seconds.
Processes that share a store need not talk: those that send more are refused more, and all add alike.
"""

import math
import threading
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RatePolicy:
    """Keys per second and seconds.

    `start`: before anything is known. `search`: by how many times its keys an accepted batch raises the rate until the
    first SlowDown. `decrease`: the part given up for a refused batch. `add_per_second` and `grow`: what is added in a
    second, alike for all and as a part of the rate; doubled `quiet` seconds after the last refusal, and on by the
    square. `batch_seconds`: how much time's keys go into one batch, so that a slow rate is not sent in lumps. `credit`:
    how much time not used may be caught up with. `floor`: never less.
    """

    start: float = 2_000.0
    search: float = 4.0
    decrease: float = 0.05
    add_per_second: float = 20.0
    grow: float = 0.02
    quiet: float = 0.5
    batch_seconds: float = 0.03
    credit: float = 0.1
    floor: float = 10.0

    def __post_init__(self) -> None:
        if not 0 < self.decrease < 1:
            raise ValueError("decrease lies between 0 and 1")
        if min(self.start, self.quiet, self.batch_seconds, self.floor) <= 0:
            raise ValueError("rates and times are positive")
        if min(self.search, self.add_per_second, self.grow, self.credit) < 0:
            raise ValueError("what is added is positive, or nothing")


class AdaptiveRate:
    """Shared by the threads of a process; times are seconds of a monotonic clock."""

    def __init__(self, policy: RatePolicy, *, now: float) -> None:
        self._policy = policy
        self._lock = threading.Lock()
        self._rate = policy.start
        self._free_at = now
        self._refused_at = -math.inf
        self._used = True

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
            earliest = now - self._policy.credit
            # A rate that is not used up, because threads or work are short, is not known to be too low.
            self._used = self._free_at >= earliest
            # Before the first refusal there is no limit whose unused part could be caught up with.
            searching = self._refused_at == -math.inf
            self._free_at = max(self._free_at, now if searching else earliest) + keys / self._rate

    def answered(self, deleted: int, now: float, *, throttled: bool) -> None:
        """The store deleted so many keys of a batch and, if `throttled`, asked for less."""
        with self._lock:
            if throttled:
                self._refused_at = now
                self._rate = max(self._policy.floor, self._rate * (1 - self._policy.decrease))
            elif self._used:
                self._rate += deleted * min(self._policy.search, self._growth(now - self._refused_at) / self._rate)

    def _growth(self, quiet: float) -> float:
        """Keys per second to add in a second, so long after a refusal; endless before the first."""
        policy = self._policy
        return (policy.add_per_second + policy.grow * self._rate) * (1 + (quiet / policy.quiet) ** 2)
