"""Calls that a store applies after their client stopped waiting: no acknowledged commit loses an object to one."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from polaris_persistence.backends.base import Locator
from polaris_persistence.backends.dynamodb import TIMEOUTS
from polaris_persistence.commits.commits import Changed, CommitAttempt
from polaris_persistence.commits.committer import CommitRetries
from polaris_persistence.commits.groups import Pending
from polaris_persistence.commits.waiting import WaitingChange
from polaris_persistence.errors import BackendUnavailable, CommitContended
from tests.persistence.builders import Entity, Head, add, put
from tests.persistence.commits.commit_world import DOWN, CommitWorld, Gate, queued

SECONDS = CommitRetries().seconds
LONGEST = sum(TIMEOUTS.values())


def once(name: str) -> Callable[[CommitAttempt[Head]], Changed[Head, None]]:
    """Return a change whose entity is made once for all attempts that find `n` in the same state, under one key."""

    def change(attempt: CommitAttempt[Head]) -> Changed[Head, None]:
        head = attempt.head or Head()
        ref = attempt.write_once(name, head.entities.get("n"), lambda: Entity(name=name))
        return Changed(head.model_copy(update={"entities": {**head.entities, name: ref}}), None)

    return change


def test_a_delete_that_arrives_late_does_not_hit_what_a_later_group_wrote_again() -> None:
    """An old commit and a young one lose together; the old one's time is up, and the young one continues in the next
    group with the object that it memoised. The delete for the lost attempt, which got no answer, arrives after that."""
    world = CommitWorld()
    world.committer.commit(put("start", 0))
    _, committer = world.process()
    rival = world.process()[1]
    late: list[list[Locator]] = []
    delete = world.backend.delete_many

    def no_answer(locators: Iterable[Locator]) -> None:
        late.append(list(locators))
        raise BackendUnavailable("no answer")

    def wins(seconds: float) -> None:
        left = world.backend.meanwhile.pop("replace_reference")
        rival.commit(put(f"rival after {seconds}", 0))
        world.backend.meanwhile["replace_reference"] = left
        world.backend.delete_many = no_answer  # type: ignore[method-assign]
        world.clock.advance(seconds)

    gate = Gate(world)
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(committer.commit, add("first"))
        assert gate.reached.wait(30)
        old = pool.submit(committer.commit, once("old"))
        queued(committer, 1)
        world.clock.advance(SECONDS - 5)
        young = pool.submit(committer.commit, once("young"))
        queued(committer, 2)
        world.backend.meanwhile["replace_reference"] += [lambda: wins(6), lambda: wins(0)]
        gate.opened.set()
        first.result()
        with pytest.raises(CommitContended):
            old.result()
        young.result()
    for locators in late:
        delete(locators)
    assert world.numbers()["young"] == 0
    stored = world.backend.stored_ids("entity")
    assert stored == world.reachable(), "what the old commit stored is deleted, what the young one names is not"


def test_an_object_whose_write_was_not_sent_is_written_by_the_next_attempt() -> None:
    """A member whose thread was suspended before it joined the group has less time than the first one. When that is up
    while the store takes no writes, the first one continues in the same group, with what it memoised."""
    world = CommitWorld()
    world.committer.commit(put("start", 0))
    world.backend.longest_call = LONGEST
    _, committer = world.process()

    def member(change: Any, seconds: float) -> Pending[Head]:
        deadline = world.clock.seconds() + seconds
        return Pending(change, "", deadline, WaitingChange(reference="main"))

    def down() -> None:
        world.clock.advance(1)
        raise DOWN

    world.backend.meanwhile["put_many"] = [down]
    one, other = member(once("one"), SECONDS), member(add("other"), LONGEST + 0.5)
    assert committer._run([one, other]) == []
    assert one.outcome is not None
    assert isinstance(other.error, CommitContended)
    assert world.numbers()["one"] == 0
