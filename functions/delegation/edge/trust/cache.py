"""A value that is fetched from outside and used for a bounded time: the issuer's keys, a revocation list."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from threading import Lock
from typing import Final, Generic, TypeVar

from delegation.edge.errors import EdgeError

Value = TypeVar("Value")
_logger: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CachePolicy:
    """How long a value is used before it is fetched again, and how much longer if its source is unreachable. `pause` is
    the least time between two requests, which protects the source."""

    fresh: timedelta = timedelta(minutes=10)
    stale: timedelta = timedelta(hours=1)
    pause: timedelta = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class _Cached(Generic[Value]):
    value: Value
    fetched_at: datetime


class CachedSource(Generic[Value]):
    """One value, fetched by `fetch` from the former one (None at first); thread-safe, one request at a time. `fetch`
    raises `unavailable`; `what` names the value in messages, as in "the token issuer's keys"."""

    def __init__(
        self,
        fetch: Callable[[Value | None], Value],
        *,
        what: str,
        unavailable: type[EdgeError],
        clock: Callable[[], datetime],
        policy: CachePolicy,
    ) -> None:
        self._fetch = fetch
        self._what = what
        self._unavailable = unavailable
        self._clock = clock
        self._policy = policy
        self._lock = Lock()
        self._cached: _Cached[Value] | None = None
        self._requested_at: datetime | None = None

    def get(self, suffices: Callable[[Value], bool] = lambda _value: True) -> Value:
        """Return the value, fetched again first if it is not fresh or does not suffice. Raises `unavailable` without
        one, or if it is older than the policy allows."""
        with self._lock:
            now = self._clock()
            cached = self._cached
            if cached is None or now >= cached.fetched_at + self._policy.fresh:
                cached = self._refresh(now)
            if not suffices(cached.value):
                cached = self._refresh(now)
            return cached.value

    def _refresh(self, now: datetime) -> _Cached[Value]:
        cached = self._cached
        if cached is not None and self._requested_at is not None and now < self._requested_at + self._policy.pause:
            return self._usable(cached, now)
        self._requested_at = now
        try:
            fetched = self._fetch(None if cached is None else cached.value)
        except self._unavailable as error:
            if cached is None:
                raise
            _logger.warning("%s cannot be fetched, so the cached copy is used: %s", self._what, error)
            return self._usable(cached, now)
        self._cached = _Cached(fetched, now)
        return self._cached

    def _usable(self, cached: _Cached[Value], now: datetime) -> _Cached[Value]:
        if now >= cached.fetched_at + self._policy.fresh + self._policy.stale:
            raise self._unavailable(f"{self._what} cannot be fetched, and the cached copy is too old")
        return cached
