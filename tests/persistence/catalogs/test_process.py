"""The persistence of one process."""

import pytest

from polaris_persistence.backends.base import SYSTEM
from polaris_persistence.commits.commits import Changed, CommitAttempt
from polaris_persistence.commits.committer import Committer
from polaris_persistence.commits.entities import EntityHead, seal
from polaris_persistence.errors import CommitContended
from polaris_persistence.ids.snowflake import NODES
from polaris_persistence.index.spill import IndexPolicy
from tests.kit.clocks import MicrosecondClock
from tests.persistence.builders import CountingBackend, Entity, split_id
from tests.persistence.worlds import naming, process_on


@pytest.fixture
def clock() -> MicrosecondClock:
    return MicrosecondClock()


@pytest.fixture
def backend(clock: MicrosecondClock) -> CountingBackend:
    backend = CountingBackend()
    backend.now_us = clock.now_us
    return backend


def test_a_process_that_only_reads_leases_no_node(backend: CountingBackend, clock: MicrosecondClock) -> None:
    writer = process_on(backend, clock)
    writer.realms()
    reader = process_on(backend, clock)
    assert reader.realms().page(limit=5).entities == ()
    assert list(reader.store("acme", "c").references()) == []
    reader.close()
    assert backend.stored_ids("node") == set()


def test_ids_of_processes_differ_and_a_closed_process_releases_its_node(
    backend: CountingBackend, clock: MicrosecondClock
) -> None:
    processes = [process_on(backend, clock) for _ in range(3)]
    refs = [one.store(SYSTEM, SYSTEM).write([Entity(name="a"), Entity(name="b")]) for one in processes]
    ids = [ref.id for some in refs for ref in some]
    assert len(set(ids)) == 6
    assert len({split_id(id_).node for id_ in ids}) == 3
    for one in processes:
        one.close()
    clock.advance(0.001)
    later = [process_on(backend, clock) for _ in range(NODES)]
    nodes = {split_id(one.store(SYSTEM, SYSTEM).write([Entity(name="x")])[0].id).node for one in later}
    assert len(nodes) == NODES


def test_the_cache_is_shared_by_the_catalogs_and_bypassed_by_maintenance(
    backend: CountingBackend, clock: MicrosecondClock
) -> None:
    one = process_on(backend, clock)
    [ref] = one.store("r", "c").write([Entity(name="a")])
    one.store("r", "c").create_reference("main")
    backend.calls.clear()
    assert one.store("r", "c").fetch(ref, Entity)
    assert one.store("r", "c2").fetch(ref, Entity) is None
    assert backend.calls == ["fetch_many"]
    before = one.statistics()
    one.maintenance().run()
    assert one.statistics() == before
    assert before.hits == 1


def test_a_commit_counts_its_seconds_by_the_clock_of_its_process(
    backend: CountingBackend, clock: MicrosecondClock
) -> None:
    # Issue 24, line 0: the committer read the machine's clock, so that what a test's process wrote was not repeatable.
    store = process_on(backend, clock).store("acme", "sales")
    store.create_reference("main")
    committer = Committer(store, "main", EntityHead, seal=seal(IndexPolicy()))
    committer.commit(naming("in time"))
    attempts: list[EntityHead | None] = []

    def slow(attempt: CommitAttempt[EntityHead]) -> Changed[EntityHead, None]:
        attempts.append(attempt.head)
        clock.advance(21)
        Committer(store, "main", EntityHead, seal=seal(IndexPolicy())).commit(naming("a rival's"))
        return naming("late")(attempt)

    with pytest.raises(CommitContended):
        committer.commit(slow)
    assert len(attempts) == 1
