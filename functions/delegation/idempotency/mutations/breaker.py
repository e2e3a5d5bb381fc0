"""A store of records that is left alone for a while after it failed several times in a row (circuit breaker)."""

import threading
import time
from collections.abc import Callable
from datetime import datetime
from typing import Final, TypeVar

from delegation.idempotency.mutations.errors import RecordOutcomeUnknown, RecordsUnavailable
from delegation.idempotency.mutations.reservation import Reservation, ReservationStore

_FAILURES: Final = 3
_SECONDS: Final = 10.0
_Result = TypeVar("_Result")


class BreakingStore:
    """`store`, which is not called for `seconds` after `failures` calls in a row failed; thread-safe.

    Until then its callers get RecordsUnavailable at once instead of waiting for a time-out each. Then one call tries
    it again. `opened` is called each time that it is left alone.
    """

    def __init__(
        self,
        store: ReservationStore,
        *,
        opened: Callable[[], None],
        failures: int = _FAILURES,
        seconds: float = _SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._opened = opened
        self._failures = failures
        self._seconds = seconds
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._failed = 0
        self._closed_until = 0.0

    def get(self, scope: str) -> Reservation | None:
        return self._called(lambda: self._store.get(scope))

    def reserve(self, record: Reservation, now: datetime) -> None:
        self._called(lambda: self._store.reserve(record, now))

    def replace(self, record: Reservation, before: Reservation) -> None:
        self._called(lambda: self._store.replace(record, before))

    def _called(self, call: Callable[[], _Result]) -> _Result:
        self._admit()
        try:
            result = call()
        except (RecordsUnavailable, RecordOutcomeUnknown):
            self._note_failure()
            raise
        except BaseException:
            self._note_answer()  # a conflict, or a record that cannot be read: the store answered
            raise
        self._note_answer()
        return result

    def _admit(self) -> None:
        with self._lock:
            if self._failed < self._failures:
                return
            now = self._monotonic()
            if now < self._closed_until:
                raise RecordsUnavailable(
                    "the table of idempotency keys does not answer and is left alone for some seconds; nothing was "
                    "done, repeat the request with its key"
                )
            self._closed_until = now + self._seconds  # this call tries it, others do not

    def _note_failure(self) -> None:
        with self._lock:
            self._failed += 1
            opens = self._failed >= self._failures
            if opens:
                self._closed_until = self._monotonic() + self._seconds
        if opens:
            self._opened()

    def _note_answer(self) -> None:
        with self._lock:
            self._failed = 0
