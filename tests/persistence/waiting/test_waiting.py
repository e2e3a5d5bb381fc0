"""A contended change waits in the store, the next winner combines it, and its own process learns of it once."""

import itertools
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from polaris_persistence.backends.base import RECENT_HEADS, Locator
from polaris_persistence.commits.commits import CommitAttempt
from polaris_persistence.commits.committer import CommitRetries
from polaris_persistence.commits.turns import ABANDONED_MS, Turns
from polaris_persistence.commits.waiting import (
    OUTCOMES_TYPE,
    WaitingChange,
    WaitingQueue,
    ahead,
)
from polaris_persistence.errors import BackendUnavailable, CommitContended, CommitUnknown, ValueNotStorable
from polaris_persistence.maintenance.marking import fence
from tests.persistence.builders import Head, add, put
from tests.persistence.commits.commit_world import DOWN, LOST, Refusal, grouped
from tests.persistence.commits.fleet import by_data, run_fleet
from tests.persistence.waiting.waiting_world import Waiting, operations


def test_the_next_winner_combines_what_waits_and_its_process_learns_the_outcome(world: Waiting) -> None:
    winner = world.process()[1]
    won: list[int | None] = []
    world.contend(then=lambda: won.append(winner.commit(add("n", 10), operation="winner").commit_id))
    done = world.committer.commit_data("add", "n", operation="contended")
    # The longer waiting change came first.
    assert (done.result, done.commit_id) == (2, won[0])
    assert world.numbers()["n"] == 12
    assert [name for name in operations(world) if name != ""] == ["contended", "winner"]
    assert world.waiting() == ()


@pytest.mark.parametrize("is_function", [False, True])
def test_a_change_of_a_kind_unknown_to_the_winner_and_a_function_keep_their_place(
    world: Waiting, is_function: bool
) -> None:
    seen: list[int] = []
    winner = world.process(**({} if is_function else {"kinds": []}))[1]

    def then() -> None:
        winner.commit(add("n", 10))
        seen.append(len(world.waiting()))

    world.contend(then=then)
    victim = world.committer
    done = victim.commit(add("n")) if is_function else victim.commit_data("add", "n")
    assert done.result == 12
    assert seen == [1]
    assert world.waiting() == ()


def test_a_refusal_is_raised_by_the_process_whose_change_it_is(world: Waiting) -> None:
    stranger, winner = world.process(kinds=[])[1], world.process()[1]

    def then() -> None:
        stranger.commit(put("taken", 5))
        winner.commit(add("n", 10))

    world.contend(then=then)
    with pytest.raises(Refusal, match="taken is there"):
        world.committer.commit_data("new", "taken", operation="never")
    assert world.waiting() == ()
    assert "never" not in operations(world)
    assert world.numbers()["n"] == 11


def test_a_contended_change_is_taken_back_and_never_applied(world: Waiting) -> None:
    victim = world.process(retry=CommitRetries(tries=1_000, seconds=0.5))[1]
    world.contend(losses=10_000)
    with pytest.raises(CommitContended):
        victim.commit_data("add", "n", operation="never")
    world.backend.meanwhile.clear()
    assert world.waiting() == ()
    world.process()[1].commit(add("n", 10))
    assert world.numbers()["n"] == 11
    assert "never" not in operations(world)


def test_a_change_that_was_combined_before_it_was_taken_back_has_its_outcome(world: Waiting) -> None:
    winner = world.process()[1]
    victim = world.process(retry=CommitRetries(tries=1_000, seconds=0.5))[1]

    def combine() -> None:
        world.backend.meanwhile.clear()
        winner.commit(add("n", 10))

    world.contend(losses=10_000)
    world.backend.meanwhile["withdraw"] = [combine]
    assert victim.commit_data("add", "n").result == 2
    assert world.numbers()["n"] == 12


@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("operation", ["add_waiting", "withdraw"])
def test_a_lost_answer_of_the_queue_is_resolved(world: Waiting, operation: str, where: str) -> None:
    seconds = 0.5 if operation == "withdraw" else 20.0
    victim = world.process(retry=CommitRetries(tries=1_000, seconds=seconds))[1]
    world.contend(losses=10_000 if operation == "withdraw" else 2)
    faults = world.backend.fail_before if where == "before" else world.backend.fail_after
    faults[operation] = [LOST]
    if operation == "withdraw":
        with pytest.raises(CommitContended):
            victim.commit_data("add", "n")
    else:
        assert victim.commit_data("add", "n").result == 2
    world.backend.meanwhile.clear()
    assert world.waiting() == ()
    assert world.numbers()["n"] == (1 if operation == "withdraw" else 2)


