"""Answers that nobody expects: what cannot be encoded, exceptions of any kind after the swap, and long waits."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from polaris_persistence.backends.base import RECENT_HEADS
from polaris_persistence.commits.commits import Changed, CommitAttempt
from polaris_persistence.commits.committer import CommitRetries
from polaris_persistence.errors import CommitContended, CommitUnknown
from tests.persistence.builders import Head, add, put
from tests.persistence.commits.commit_world import DOWN, LOST, CommitWorld, times
from tests.persistence.commits.test_groups import Gate, queued

GATEWAY = 29.0
"""Seconds after which an API gateway times out (Amazon API Gateway, Quotas, Integration timeout)."""


@pytest.fixture
def world() -> CommitWorld:
    return CommitWorld()


def unencodable(attempt: CommitAttempt[Head]) -> Changed[Head, None]:
    return Changed((attempt.head or Head()).model_copy(update={"odd": object()}), None)


@pytest.mark.parametrize("how", ["operation", "head"])
def test_what_one_member_cannot_encode_fails_that_member_only(world: CommitWorld, how: str) -> None:
    world.committer.commit(put("start", 0))
    gate = Gate(world)
    with ThreadPoolExecutor(8) as pool:
        holding = pool.submit(world.committer.commit, add("n"))
        assert gate.reached.wait(30)
        done = []
        for number, name in enumerate(["before", "odd", "after"], 1):
            change = unencodable if (name, how) == ("odd", "head") else add("n")
            operation = "\ud800" if (name, how) == ("odd", "operation") else name
            done.append(pool.submit(world.committer.commit, change, operation=operation))
            queued(world.committer, number)
        gate.opened.set()
        assert holding.result().result == 1
        assert done[0].result().result == 2
        with pytest.raises(Exception, match=r"surrogate|serialize|encode"):
            done[1].result()
        assert done[2].result().result == 3
    assert world.numbers() == {"start": 0, "n": 3}


@pytest.mark.parametrize("applied", [True, False])
def test_an_odd_exception_of_the_swap_is_resolved_by_reading(world: CommitWorld, applied: bool) -> None:
    world.committer.commit(add("a"))
    faults = world.backend.fail_after if applied else world.backend.fail_before
    faults["replace_reference"] = [ValueError("the answer has no body")]
    done = world.committer.commit(add("a"), operation="op")
    assert done.result == 2
    assert [one.key.id for one in world.committer.log() if "op" in one.value.operations] == [done.commit_id]


@pytest.mark.parametrize("fault", [DOWN, ValueError("odd")])
def test_a_swap_whose_log_cannot_be_read_is_unknown_and_deletes_nothing(world: CommitWorld, fault: Exception) -> None:
    world.committer.commit(add("a"))
    rival = world.process()[1]

    def others() -> None:
        for number in range(RECENT_HEADS + 5):
            rival.commit(put(f"r{number}", 0))
        world.backend.fail_before["fetch_many"] = [fault] * 100

    world.backend.meanwhile["read_reference"] = [lambda: None, others]
    world.backend.fail_after["replace_reference"] = [LOST]
    world.committer.head()
    with pytest.raises(CommitUnknown):
        world.committer.commit(add("a"), operation="op")
    world.backend.fail_before.clear()
    assert world.numbers()["a"] == 2
    assert world.reachable() <= world.backend.stored_ids("entity")


def test_the_neighbours_of_a_thread_that_was_stopped_in_the_swap_get_commit_unknown(world: CommitWorld) -> None:
    world.committer.commit(put("start", 0))
    gate = Gate(world)
    world.backend.fail_after["replace_reference"] = [None, KeyboardInterrupt()]
    with ThreadPoolExecutor(8) as pool:
        holding = pool.submit(world.committer.commit, add("n"))
        assert gate.reached.wait(30)
        done = []
        for number in range(1, 4):
            done.append(pool.submit(world.committer.commit, add("n")))
            queued(world.committer, number)
        gate.opened.set()
        assert holding.result().result == 1
        outcomes = [one.exception() for one in done]
    assert [type(one) for one in outcomes] == [KeyboardInterrupt, CommitUnknown, CommitUnknown]
    assert world.numbers() == {"start": 0, "n": 4}


def test_a_commit_ends_before_a_gateway_times_out_even_after_a_wait_in_its_group(world: CommitWorld) -> None:
    retry = CommitRetries(tries=100_000)
    committer = world.process(retry=retry)[1]
    committer.commit(put("start", 0))
    gate = Gate(world)
    ended: list[float] = []

    def late() -> None:
        with pytest.raises(CommitContended):
            committer.commit(add("n"))
        ended.append(world.clock.seconds())

    first = threading.Thread(target=committer.commit, args=(add("n"),))
    first.start()
    assert gate.reached.wait(30)
    begun = world.clock.seconds()
    second = threading.Thread(target=late)
    second.start()
    queued(committer, 1)
    world.clock.advance(retry.seconds - 1)
    times(world, 100_000)
    gate.opened.set()
    first.join(30)
    second.join(30)
    assert len(ended) == 1
    assert ended[0] - begun < GATEWAY - 3
