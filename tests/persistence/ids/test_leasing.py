"""Leasing a node id when none is free, after the clock was set back, and for a process that lives for seconds."""

import threading

import pytest

from polaris_persistence.backends.deadlines import calls_begin_within, check_time
from polaris_persistence.backends.memory import MemoryBackend
from polaris_persistence.catalogs.process import PersistenceProcess
from polaris_persistence.errors import BackendUnavailable, NoFreeNode
from polaris_persistence.ids.nodes import LEASING, NODE_TYPE, NodeLeases
from polaris_persistence.ids.snowflake import NodeLease
from polaris_persistence.objects.types import ObjectTypes
from polaris_persistence.objects.updateable import Updateables
from tests.kit.clocks import MicrosecondClock
from tests.persistence.builders import split_id
from tests.persistence.ids.test_ids import Process

TYPES = ObjectTypes([NODE_TYPE])


def test_a_process_waits_for_a_node_id_within_its_deadline() -> None:
    backend, clock = MemoryBackend(), MicrosecondClock()
    for seed in (1, 2):
        Process(backend, clock, seed, nodes=2).next_id()
    waiting = Process(backend, clock, 3, nodes=2, wait_ms=15_000)
    assert split_id(waiting.next_id()).node in (0, 1)
    assert 9 <= sum(clock.slept) <= 15
    with pytest.raises(NoFreeNode, match="a wait of 3 s"):
        Process(backend, clock, 4, nodes=1, wait_ms=3_000).next_id()


def test_a_clock_set_back_leases_another_node_instead_of_blocking() -> None:
    backend, clock = MemoryBackend(), MicrosecondClock()
    generate = Process(backend, clock).next_id
    ids = [generate() for _ in range(3)]
    for jump in (-60, -3_600, 7_200, -30):
        clock.advance(jump)
        ids += [generate() for _ in range(3)]
    assert len({split_id(one).node for one in ids}) > 2
    assert len(set(ids)) == len(ids)
    assert clock.slept == []


def test_a_cold_commit_leases_its_node_while_it_reads() -> None:
    """The reference and the nodes are read at once: neither waits for the other."""
    both = threading.Barrier(2, timeout=30)

    def before(operation: str) -> None:
        if cold and operation in {"read_reference", "fetch_many"}:
            cold.remove(operation)
            both.wait()

    cold: list[str] = []
    backend = MemoryBackend(before=before)
    PersistenceProcess(backend).realms().create("acme", {})
    cold += ["read_reference", "fetch_many"]
    PersistenceProcess(backend).realms().update("acme", {"a": "b"})
    assert cold == []
    assert PersistenceProcess(backend).realms().get("acme").properties == {"a": "b"}


def test_a_lease_that_fails_early_is_leased_by_the_first_id() -> None:
    failed: list[str] = []

    def before(operation: str) -> None:
        if operation == "fetch_many" and not failed:
            failed.append(threading.current_thread().name)
            raise BackendUnavailable("down")

    backend = MemoryBackend()
    PersistenceProcess(backend).realms().create("acme", {})
    backend.before = before
    PersistenceProcess(backend).realms().update("acme", {"a": "b"})
    assert failed == [LEASING]
    assert PersistenceProcess(backend).realms().get("acme").properties == {"a": "b"}


def test_an_early_lease_ends_with_the_time_of_its_commit() -> None:
    """Otherwise the commit would wait for it."""
    leases = NodeLeases(
        Updateables(MemoryBackend(before=lambda _operation: check_time()), TYPES, lambda: 0),
        now_ms=MicrosecondClock().now_ms,
        shuffled=list,
    )
    with calls_begin_within(lambda: -1.0):
        leases.begin()
        with pytest.raises(BackendUnavailable, match="out of time"):
            leases()
    assert isinstance(leases(), NodeLease)