def test_a_store_that_fails_while_a_change_waits_leaves_it_unknown(world: Waiting) -> None:
    world.contend(then=lambda: world.backend.fail_before.update(replace_reference=[DOWN] * 50, withdraw=[DOWN] * 50))
    with pytest.raises(CommitUnknown):
        world.committer.commit_data("add", "n")
    world.backend.fail_before.clear()
    # It still waits, and the next winner applies it.
    world.process()[1].commit(put("other", 1))
    assert world.numbers()["n"] == 2


def test_a_store_that_fails_after_it_was_taken_back_is_unavailable(world: Waiting) -> None:
    world.contend(then=lambda: world.backend.fail_before.update(put_many=[DOWN]))
    with pytest.raises(BackendUnavailable):
        world.committer.commit_data("add", "n")
    assert world.waiting() == ()
    assert world.numbers()["n"] == 1


@pytest.mark.parametrize("fences", [1, 3])
def test_a_place_that_a_former_release_dropped_is_taken_again(world: Waiting, fences: int) -> None:
    """It replaces the whole row of the reference, without the ids that wait; no commit can have combined it."""

    def former_release() -> None:
        key = world.store.reference_key("main")
        for _ in range(fences):
            world.backend._references[key] = replace(world.backend._references[key].fenced(), waiting=())

    world.contend(then=former_release)
    assert world.committer.commit_data("add", "n", operation="once").result == 2
    assert operations(world).count("once") == 1


def test_an_abandoned_change_of_an_unknown_kind_is_dropped(world: Waiting) -> None:
    store = world.process()[0]
    queue = WaitingQueue(store, "main", Head)
    queue.add([WaitingChange(reference="main", kind="later release")], store.current_reference("main"))
    world.committer.commit(add("n"))
    assert len(world.waiting()) == 1
    world.clock.advance(ABANDONED_MS / 1_000 + 1)
    world.committer.commit(add("n"))
    assert world.waiting() == ()


def test_an_outcome_is_found_after_more_commits_than_a_reference_lists(world: Waiting) -> None:
    winner = world.process()[1]

    def then() -> None:
        winner.commit(add("n", 10))
        for number in range(40):
            winner.commit(put(f"later{number}", 0))

    world.contend(then=then)
    assert world.committer.commit_data("add", "n").result == 2


def test_what_waits_longest_is_next() -> None:
    assert ahead([3, 5, 8], [8, 9], []) == [3, 5]
    assert ahead([3, 5, 8], [8], [3]) == [5]
    assert ahead([3, 5], [2], []) == []


@pytest.mark.parametrize("seed", range(3))
def test_a_fleet_that_loses_answers_and_processes_applies_every_change_once(seed: int) -> None:
    """`run_fleet` checks that each acknowledged change is in the log once, and that no other one is."""
    report = run_fleet(60, seconds=2, seed=seed, processes=20, commit=by_data, lost_answers=0.05, kills=0.005)
    assert report.contended == 0
    assert len(report.latencies) + report.unknown == report.total


@pytest.mark.parametrize("commits", [0, 5])
def test_a_waiter_that_was_combined_and_then_frozen_past_two_sweeps_has_its_outcome(
    world: Waiting, commits: int
) -> None:
    """Issue 32, line 2: its outcome was swept, so it took its change for dropped and applied it again."""
    winner = world.process()[1]
    victim = world.process(retry=CommitRetries(tries=1_000, seconds=1e9))[1]

    def frozen() -> None:
        winner.commit(add("n", 10))
        for number in range(commits):
            winner.commit(put(f"later{number}", 0))
        world.sweep(3)

    world.contend(then=frozen)
    assert victim.commit_data("add", "n", operation="once").result == 2
    assert operations(world).count("once") == 1
    assert world.numbers()["n"] == 12


@pytest.mark.parametrize("operation", ["commit", "withdraw"])
def test_a_waiter_whose_outcome_the_last_release_swept_is_unknown(world: Waiting, operation: str) -> None:
    """It marks no outcomes; each of its runs fences the reference."""
    winner = world.process()[1]
    seconds = 0.5 if operation == "withdraw" else 20.0
    victim = world.process(retry=CommitRetries(tries=1_000, seconds=seconds))[1]

    def swept() -> None:
        world.backend.meanwhile.clear()
        winner.commit(add("n", 10))
        outcomes = [key for key in world.backend._objects if key.type == OUTCOMES_TYPE.name]
        world.backend.delete_many(Locator(key) for key in outcomes)
        for _ in range(2):
            assert fence(world.backend, world.store.current_reference("main"))

    if operation == "withdraw":
        world.contend(losses=10_000)
        world.backend.meanwhile["withdraw"] = [swept]
    else:
        world.contend(then=swept)
    with pytest.raises(CommitUnknown):
        victim.commit_data("add", "n", operation="once")
    assert operations(world).count("once") == 1
    assert world.numbers()["n"] == 12


