"""The persistence of one process."""

from typing import Any

import pytest

from polaris_persistence.backends.base import SYSTEM
from polaris_persistence.catalogs.process import OWN_TYPES, PersistenceProcess
from polaris_persistence.commits.commits import Changed, CommitAttempt
from polaris_persistence.commits.committer import Committer
from polaris_persistence.commits.entities import EntityChanges, EntityHead, seal
from polaris_persistence.errors import CommitContended
from polaris_persistence.ids.snowflake import NODES
from polaris_persistence.index.keys import IndexKey
from polaris_persistence.index.spill import IndexPolicy
from polaris_persistence.maintenance.run import SweepPolicy
from polaris_persistence.objects.types import ObjectTypes
from tests.kit.clocks import MicrosecondClock
from tests.persistence.builders import ENTITY, CountingBackend, Entity, split_id

TYPES = ObjectTypes([*OWN_TYPES, ENTITY])


@pytest.fixture
def backend() -> CountingBackend:
    return CountingBackend()


def process(backend: CountingBackend, clock: MicrosecondClock, **more: Any) -> PersistenceProcess:
    backend.now_us = clock.now_us  # type: ignore[method-assign]
    return PersistenceProcess(
        backend, types=TYPES, now_ns=lambda: clock.us * 1_000, clock=clock.seconds, sleep=clock.sleep, **more
    )


def named(name: str) -> Any:
    def change(attempt: CommitAttempt[EntityHead]) -> Changed[EntityHead, None]:
        entities = EntityChanges(attempt)
        entities.put(IndexKey.of(name), Entity(name=name))
        return Changed(entities.head, None)

    return change


def test_the_types_that_persistence_needs_are_declared_without_any_package(backend: CountingBackend) -> None:
    assert {one.name for one in PersistenceProcess(backend).types} >= {one.name for one in OWN_TYPES}


def test_a_catalog_from_its_realm_to_a_sweep(backend: CountingBackend) -> None:
    clock = MicrosecondClock()
    first = process(backend, clock)
    first.realms().create("acme", {})
    store = first.realms().create_catalog("acme", "sales", {})
    committer = Committer(store, "main", EntityHead, seal=seal(IndexPolicy()))
    for number in range(30):
        committer.commit(named(f"n{number}"))
    store.write([Entity(name="garbage")])
    assert first.maintenance(SweepPolicy(grace=100)).run().deleted == 0
    clock.advance(1_000)
    assert first.maintenance(SweepPolicy(grace=100)).run().deleted > 0
    second = process(backend, clock)
    opened = second.realms().open("acme", "sales")
    head = Committer(opened, "main", EntityHead).head()
    assert head
    assert len(list(head.value.working_index(opened.fetch_many).items())) == 30
    assert len(backend.stored_ids("entity")) == 30


def test_a_process_that_only_reads_leases_no_node(backend: CountingBackend) -> None:
    clock = MicrosecondClock()
    writer = process(backend, clock)
    writer.realms()
    reader = process(backend, clock)
    assert reader.realms().page(limit=5).entities == ()
    assert list(reader.store("acme", "c").references()) == []
    reader.close()
    assert backend.stored_ids("node") == set()


def test_ids_of_processes_differ_and_a_closed_process_releases_its_node(backend: CountingBackend) -> None:
    clock = MicrosecondClock()
    processes = [process(backend, clock) for _ in range(3)]
    refs = [one.store(SYSTEM, SYSTEM).write([Entity(name="a"), Entity(name="b")]) for one in processes]
    ids = [ref.id for some in refs for ref in some]
    assert len(set(ids)) == 6
    assert len({split_id(id_).node for id_ in ids}) == 3
    for one in processes:
        one.close()
    clock.advance(0.001)
    later = [process(backend, clock) for _ in range(NODES)]
    nodes = {split_id(one.store(SYSTEM, SYSTEM).write([Entity(name="x")])[0].id).node for one in later}
    assert len(nodes) == NODES


def test_the_cache_is_shared_by_the_catalogs_and_bypassed_by_maintenance(backend: CountingBackend) -> None:
    clock = MicrosecondClock()
    one = process(backend, clock)
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


def test_a_commit_counts_its_seconds_by_the_clock_of_its_process(backend: CountingBackend) -> None:
    # Issue 24, line 0: the committer read the machine's clock, so that what a test's process wrote was not repeatable.
    clock = MicrosecondClock()
    store = process(backend, clock).store("acme", "sales")
    store.create_reference("main")
    committer = Committer(store, "main", EntityHead, seal=seal(IndexPolicy()))
    committer.commit(named("in time"))
    attempts: list[EntityHead | None] = []

    def slow(attempt: CommitAttempt[EntityHead]) -> Changed[EntityHead, None]:
        attempts.append(attempt.head)
        clock.advance(21)
        Committer(store, "main", EntityHead, seal=seal(IndexPolicy())).commit(named("a rival's"))
        return named("late")(attempt)

    with pytest.raises(CommitContended):
        committer.commit(slow)
    assert len(attempts) == 1
