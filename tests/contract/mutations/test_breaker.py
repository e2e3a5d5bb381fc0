"""A store that fails is left alone for a while, and nobody waits for it meanwhile."""

from dataclasses import dataclass, field

import pytest

from delegation.idempotency.reservations import (
    BreakingStore,
    MemoryReservationStore,
    RecordOutcomeUnknown,
    RecordsUnavailable,
    ReservationConflict,
)
from delegation.testing.reservations import NOW, SCOPE, reserved


@dataclass
class AbsentStore:
    """A store that is away while `error` is set, and the calls that reached it."""

    now: float = 0.0
    error: Exception | None = None
    calls: int = 0
    opened: int = 0
    store: BreakingStore = field(init=False)

    def __post_init__(self) -> None:
        inner = MemoryReservationStore(self.fault)
        self.store = BreakingStore(inner, opened=self.note, failures=3, seconds=10, monotonic=lambda: self.now)

    def note(self) -> None:
        self.opened += 1

    def fault(self, point: str) -> None:
        if point.startswith("before"):
            self.calls += 1
            if self.error is not None:
                raise self.error

    def get(self) -> bool:
        """Whether the store answered."""
        try:
            self.store.get(SCOPE.id)
        except (RecordsUnavailable, RecordOutcomeUnknown):
            return False
        return True


@pytest.mark.parametrize("error", [RecordsUnavailable("no"), RecordOutcomeUnknown("no")])
def test_after_failures_in_a_row_nothing_is_sent_until_one_call_tries_again(error: Exception) -> None:
    site = AbsentStore(error=error)
    assert [site.get() for _ in range(50)] == [False] * 50
    assert (site.calls, site.opened) == (3, 1)
    site.now = 9.9
    assert (site.get(), site.calls) == (False, 3)
    site.now = 10.1
    assert ([site.get(), site.get()], site.calls, site.opened) == ([False, False], 4, 2)
    site.error, site.now = None, 20.2
    assert ([site.get(), site.get()], site.calls) == ([True, True], 6)


def test_failures_that_are_not_in_a_row_and_refusals_leave_it_open() -> None:
    site = AbsentStore()
    site.store.reserve(reserved(), NOW)
    for _ in range(5):
        site.error = RecordsUnavailable("no")
        assert [site.get(), site.get()] == [False, False]
        site.error = None
        with pytest.raises(ReservationConflict):
            site.store.reserve(reserved(), NOW)
    assert site.opened == 0