def test_outcomes_of_former_heads_are_swept(world: Waiting) -> None:
    winner = world.process()[1]
    world.contend(then=lambda: winner.commit(add("n", 10)))
    world.committer.commit_data("add", "n")
    assert len(world.backend.stored_ids(OUTCOMES_TYPE.name)) == 1
    for number in range(RECENT_HEADS):
        winner.commit(put(f"later{number}", 0))
    world.sweep(3)
    assert not world.backend.stored_ids(OUTCOMES_TYPE.name)


def moving(world: Waiting, refusals: int) -> None:
    """Let rivals move the reference before each of the next calls that add to those that wait."""
    rival = world.process(kinds=[])[1]
    numbers = itertools.count()
    world.backend.meanwhile["add_waiting"] = [lambda: rival.commit(put(f"mover{next(numbers)}", 0))] * refusals


def test_a_place_that_is_refused_every_time_is_no_unknown_commit(world: Waiting) -> None:
    """Issue 32, line 6: a clear refusal changes nothing, however often it is repeated."""
    store = world.process()[0]
    moving(world, 8)
    change = WaitingChange(reference="main", kind="add", data="n")
    places, known = WaitingQueue(store, "main", Head).add([change], store.current_reference("main"))
    assert places == []
    assert known == store.current_reference("main")
    assert world.waiting() == ()


@pytest.mark.parametrize("refusals", [8, 9, 40])
def test_a_change_that_found_no_place_is_attempted_without_one(world: Waiting, refusals: int) -> None:
    world.contend(losses=3)
    moving(world, refusals)
    assert world.committer.commit_data("add", "n", operation="once").result == 2
    assert operations(world).count("once") == 1
    assert world.waiting() == ()


def test_a_place_that_was_refused_after_a_lost_answer_is_resolved(world: Waiting) -> None:
    world.contend(losses=3)
    world.backend.fail_before["add_waiting"] = [None, None, LOST]
    moving(world, 5)
    assert world.committer.commit_data("add", "n", operation="once").result == 2
    assert operations(world).count("once") == 1
    assert world.waiting() == ()


def test_changes_that_wait_and_are_then_committed_alone_are_applied_once(world: Waiting) -> None:
    """The reference as it was known before they waited does not show that they do."""
    seals = itertools.count(1)

    def seal(head: Head, _attempt: CommitAttempt[Head]) -> Head:
        # The first commit, two attempts that lose, and two that do not make a head together.
        if next(seals) in {4, 5}:
            raise ValueNotStorable("too large together")
        return head

    committer = world.process(seal=seal)[1]
    world.contend()
    losses = world.backend.meanwhile["replace_reference"]
    first, *rest = grouped(
        world,
        partial(committer.commit, put("first", 1)),
        *(partial(committer.commit_data, "add", name) for name in "ab"),
        then=lambda: world.backend.meanwhile["replace_reference"].extend(losses),
        committer=committer,
    )
    first.result()
    assert [one.result().result for one in rest] == [1, 1]
    assert next(seals) > 6
    world.process()[1].commit(put("later", 1))
    numbers = world.numbers()
    assert (numbers["a"], numbers["b"]) == (1, 1)
    assert world.waiting() == ()


def test_a_change_of_unknown_outcome_stops_no_other_of_its_group() -> None:
    nothing: dict[str, Any] = {"error": None, "keeps_parts": False, "outcome": None}
    members: list[Any] = [SimpleNamespace(ticket=number, **nothing) for number in (1, 2, 3)]

    def withdraw(ticket: int) -> None:
        if ticket == 1:
            raise CommitUnknown(ticket)

    turns: Any = SimpleNamespace(_waiting=SimpleNamespace(withdraw=withdraw))
    Turns.withdraw_all(turns, cast("Any", SimpleNamespace(waiting=members)))
    assert [one.ticket for one in members] == [None] * 3
    assert [isinstance(one.error, CommitUnknown) for one in members] == [True, False, False]
