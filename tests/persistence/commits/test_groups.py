"""Commits of one process grouped into one swap, with separate outcomes and common retries."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

from polaris_persistence.commits.commits import Changed, CommitAttempt, Committed
from polaris_persistence.commits.committer import CommitRetries
from polaris_persistence.errors import (
    BackendUnavailable,
)
from tests.persistence.builders import (
    Entity,
    Head,
    add,
    put,
)
from tests.persistence.commits.commit_world import DOWN, UNCONTENDED, CommitWorld, Refusal, grouped


def test_synchronizing_locally_groups_concurrent_commits_into_one_swap(world: CommitWorld) -> None:
    world.committer.commit(put("start", 0))
    world.calls()
    ends = grouped(world, *(partial(world.committer.commit, add("n"), operation=str(number)) for number in range(20)))
    results = [done.result() for done in ends]
    assert [done.result for done in results] == list(range(1, 21))
    assert world.calls() == [*UNCONTENDED, *UNCONTENDED]
    assert len({done.commit_id for done in results}) == 2
    log = list(world.committer.log())
    assert sorted(int(name) for one in log for name in one.value.operations) == list(range(20))
    assert world.numbers() == {"start": 0, "n": 20}


def test_each_commit_of_a_group_has_a_separate_outcome(world: CommitWorld) -> None:
    world.committer.commit(put("start", 0))

    def refuse(attempt: CommitAttempt[Head]) -> Changed[Head, int]:
        attempt.write(Entity(name="never"))
        raise Refusal("no")

    def bug(attempt: CommitAttempt[Head]) -> Changed[Head, int]:
        raise ZeroDivisionError

    def look(attempt: CommitAttempt[Head]) -> Changed[Head, int]:
        assert attempt.head is not None
        found = attempt.fetch(attempt.head.entities["n"], Entity)
        assert found
        return Changed(None, found.value.number)

    changes = (add("n"), add("n"), refuse, bug, add("n"), look)
    first, second, refused, failed, third, seen = grouped(
        world, *(partial(world.committer.commit, change) for change in changes)
    )
    assert [one.result().result for one in (first, second, third)] == [1, 2, 3]
    assert isinstance(refused.exception(), Refusal)
    assert isinstance(failed.exception(), ZeroDivisionError)
    # It read what was not stored yet, and was notified only when it was.
    assert seen.result() == Committed(3, None)
    # One entity for the start, one for the first commit, two for the group; the refused one wrote nothing.
    assert len(world.backend.stored_ids("entity")) == 4


def test_a_group_that_loses_is_decided_again_on_the_new_head(world: CommitWorld) -> None:
    world.committer.commit(put("start", 0))

    def only_without_rival(attempt: CommitAttempt[Head]) -> Changed[Head, str]:
        if attempt.head and "rival" in attempt.head.entities:
            raise Refusal("rival is there")
        return Changed(put("mine", 1)(attempt).head, "alone")

    rival = world.process()[1]
    first, second, refused = grouped(
        world,
        *(partial(world.committer.commit, change) for change in (add("n"), add("n"), only_without_rival)),
        then=lambda: rival.commit(put("rival", 7)),
    )
    assert [one.result().result for one in (first, second)] == [1, 2]
    assert isinstance(refused.exception(), Refusal)
    assert world.numbers() == {"start": 0, "rival": 7, "n": 2}
    assert world.backend.stored_ids("entity") >= world.reachable()


def test_a_store_failure_fails_the_whole_group_and_the_next_group_commits(world: CommitWorld) -> None:
    world.committer.commit(put("start", 0))
    world.backend.fail_before["replace_reference"] = [None, DOWN]
    first, *rest = grouped(world, *[partial(world.committer.commit, add("n"))] * 4)
    assert first.result().result == 1
    assert [type(one.exception()) for one in rest] == [BackendUnavailable] * 3
    assert world.committer.commit(add("n")).result == 2
    assert world.backend.stored_ids("entity") >= world.reachable()


def test_groups_hold_at_most_their_size() -> None:
    world = CommitWorld()
    world.committer = world.process(group_size=3)[1]
    world.committer.commit(put("start", 0))
    world.calls()
    ends = grouped(world, *[partial(world.committer.commit, add("n"))] * 8)
    assert sorted(one.result().result for one in ends) == list(range(1, 9))
    assert world.calls() == UNCONTENDED * 4


def test_without_grouping_threads_race_and_all_succeed() -> None:
    world = CommitWorld()
    committer = world.process(group_size=1, retry=CommitRetries(tries=500, seconds=1e9))[1]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda _: committer.commit(add("n")), range(60)))
    assert world.numbers() == {"n": 60}
    assert len(list(committer.log())) == 60


def test_the_head_is_sealed_once_for_a_group(world: CommitWorld) -> None:
    sealed: list[int] = []

    def seal(head: Head, attempt: CommitAttempt[Head]) -> Head:
        sealed.append(len(head.entities))
        ref = attempt.write(Entity(name="stripe", number=len(head.entities)))
        return head.model_copy(update={"entities": {**head.entities, "stripe": ref}})

    committer = world.process(seal=seal)[1]
    committer.commit(put("a", 1))
    committer.commit(put("b", 1))
    assert sealed == [1, 3]
    assert world.numbers() == {"a": 1, "b": 1, "stripe": 3}
