"""Answers that nobody expects: what cannot be encoded, exceptions of any kind after the swap, and long waits."""

from functools import partial

import pytest

from polaris_persistence.backends.base import RECENT_HEADS
from polaris_persistence.commits.commits import Changed, CommitAttempt
from polaris_persistence.commits.committer import CommitRetries
from polaris_persistence.errors import CommitContended, CommitUnknown
from tests.persistence.builders import Head, add, put
from tests.persistence.commits.commit_world import DOWN, LOST, CommitWorld, grouped, times

GATEWAY = 29.0
"""Seconds after which an API gateway times out (Amazon API Gateway, Quotas, Integration timeout)."""


def unencodable(attempt: CommitAttempt[Head]) -> Changed[Head, None]:
    return Changed((attempt.head or Head()).model_copy(update={"odd": object()}), None)


@pytest.mark.parametrize("how", ["operation", "head"])
def test_what_one_member_cannot_encode_fails_that_member_only(world: CommitWorld, how: str) -> None:
    world.committer.commit(put("start", 0))
    change, operation = (unencodable, "odd") if how == "head" else (add("n"), "\ud800")
    commit = world.committer.commit
    first, before, odd, after = grouped(
        world,
        partial(commit, add("n")),
        partial(commit, add("n"), operation="before"),
        partial(commit, change, operation=operation),
        partial(commit, add("n"), operation="after"),
    )
    assert [one.result().result for one in (first, before, after)] == [1, 2, 3]
    with pytest.raises(Exception, match=r"surrogate|serialize|encode"):
        odd.result()
    assert world.numbers() == {"start": 0, "n": 3}


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
    world.backend.fail_after["replace_reference"] = [None, KeyboardInterrupt()]
    first, *rest = grouped(world, *[partial(world.committer.commit, add("n"))] * 4)
    assert first.result().result == 1
    assert [type(one.exception()) for one in rest] == [KeyboardInterrupt, CommitUnknown, CommitUnknown]
    assert world.numbers() == {"start": 0, "n": 4}


def test_a_commit_ends_before_a_gateway_times_out_even_after_a_wait_in_its_group(world: CommitWorld) -> None:
    retry = CommitRetries(tries=100_000)
    world.committer = world.process(retry=retry)[1]
    world.committer.commit(put("start", 0))
    begun: list[float] = []

    def wait() -> None:
        begun.append(world.clock.seconds())
        world.clock.advance(retry.seconds - 1)
        times(world, 100_000)

    _, late = grouped(world, *[partial(world.committer.commit, add("n"))] * 2, then=wait)
    assert isinstance(late.exception(), CommitContended)
    assert world.clock.seconds() - begun[0] < GATEWAY - 3
