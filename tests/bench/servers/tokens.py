"""The limit of a store: a token bucket of keys, like that of a partition of a prefix in S3."""

import time


class Tokens:
    """Grants `limit` keys a second, all if it is 0, and saves up at most `burst`; starts with none."""

    def __init__(self, limit: float, burst: float) -> None:
        self._limit, self._burst = limit, burst
        self._tokens, self._at = 0.0, time.monotonic()

    def take(self, wanted: int, *, part: bool = False) -> int:
        """Return how many of the wanted keys are granted: all or none, or with `part` as many as there are."""
        if not self._limit:
            return wanted
        now = time.monotonic()
        self._tokens, self._at = min(self._burst, self._tokens + (now - self._at) * self._limit), now
        granted = min(wanted, int(self._tokens)) if part else wanted * (self._tokens >= wanted)
        self._tokens -= granted
        return granted
