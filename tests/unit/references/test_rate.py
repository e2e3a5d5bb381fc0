"""How many loads a pass has under way: as many as the catalog answers without becoming slower, below a ceiling."""

import random
from dataclasses import dataclass, field

import pytest

from delegation.references.concurrent_visits import MOST_AT_ONCE, AdaptiveWidth, WidthPolicy
from delegation.removal.neighbourhood import Pace

ALONE = 0.02
"""Seconds of one load while nothing else is asked of the catalog."""
RETRIED = 1.0
"""Seconds that a client waits after 429 or 503, before it repeats its request."""


@dataclass
class BusyCatalog:
    """Answers `room` loads at a time as fast as one, and queues the others; past `refuses` at a time it sends 429."""

    room: int
    refuses: int = 1_000
    noise: random.Random = field(default_factory=lambda: random.Random(11))

    def seconds(self, at_once: int) -> float:
        taken = ALONE * max(1.0, at_once / self.room) * self.noise.uniform(0.9, 1.1)
        return taken + RETRIED if at_once > self.refuses else taken


def widths(catalog: BusyCatalog, width: AdaptiveWidth, loads: int = 2_000) -> list[int]:
    """Load tables one after the other, each beside as many others as the width allows; return the widths."""
    found = []
    for _ in range(loads):
        found.append(width.width)
        width.answered(catalog.seconds(width.width))
    return found


def test_the_first_load_is_alone_and_a_fast_catalog_soon_has_the_most_at_a_time() -> None:
    found = widths(BusyCatalog(room=100), AdaptiveWidth())
    assert found[0] == 1
    # Now and then a few loads are alone, to measure what one takes.
    assert set(found[200:]) == {1, MOST_AT_ONCE}
    assert found[200:].count(1) <= 50


def test_the_ceiling_of_the_setting_is_never_exceeded() -> None:
    assert max(widths(BusyCatalog(room=100), AdaptiveWidth(WidthPolicy(most=5)))) == 5


@pytest.mark.parametrize("room", [1, 2, 3])
def test_a_catalog_with_little_capacity_gets_few_requests_beyond_it(room: int) -> None:
    """Also not after many tables: its other callers wait as long as there are loads before theirs."""
    found = widths(BusyCatalog(room), AdaptiveWidth(), loads=20_000)
    assert max(found) <= 3 * room + 1
    assert sum(found) / len(found) >= room


@pytest.mark.parametrize("refuses", [1, 4, 8])
def test_a_catalog_that_answers_429_or_503_gets_fewer_requests_at_once(refuses: int) -> None:
    """The client waits and repeats: the pass sees a long load, and halves the width before the next ones begin."""
    catalog, width = BusyCatalog(room=100, refuses=refuses), AdaptiveWidth()
    found = widths(catalog, width)
    refused = [at for at, one in enumerate(found[:-1]) if one > refuses]
    assert refused
    assert all(found[at + 1] <= max(found[at] // 2, 1) for at in refused)
    assert len(refused) / len(found) < 0.1


def test_a_catalog_that_slows_down_for_its_other_callers_is_left_room_and_used_again_afterwards() -> None:
    width = AdaptiveWidth()
    assert widths(BusyCatalog(room=100), width)[-1] == MOST_AT_ONCE
    busy = widths(BusyCatalog(room=1), width, loads=900)
    assert max(busy[50:]) <= 5
    assert widths(BusyCatalog(room=100), width)[-1] == MOST_AT_ONCE


def test_a_catalog_that_is_slower_from_now_on_is_used_fully_again() -> None:
    """A load alone takes ten times as long: that is its usual time now, not a sign of too many loads."""
    width = AdaptiveWidth()
    widths(BusyCatalog(room=100), width)
    for _ in range(3_000):
        width.answered(10 * ALONE)
    assert width.width == MOST_AT_ONCE


def test_however_many_threads_load_the_setting_bounds_the_rate() -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    pace = Pace(50.0, now=lambda: now[0], sleep=sleep)
    begun = []
    for number in range(200):
        now[0] += 0.3 if number == 100 else 0.001  # an unused share does not accumulate
        pace.wait()
        begun.append(now[0])
    seconds = (begun[at + 50] - begun[at] for at in range(150))
    assert min(seconds) >= 0.98
