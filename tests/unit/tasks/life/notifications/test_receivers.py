"""When a receiver is set apart and when it is back: pure functions of its last deliveries."""

from datetime import timedelta
from typing import Any

from delegation.tasks.life.notifications import (
    BLOCKING,
    FORGOTTEN_AFTER,
    LONGEST_PAUSE,
    PROBE,
    PROOF,
    SLOW,
    STRIKES,
    Receiver,
    after_acceptance,
    after_failure,
    claimed,
    proof,
)
from tests.kit.tasks.builders import HOUR, MINUTE, NOW

QUICK = timedelta(milliseconds=50)
NAME = "callback:catalog"


def failing(times: int, took: timedelta = QUICK, before: Receiver | None = None) -> Any:
    for _ in range(times):
        before = after_failure(before, NAME, took, NOW)
    return before


def accepting(times: int, before: Receiver | None, took: timedelta = QUICK) -> Any:
    for _ in range(times):
        before = after_acceptance(before, NAME, took, NOW + MINUTE)
    return before


def test_a_receiver_that_accepts_quickly_has_no_record() -> None:
    assert accepting(3, None) is None
    assert accepting(3, None, SLOW) is None


def test_refusals_in_a_row_set_a_receiver_apart_and_an_acceptance_between_them_does_not() -> None:
    almost = failing(STRIKES - 1)
    mended = accepting(1, almost)
    again = failing(STRIKES - 1, before=mended)
    assert (almost.apart, mended.strikes, mended.failures, again.apart) == (False, 0, 0, False)
    apart = failing(1, before=again)
    assert (apart.apart, apart.is_failing) == (True, True)


def test_one_delivery_that_blocks_sets_its_receiver_apart_accepted_or_not() -> None:
    hung = failing(1, BLOCKING + QUICK)
    slow = accepting(1, None, BLOCKING + QUICK)
    assert (hung.apart, hung.is_failing) == (True, True)
    assert (slow.apart, slow.is_failing) == (True, False)
    assert claimed(slow, NOW + MINUTE) is slow, "any number of deliveries try a slow one"
    dragging = accepting(STRIKES - 1, None, SLOW + QUICK)
    assert not dragging.apart
    assert accepting(1, dragging, SLOW + QUICK).apart


def test_a_failing_receiver_is_tried_by_one_delivery_after_pauses_that_double() -> None:
    apart = failing(1, BLOCKING * 2)
    pauses = []
    now = NOW
    for _ in range(12):
        pauses.append(apart.not_before - now)
        assert claimed(apart, apart.not_before - timedelta(microseconds=1)) is None
        now = apart.not_before
        trying = claimed(apart, now)
        assert trying.revision == apart.revision + 1
        assert claimed(trying, now) is None
        assert claimed(trying, now + PROBE) is not None
        apart = after_failure(trying, NAME, BLOCKING * 2, now)
    assert pauses[:4] == [timedelta(seconds=30), MINUTE, 2 * MINUTE, 4 * MINUTE]
    assert pauses[-1] == LONGEST_PAUSE


def test_a_receiver_is_back_after_quick_acceptances_in_a_row_and_twice_as_many_after_a_relapse() -> None:
    apart = failing(1, BLOCKING * 2)
    almost = accepting(PROOF - 1, apart)
    relapsed = accepting(PROOF - 1, failing(1, before=almost))
    back = accepting(1, relapsed)
    assert proof(apart) == PROOF
    assert (almost.apart, almost.is_failing, relapsed.apart, back.apart) == (True, False, True, False)
    assert proof(failing(1, BLOCKING * 2, back)) == 2 * PROOF
    assert proof(after_failure(back, NAME, BLOCKING * 2, NOW + MINUTE + FORGOTTEN_AFTER)) == PROOF


def test_proof_has_a_bound() -> None:
    receiver = Receiver(NAME, NOW, NOW, apart=True, times_apart=10_000)
    assert proof(receiver) == PROOF * 64
    assert claimed(receiver, NOW + HOUR) is receiver
