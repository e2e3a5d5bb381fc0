"""One deadline for a whole commit: every caller has its answer within it, however long the calls of the store take."""

import itertools
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from polaris_persistence.backends.deadlines import calls_begin_within, check_time, seconds_left
from polaris_persistence.backends.dynamodb import TIMEOUTS, Calls
from polaris_persistence.commits.commits import Changed, CommitAttempt
from polaris_persistence.commits.committer import CommitRetries, Committer
from polaris_persistence.commits.waiting import WaitingChange, WaitingQueue
from polaris_persistence.errors import (
    BackendUnavailable,
    CommitContended,
    CommitOutcomeUnknown,
    CommitUnknown,
    ValueNotStorable,
)
from tests.persistence.builders import Head, add, put, store_on
from tests.persistence.commits.commit_world import CommitWorld, Gate, grouped, queued, times
from tests.persistence.contract.backends import moto_backend
from tests.persistence.waiting.waiting_world import KINDS, Waiting, operations

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


class SlowAt:
    """Makes the calls of a world from a position on last longer than a client waits, or that one alone.

    As of DynamoDB's `Calls`, a call is given up when the time of the commit is over; it was applied or not.
    """

    def __init__(self, world: Waiting, position: int, took: float, *, applied: bool, alone: bool) -> None:
        self._world, self._position, self._took, self._applied, self._alone = world, position, took, applied, alone
        self.calls = 0
        self._rivals, self._plain = False, world.backend.before
        world.backend.longest_call = LONGEST
        world.backend.before, world.backend.after = self.before, self.after

    def before(self, operation: str) -> None:
        if self._rivals or operation.endswith("_row"):
            self._plain(operation)
            return
        check_time()
        self.calls += 1
        self._rivals = True
        self._plain(operation)
        self._rivals = False
        self._left = seconds_left()
        if not self._applied:
            self._wait(operation)

    def after(self, operation: str) -> None:
        if self._applied and not self._rivals and not operation.endswith("_row"):
            self._wait(operation)

    def _wait(self, operation: str) -> None:
        is_slow = self.calls == self._position or (self.calls > self._position and not self._alone)
        self._world.clock.advance(min(self._took, self._left) if is_slow else 0.01)
        if is_slow and (not self._applied or self._took > self._left):
            raise (CommitOutcomeUnknown if operation in CONDITIONAL else BackendUnavailable)("no answer")


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.parametrize("took", [LONGEST, 4.5, 7.0, 60.0])
def test_a_call_at_any_position_that_outlasts_the_clients_time_outs_is_given_up_in_time(
    took: float, applied: bool, alone: bool
) -> None:
    """Issue 47, line 17: a call got the client's time-outs, whatever was left, and commits lasted up to 24.5 s."""
    for position in range(1, 60):
        world = Waiting()
        world.committer.commit(add("n"), operation="first")
        rival = world.process()[1]
        world.contend(losses=3)
        plain = world.backend.before, world.backend.after
        slowed = SlowAt(world, position, took, applied=applied, alone=alone)
        slow = world.process()[1]
        begun, outcome = world.clock.seconds(), "done"
        try:
            slow.commit(add("n"), operation="mine")
        except (CommitContended, BackendUnavailable):
            outcome = "failed"
        except CommitUnknown:
            outcome = "unknown"
        assert world.clock.seconds() - begun <= SECONDS + 1e-6, (position, outcome)
        made = slowed.calls
        world.backend.before, world.backend.after = plain
        world.backend.meanwhile.clear()
        rival.commit(add("n"), operation="rival")
        found = operations(world).count("mine")
        assert found in {"done": {1}, "failed": {0}}.get(outcome, {0, 1}), position
        if made < position:
            break
    else:
        pytest.fail("there were always more calls")


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

    with calls_begin_within(lambda: -0.1), pytest.raises(BackendUnavailable, match="out of time"):
        Calls(Client()).repeatable("get_item")
    assert made == []


class HungClient:
    """A client of DynamoDB one of whose calls is answered after a second, whatever its time-outs."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.calls, self.hangs_at = 0, 0

    def __getattr__(self, operation: str) -> Any:
        def call(**arguments: Any) -> Any:
            self.calls += 1
            if self.calls == self.hangs_at:
                self.hangs_at = 0
                time.sleep(1)
            return getattr(self._client, operation)(**arguments)

        return getattr(self._client, operation) if operation == "meta" else call


def test_a_call_of_dynamodb_that_is_not_answered_is_given_up_at_the_deadline() -> None:
    """On the machine's clock: every call of a commit in its turn."""
    clients: list[HungClient] = []
    with moto_backend(lambda client: clients.append(HungClient(client)) or clients[0]) as backend:
        ids = itertools.count(1).__next__
        store_on(backend).create_reference("main")
        for position in range(1, 20):
            committer = Committer(store_on(backend, ids=ids), "main", Head, retry=CommitRetries(seconds=0.4))
            client, name = clients[0], f"n{position}"
            client.calls, client.hangs_at = 0, position
            begun, outcome = time.monotonic(), {0, 1}
            try:
                committer.commit(add(name))
                outcome = {1}
            except (BackendUnavailable, CommitContended):
                outcome = {0}
            except CommitUnknown:
                pass
            assert time.monotonic() - begun < 0.7, position
            made = client.calls
            time.sleep(0.7)
            head = committer.head()
            assert int(head is not None and name in head.value.entities) in outcome, position
            if made < position:
                return
    pytest.fail("there were always more calls")


def test_files_that_are_not_written_by_the_deadline_fail_the_commit_in_time() -> None:
    written, world = threading.Event(), CommitWorld()

    class Slow:
        def write_many(self, files: Any) -> None:
            written.wait(20)

        def delete_many(self, paths: Any) -> None:
            written.wait(20)

    def change(attempt: CommitAttempt[Head]) -> Changed[Head, Any]:
        attempt.file("s3://b/a", b"x")
        return put("a", 1)(attempt)

    committer = world.process(files=Slow(), retry=CommitRetries(seconds=0.3))[1]
    begun = time.monotonic()
    with pytest.raises(BackendUnavailable, match="files"):
        committer.commit(change)
    assert time.monotonic() - begun < 2
    written.set()
    assert world.committer.head() is None


def test_a_value_that_cannot_be_stored_fails_only_its_own_change() -> None:
    """Issue 32, line 8: one member's bad value failed three neighbours of a contended group."""
    world = Waiting()
    world.committer.commit(add("n"))
    _, committer = world.process(kinds=[*KINDS, *[type(KINDS[0])("ignore", lambda attempt, _: add("n")(attempt))]])

    def lose() -> None:
        left = world.backend.meanwhile.pop("replace_reference")
        times(world, 3)
        world.backend.meanwhile["replace_reference"][:0] = left

    data = partial(committer.commit_data, "add", "n")
    bad = partial(committer.commit_data, "ignore", "\ud800")
    first, second, odd, *others = grouped(
        world, partial(committer.commit, add("n")), data, bad, data, data, then=lose, committer=committer
    )
    assert first.result().result == 2
    assert isinstance(odd.exception(), ValueNotStorable)
    assert sorted(one.result().result for one in (second, *others)) == [3, 4, 5]
