"""What one loop over items promises: a bad item takes no place, an outage is no item's fault, and time is bounded."""

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from delegation.items import ALARM_AFTER, IN_A_ROW, MOST_WASTED, RememberedAsides, SetAside, each_item
from delegation.polaris.answers import PolarisUnauthorized, PolarisUnavailable
from delegation.storage.memory import Killed
from polaris_common.errors import DelegationError, ErrorScope
from tests.kit.tasks.builders import MINUTE, Clock


def down(item: object) -> PolarisUnavailable:
    return PolarisUnavailable(f"Polaris answered 503 for {item}", status=503)


class ItemLoop:
    """A loop over numbers; `bad` fail with the error that `error` returns. `tried` and `done` note the passes."""

    def __init__(self, bad: Callable[[int], bool], error: Callable[[int], Exception] = down, **options: Any) -> None:
        self.clock = Clock()
        self.asides = RememberedAsides[int]()
        self.bad = bad
        self.error = error
        self.options = {"asides": self.asides, "first_pause": 2 * MINUTE, **options}
        self.tried: list[int] = []

    def act(self, item: int) -> int:
        self.tried.append(item)
        if self.bad(item):
            raise self.error(item)
        return item

    def run(self, items: int = 30, **options: Any) -> list[int]:
        self.tried.clear()
        loop = each_item(range(items), self.act, name="test.loop", clock=self.clock, **{**self.options, **options})
        return [one.item for one in loop if one.is_done]


def test_an_item_that_fails_is_set_aside_with_its_error_and_tried_again_after_ever_longer_pauses(caplog) -> None:
    loop = ItemLoop(lambda item: item == 3)
    tries = []
    for minute in range(60):
        assert loop.run() == [item for item in range(30) if item != 3]
        if 3 in loop.tried:
            tries.append(minute)
        loop.clock.advance(MINUTE)
    assert tries == [0, 2, 6, 14, 30]
    aside = loop.asides.of(3)
    assert aside is not None
    assert (aside.failures, aside.error) == (5, "POLARIS_UNAVAILABLE: Polaris answered 503 for 3")
    line = caplog.records[0]
    assert (line.levelname, line.loop, line.item, line.error_code) == ("WARNING", "test.loop", "3", aside.error[:19])
    loop.bad = lambda _item: False
    loop.clock.advance(timedelta(hours=2))
    assert len(loop.run()) == 30
    assert loop.asides.of(3) is None


def test_an_error_that_nobody_raises_on_purpose_is_the_items_own_and_logged_with_its_place(caplog) -> None:
    loop = ItemLoop(lambda item: item < 25, lambda _item: OverflowError("date value out of range"))
    assert loop.run() == list(range(25, 30))
    assert caplog.records[0].levelno == logging.ERROR
    assert caplog.records[0].error_code == "UNEXPECTED_ERROR"
    assert caplog.records[0].exc_info is not None


def test_twenty_without_an_answer_in_a_row_are_an_outage_which_ends_the_loop_and_lengthens_no_pause() -> None:
    loop = ItemLoop(lambda _item: True)
    for _ in range(5):
        with pytest.raises(PolarisUnavailable):
            loop.run()
        assert len(loop.tried) == IN_A_ROW
        loop.clock.advance(3 * MINUTE)
    loop.bad = lambda _item: False
    loop.clock.advance(MINUTE)
    assert len(loop.run()) == 30


def test_a_stretch_of_bad_items_is_no_outage_where_the_probe_is_answered() -> None:
    asked: list[str] = []
    loop = ItemLoop(lambda item: item < 25, probe=lambda: not asked.append("catalog"))
    assert loop.run() == list(range(25, 30))
    assert asked == ["catalog"]


@pytest.mark.parametrize("probe", [None, lambda: False])
def test_a_stretch_of_bad_items_without_an_answer_is_left_out_by_the_next_pass(probe: Callable[[], bool]) -> None:
    loop = ItemLoop(lambda item: item < 25, probe=probe)
    with pytest.raises(PolarisUnavailable):
        loop.run()
    assert loop.run() == list(range(25, 30))


def test_items_with_an_answer_of_their_own_are_no_outage_however_many() -> None:
    loop = ItemLoop(lambda item: item < 25, lambda item: DelegationError(f"{item} is damaged"))
    assert loop.run() == list(range(25, 30))


def test_one_answer_that_several_items_share_counts_once() -> None:
    shared = down("the namespace")
    loop = ItemLoop(lambda item: item < 25, lambda _item: shared)
    assert loop.run() == list(range(25, 30))


@pytest.mark.parametrize("scope", [ErrorScope.CATALOG, ErrorScope.SERVICE])
def test_an_error_that_reaches_further_than_the_items_ends_the_loop(scope: ErrorScope) -> None:
    loop = ItemLoop(lambda item: item == 3, lambda _item: DelegationError("no", scope=scope))
    with pytest.raises(DelegationError):
        loop.run(stops=ErrorScope.CATALOG)
    assert loop.tried == [0, 1, 2, 3]
    loop = ItemLoop(lambda item: item == 3, lambda _item: PolarisUnauthorized("no"))
    assert 29 in loop.run()  # a loop over tasks: another one may be of another catalog


def test_the_end_of_the_process_and_of_its_lease_is_no_items_error() -> None:
    def killed() -> None:
        raise Killed

    with pytest.raises(Killed):
        ItemLoop(lambda _item: False).run(checkpoint=killed)


def test_items_that_take_long_and_fail_are_left_to_the_next_pass_and_tried_last() -> None:
    times = iter(range(10_000))
    slow = MOST_WASTED.total_seconds() / 5
    loop = ItemLoop(lambda item: item in {0, 2, 4, 6, 8, 10, 12}, seconds=lambda: next(times) * slow)
    assert loop.run(14) == [1, 3, 5, 7, 9]
    assert loop.run(14) == [1, 3, 5, 7, 9, 11, 13]


def test_several_at_a_time_end_in_their_order_and_one_that_fails_stops_no_other() -> None:
    loop = ItemLoop(lambda item: item % 7 == 0)
    with ThreadPoolExecutor(4) as pool:
        assert loop.run(pool=pool, at_once=4) == [item for item in range(30) if item % 7]


def test_an_item_that_fails_for_more_than_a_day_is_counted_and_named(capsys) -> None:
    loop = ItemLoop(lambda item: item == 3)
    loop.run()
    assert "ItemsSetAside" not in capsys.readouterr().out
    loop.clock.advance(ALARM_AFTER)
    loop.run()
    assert '"ItemsSetAside":[1.0]' in capsys.readouterr().out.replace(" ", "")
    loop.bad = lambda _item: False
    loop.clock.advance(ALARM_AFTER)
    loop.run()
    assert "ItemsSetAside" not in capsys.readouterr().out


def test_only_the_newest_are_remembered() -> None:
    asides = RememberedAsides[int](most=3)
    for item in range(5):
        asides.put(item, SetAside("no", Clock()(), 1, Clock()()))
    assert (asides.of(1), len(asides)) == (None, 3)
