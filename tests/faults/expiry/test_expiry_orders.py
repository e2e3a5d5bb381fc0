"""A sample of the orders of events; `python -m tests.faults.expiry.matrix` plays all of them."""

from collections.abc import Callable, Sequence
from itertools import islice

import pytest

from delegation.removal.expiry import run
from delegation.removal.expiry.commit import TableLoads
from delegation.removal.expiry.reduction import NeededFiles
from delegation.removal.expiry.run import ExpiryRun
from tests.effort import THOROUGH
from tests.faults.expiry.events import EVENTS, Event, add_files, bring_file_back, clone, detach_policy, tag_old
from tests.faults.expiry.matrix import Play, calls_of, pairs, perform, singles, told, unanswered
from tests.faults.expiry.spark_matrix import selected
from tests.kit.explorer import play_all
from tests.unit.removal.expiry.spark.executors_here import expire_with_executors_here

_STEP = 23 if THOROUGH else 237
_PAIRS = 60 if THOROUGH else 12
_ROUNDS = 12 if THOROUGH else 1


def wrong_of(plays: Sequence[Play]) -> list[str]:
    tally = play_all("expiry", plays, told, [].append)
    assert tally.ends.total() == len(plays) > 0
    return tally.wrong


@pytest.mark.parametrize("event", EVENTS, ids=[event.__name__ for event in EVENTS])
def test_whatever_happens_before_a_call_nothing_that_anyone_reads_is_deleted(event: Event) -> None:
    # Each event at other calls than its neighbours in the list; undisturbed, killed before and after its call in turn.
    number = EVENTS.index(event)
    chosen = list(islice(singles([event]), 3 * (number % _STEP) + number % 3, None, 3 * _STEP + 1))
    lost = unanswered([event], step=4 * _STEP)
    assert wrong_of([*chosen, *(lost if THOROUGH else islice(lost, number % 4, None, 4))]) == []


def test_pairs_of_events_delete_nothing_that_anyone_reads() -> None:
    assert wrong_of(list(pairs(_PAIRS, seed=30))) == []


@pytest.mark.parametrize("event", EVENTS, ids=[event.__name__ for event in EVENTS])
def test_nor_is_it_deleted_by_executors(event: Event) -> None:
    expire = expire_with_executors_here
    tally = play_all("executors", selected(expire, _ROUNDS, [event]), lambda play: told(play, expire), [].append)
    assert (tally.ends.total(), tally.wrong) == (_ROUNDS, [])


def _takes_nothing_out(_run: ExpiryRun, _needed: object) -> None:
    return None


@pytest.mark.parametrize(
    ("owner", "name", "instead", "event"),
    [
        (run, "check_no_ref_lost", lambda *_: None, tag_old),
        (NeededFiles, "add_neighbours", lambda *_: None, clone),
        (NeededFiles, "add_neighbours", lambda *_: None, add_files),
        (ExpiryRun, "_subtract", _takes_nothing_out, bring_file_back),
        (TableLoads, "permit_deleting", lambda *_: True, detach_policy),
    ],
)
def test_without_a_safeguard_the_plays_find_what_is_deleted(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, instead: Callable[..., object], event: Event
) -> None:
    commit = perform(Play(()))[0].attempts[0].done.index("commit") + 1
    monkeypatch.setattr(owner, name, instead)
    # A look that is never taken is missed by the attempt after the one that died.
    plays = [Play(((at, event),), kill_at=kill) for at in range(commit - 4, commit + 7) for kill in (None, at)]
    assert wrong_of(plays) != []


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
