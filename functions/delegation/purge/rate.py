"""How fast to delete: additive increase, multiplicative decrease of our own, in keys per second.

boto3's retry modes cannot do it: measured against a bucket of 3,500 keys/s they left a tenth to a third of the keys, or
crept. The rate here grows with every good batch and shrinks at most once a second when the store says SlowDown, so it
settles just below what the store takes, whoever else draws on it.
"""

import threading
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RatePolicy:
    """Keys per second: where to start, how much to add in a second of good batches, what is left after a SlowDown."""

    start: float = 2_000.0
    add_per_second: float = 200.0
    decrease: float = 0.7
    decrease_interval: float = 1.0
    floor: float = 10.0


class AdaptiveRate:
    """Shared by the threads of a process; times are seconds of a monotonic clock.

    Until the first SlowDown the rate doubles about once a second, to find a fast store's limit; after it, it only adds.
    """

    def __init__(self, policy: RatePolicy, *, now: float) -> None:
        self._policy = policy
        self._lock = threading.Lock()
        self._rate = policy.start
        self._free_at = now
        self._decreased_at = now - policy.decrease_interval
        self._probing = True

    @property
    def keys_per_second(self) -> float:
        return self._rate

    def reserve(self, keys: int, now: float) -> float:
        """Take the next slot for a batch of so many keys; the answer is how many seconds to wait before sending it."""
        with self._lock:
            starts = max(self._free_at, now)
            self._free_at = starts + keys / self._rate
            return starts - now

    def succeeded(self, keys: int) -> None:
        with self._lock:
            # Batches of n at rate r come r/n times a second, so n*200/r each makes 200 a second.
            self._rate += keys if self._probing else self._policy.add_per_second * keys / self._rate

    def slowed_down(self, now: float) -> None:
        with self._lock:
            self._probing = False
            if now - self._decreased_at >= self._policy.decrease_interval:
                self._decreased_at = now
                self._rate = max(self._policy.floor, self._rate * self._policy.decrease)
