"""A sample of the orders of events; `python -m tests.faults.expiry.matrix` plays all of them."""

from collections.abc import Sequence
from itertools import islice

import pytest

from tests.faults.expiry.events import EVENTS, Event
from tests.faults.expiry.matrix import Play, Tally, calls_of, pairs, perform, singles, unanswered

_STEP = 23
_PAIRS = 60


def wrong_of(plays: Sequence[Play]) -> list[str]:
    tally = Tally()
    for play in plays:
        tally.add(play)
    assert tally.plays == len(plays) > 0
    return tally.wrong


@pytest.mark.parametrize("event", EVENTS, ids=[event.__name__ for event in EVENTS])
def test_whatever_happens_before_a_call_nothing_that_anyone_reads_is_deleted(event: Event) -> None:
    # Each event at other calls than its neighbours in the list.
    offset = EVENTS.index(event) % _STEP
    chosen = list(islice(singles([event], step=1), 3 * offset, None, 3 * _STEP))
    assert wrong_of([*chosen, *unanswered([event], step=4 * _STEP)]) == []


def test_pairs_of_events_delete_nothing_that_anyone_reads() -> None:
    assert wrong_of(list(pairs(_PAIRS, seed=30))) == []


def test_every_call_is_counted_and_an_undisturbed_expiry_deletes_everything_of_its_plan() -> None:
    for tight in (False, True):
        tale, wrong = perform(Play((), tight))
        calls = tale.attempts[0].done
        assert wrong == []
        assert {"load", "commit", "read", "delete", "plan get", "plan put", "plan list", "neighbours", "policy"} <= {
            *calls
        }
        assert (calls.count("delete") > 3, len(calls)) == (True, calls_of(tight=tight))
        assert tale.world.planned() & tale.lake.uris() == set()
