"""An adaptive rate of deletes, in keys per second, that finds the store's limit and stays close to it.

boto3's retry modes are slow, or fail a tenth to a third of the keys, in a bucket limited to 3,500 keys/s. The rate
multiplies until the first SlowDown. Then each refused batch lowers it by a small part, and each accepted batch raises
it, more the longer ago the last refusal was (convex, as in RFC 9438, Section 4.5). So few batches are refused at the
limit, and a rising limit is found within seconds. Processes need no coordination: those that send more are refused
more, and all add alike.
"""

import math
import threading
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RatePolicy:
    """Parameters of the rate, in keys per second and seconds.

    `start` and `minimum`: the first rate and the lowest. `search`: until the first SlowDown an accepted batch raises
    the rate by this multiple of its keys. `decrease`: the part that a refused batch takes away. `add_per_second`,
    `grow`: the increase per second, as a number and as a part of the rate; doubled `quiet` seconds after the last
    refusal, then growing with the square of the time. `batch_seconds`: the time that the keys of one batch should take.
    `credit`: how much unused time may be made up for.
    """

    start: float = 2_000.0
    search: float = 4.0
    decrease: float = 0.05
    add_per_second: float = 20.0
    grow: float = 0.02
    quiet: float = 0.5
    batch_seconds: float = 0.03
    credit: float = 0.1
    minimum: float = 10.0

    def __post_init__(self) -> None:
        if not 0 < self.decrease < 1:
            raise ValueError("decrease must be between 0 and 1")
        if min(self.start, self.quiet, self.batch_seconds, self.minimum) <= 0:
            raise ValueError("start, quiet, batch_seconds and minimum must be positive")
        if min(self.search, self.add_per_second, self.grow, self.credit) < 0:
            raise ValueError("search, add_per_second, grow and credit must be positive or 0")


class AdaptiveRate:
    """The rate shared by a process's threads; times are seconds of a monotonic clock."""

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
        """Return the size of the next batch, at most `most` keys."""
        return max(1, min(most, round(self._rate * self._policy.batch_seconds)))

    def wait(self, now: float) -> float:
        with self._lock:
            return max(0.0, self._free_at - now)

    def sent(self, keys: int, now: float) -> None:
        with self._lock:
            earliest = now - self._policy.credit
            # A rate that is not used fully, for lack of threads or work, must not grow.
            self._used = self._free_at >= earliest
            # Before the first refusal no limit is known whose unused part could be made up for.
            searching = self._refused_at == -math.inf
            self._free_at = max(self._free_at, now if searching else earliest) + keys / self._rate

    def answered(self, deleted: int, now: float, *, throttled: bool) -> None:
        """Adapt the rate to an answer: the number of deleted keys, and whether the store throttled the batch."""
        with self._lock:
            if throttled:
                self._refused_at = now
                self._rate = max(self._policy.minimum, self._rate * (1 - self._policy.decrease))
            elif self._used:
                self._rate += deleted * min(self._policy.search, self._growth(now - self._refused_at) / self._rate)

    def _growth(self, quiet: float) -> float:
        """Return the increase per second, `quiet` seconds after the last refusal; infinite before the first."""
        policy = self._policy
        return (policy.add_per_second + policy.grow * self._rate) * (1 + (quiet / policy.quiet) ** 2)
