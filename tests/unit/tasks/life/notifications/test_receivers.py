"""When a receiver is set apart and when it is back: pure functions of its last deliveries."""

from datetime import timedelta

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


def failing(times: int, took: timedelta = QUICK, before: Receiver | None = None) -> Receiver | None:
    for _ in range(times):
        before = after_failure(before, NAME, took, NOW)
    return before


def accepting(times: int, before: Receiver | None, took: timedelta = QUICK) -> Receiver | None:
    for _ in range(times):
        before = after_acceptance(before, NAME, took, NOW + MINUTE)
    return before


def test_a_receiver_that_accepts_quickly_has_no_record() -> None:
    assert accepting(3, None) is None
    assert accepting(3, None, SLOW) is None


def test_refusals_in_a_row_set_a_receiver_apart_and_an_acceptance_between_them_does_not() -> None:
    almost = failing(STRIKES - 1)
    assert almost is not None
    assert not almost.apart
    mended = accepting(1, almost)
    assert mended is not None
    assert (mended.strikes, mended.failures) == (0, 0)
    again = failing(STRIKES - 1, before=mended)
    assert again is not None
    assert not again.apart
    apart = failing(1, before=again)
    assert apart is not None
    assert apart.apart
    assert apart.is_failing


def test_one_delivery_that_blocks_sets_its_receiver_apart_accepted_or_not() -> None:
    hung = failing(1, BLOCKING + QUICK)
    slow = accepting(1, None, BLOCKING + QUICK)
    assert hung is not None
    assert slow is not None
    assert (hung.apart, hung.is_failing) == (True, True)
    assert (slow.apart, slow.is_failing) == (True, False)
    dragging = accepting(STRIKES - 1, None, SLOW + QUICK)
    assert dragging is not None
    assert not dragging.apart
    assert accepting(1, dragging, SLOW + QUICK).apart  # type: ignore[union-attr]


def test_a_failing_receiver_is_tried_by_one_delivery_after_pauses_that_double() -> None:
    apart = failing(1, BLOCKING * 2)
    assert apart is not None
    pauses = []
    now = NOW
    for _ in range(12):
        pauses.append(apart.not_before - now)
        assert claimed(apart, apart.not_before - timedelta(microseconds=1)) is None
        now = apart.not_before
        trying = claimed(apart, now)
        assert trying is not None
        assert trying.revision == apart.revision + 1
        assert claimed(trying, now) is None
        assert claimed(trying, now + PROBE) is not None
        apart = after_failure(trying, NAME, BLOCKING * 2, now)
    assert pauses[:4] == [timedelta(seconds=30), MINUTE, 2 * MINUTE, 4 * MINUTE]
    assert pauses[-1] == LONGEST_PAUSE


def test_a_slow_receiver_is_tried_by_any_number_of_deliveries() -> None:
    slow = accepting(1, None, BLOCKING * 2)
    assert slow is not None
    assert claimed(slow, NOW + MINUTE) is slow


def test_a_receiver_is_back_after_quick_acceptances_in_a_row_and_twice_as_many_after_a_relapse() -> None:
    apart = failing(1, BLOCKING * 2)
    assert apart is not None
    assert proof(apart) == PROOF
    almost = accepting(PROOF - 1, apart)
    assert almost is not None
    assert (almost.apart, almost.is_failing) == (True, False)
    relapsed = accepting(PROOF - 1, failing(1, before=almost))
    assert relapsed is not None
    assert relapsed.apart
    back = accepting(1, relapsed)
    assert back is not None
    assert not back.apart
    again = failing(1, BLOCKING * 2, back)
    assert again is not None
    assert proof(again) == 2 * PROOF
    later = after_failure(back, NAME, BLOCKING * 2, NOW + MINUTE + FORGOTTEN_AFTER)
    assert proof(later) == PROOF


def test_proof_has_a_bound() -> None:
    receiver = Receiver(NAME, NOW, NOW, apart=True, times_apart=10_000)
    assert proof(receiver) == PROOF * 64
    assert claimed(receiver, NOW + HOUR) is receiver
