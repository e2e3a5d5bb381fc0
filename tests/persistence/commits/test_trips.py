"""The round trips of cold and contended commits whose head is small, and of names of realms and catalogs."""

from tests.persistence.builders import put
from tests.persistence.commits.commit_world import UNCONTENDED, CommitWorld


def test_a_cold_process_reads_a_small_head_with_its_reference() -> None:
    world = CommitWorld()
    world.committer.commit(put("a", 1))
    cold = world.process()[1]
    world.calls()
    cold.commit(put("b", 2))
    assert world.calls() == ["read_reference", *UNCONTENDED]
    assert world.numbers() == {"a": 1, "b": 2}


def test_a_lost_attempt_with_a_small_head_costs_two_round_trips() -> None:
    world = CommitWorld()
    world.committer.commit(put("a", 1))
    world.process()[1].commit(put("b", 2))
    world.calls()
    world.committer.commit(put("c", 3))
    assert world.calls() == [*UNCONTENDED, *UNCONTENDED, "delete_many"]
    assert world.numbers() == {"a": 1, "b": 2, "c": 3}
