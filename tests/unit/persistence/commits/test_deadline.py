"""One deadline for a whole commit: every caller has its answer within it, however long the calls of the store take."""

import itertools
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from delegation.persistence.backends.deadlines import calls_begin_within, check_time
from delegation.persistence.backends.dynamodb import TIMEOUTS, Calls
from delegation.persistence.commits.committer import CommitRetries
from delegation.persistence.commits.waiting import WaitingChange, WaitingQueue
from delegation.persistence.errors import (
    BackendUnavailable,
    CommitContended,
    CommitOutcomeUnknown,
    CommitUnknown,
    ValueNotStorable,
)
from tests.unit.persistence.builders import Head, add, put
from tests.unit.persistence.commits.commit_world import CommitWorld, times
from tests.unit.persistence.commits.test_groups import Gate, queued
from tests.unit.persistence.waiting.waiting_world import KINDS, Waiting, operations

SECONDS = CommitRetries().seconds
LONGEST = sum(TIMEOUTS.values())
CONDITIONAL = {"replace_reference", "add_waiting", "withdraw"}


class Slow:
    """Makes the calls of a world last up to LONGEST seconds, some without an answer, applied or not."""

    def __init__(self, world: Waiting, seed: int) -> None:
        self._draw = random.Random(seed)
        self._clock = world.clock
        self._lost = self._draw.choice([0.0, 0.3, 0.9])
        self._share = self._draw.choice([0.1, 0.5, 1.0])
        world.backend.longest_call = LONGEST
        world.backend.before, world.backend.after = self.before, self.after

    def before(self, operation: str) -> None:
        if not operation.endswith("_row"):
            check_time()
            self._took = self._share * LONGEST * self._draw.random()
            self._lose(operation, 0.5 * self._lost)

    def after(self, operation: str) -> None:
        if not operation.endswith("_row"):
            self._lose(operation, 0.5 * self._lost)
            self._clock.advance(self._took)

    def _lose(self, operation: str, chance: float) -> None:
        if self._draw.random() < chance:
            self._clock.advance(LONGEST)
            raise (CommitOutcomeUnknown if operation in CONDITIONAL else BackendUnavailable)("no answer")


@pytest.mark.parametrize("seed", range(120))
def test_a_commit_is_answered_within_its_deadline(seed: int) -> None:
    """Issue 32, line 9: it lasted 69 s."""
    world = Waiting()
    world.committer.commit(add("n"), operation="first")
    store, rival = world.process()
    rival_waits = seed % 3 == 0
    if rival_waits:
        # A change of a later release is ahead in the queue, and nobody applies it.
        change = WaitingChange(reference="main", kind="later", operation="later")
        WaitingQueue(store, "main", Head).add([change], store.current_reference("main"))
    plain = world.backend.before, world.backend.after
    Slow(world, seed)
    _, slow = world.process()
    begun = world.clock.seconds()
    outcome = "done"
    try:
        if seed % 2:
            slow.commit(add("n"), operation="mine")
        else:
            slow.commit_data("add", "n", operation="mine")
    except (CommitContended, BackendUnavailable):
        outcome = "failed"
    except CommitUnknown:
        outcome = "unknown"
    assert world.clock.seconds() - begun <= SECONDS
    world.backend.before, world.backend.after = plain
    rival.commit(add("n"), operation="rival")
    found = operations(world).count("mine")
    assert found == {"done": 1, "failed": 0}.get(outcome, found)
    assert found <= 1


def test_a_leader_is_answered_while_its_group_continues() -> None:
    """The thread that ran the attempts of a group was answered only when the youngest of the group was."""
    world = CommitWorld()
    world.committer.commit(put("start", 0))
    _, committer = world.process(retry=CommitRetries(tries=10_000))
    late = world.clock.seconds() + SECONDS + 3
    gate, answered = Gate(world), threading.Event()
    rival, count = world.process()[1], itertools.count()
    in_time: list[bool] = []

    def win() -> None:
        """Win the next swap, each a second after the last, until the old commit is answered."""
        world.backend.meanwhile.pop("replace_reference")
        if world.clock.seconds() > late:
            in_time.append(answered.wait(10))
        if not answered.is_set():
            world.clock.advance(1)
            rival.commit(put(f"rival{next(count)}", 0))
            world.backend.meanwhile["replace_reference"] = [win]

    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(committer.commit, add("first"))
        assert gate.reached.wait(30)
        old = pool.submit(committer.commit, add("old"))
        old.add_done_callback(lambda _: answered.set())
        queued(committer, 1)
        world.clock.advance(15)
        young = pool.submit(committer.commit, add("young"))
        queued(committer, 2)
        world.backend.meanwhile["replace_reference"] += [win]
        gate.opened.set()
        first.result()
        with pytest.raises(CommitContended):
            old.result()
        young.result()
    assert all(in_time)
    assert world.numbers()["young"] == 1
    assert "old" not in world.numbers()


def test_calls_of_dynamodb_begin_only_while_there_is_time() -> None:
    made: list[str] = []

    class Client:
        def get_item(self, **_arguments: Any) -> dict[str, Any]:
            made.append("get_item")
            raise AssertionError("no call may begin")

    with calls_begin_within(lambda: -0.1), pytest.raises(BackendUnavailable, match="the time of this commit is up"):
        Calls(Client()).repeatable("get_item")
    assert made == []


def test_a_value_that_cannot_be_stored_fails_only_its_own_change() -> None:
    """Issue 32, line 8: one member's bad value failed three neighbours of a contended group."""
    world = Waiting()
    world.committer.commit(add("n"))
    _, committer = world.process(kinds=[*KINDS, *[type(KINDS[0])("ignore", lambda attempt, _: add("n")(attempt))]])
    gate = Gate(world)
    with ThreadPoolExecutor(5) as pool:
        first = pool.submit(committer.commit, add("n"))
        assert gate.reached.wait(30)
        done = []
        for number, (kind, data) in enumerate([("add", "n"), ("ignore", "\ud800"), ("add", "n"), ("add", "n")], 1):
            done.append(pool.submit(committer.commit_data, kind, data, operation=str(number)))
            queued(committer, number)
        left = world.backend.meanwhile.pop("replace_reference")
        times(world, 3)
        world.backend.meanwhile["replace_reference"][:0] = left
        gate.opened.set()
        assert first.result().result == 2
        with pytest.raises(ValueNotStorable):
            done[1].result()
        assert sorted(done[number].result().result for number in (0, 2, 3)) == [3, 4, 5]
