"""Leasing a node id when none is free, after the clock was set back, and for a process that lives for seconds."""

import random
import threading

import pytest

from polaris_persistence.backends.deadlines import calls_begin_within, check_time
from polaris_persistence.backends.memory import MemoryBackend
from polaris_persistence.catalogs.process import PersistenceProcess
from polaris_persistence.errors import BackendUnavailable, NoFreeNode
from polaris_persistence.ids.nodes import LEASING, NODE_TYPE, SHORT_LIVED, NodeLeasePolicy, NodeLeases
from polaris_persistence.ids.snowflake import NODES, IdGenerator, NodeLease
from polaris_persistence.objects.types import ObjectTypes
from polaris_persistence.objects.updateable import Updateables
from tests.kit.clocks import MicrosecondClock
from tests.persistence.builders import split_id

TYPES = ObjectTypes([NODE_TYPE])


def process(backend: MemoryBackend, clock: MicrosecondClock, nodes: int = NODES, **policy: int) -> IdGenerator:
    """Return the generator of a new process, which leases one of the first `nodes` node ids."""
    draw = random.Random(backend.__hash__())
    leases = NodeLeases(
        Updateables(backend, TYPES, clock.now_us),
        now_ms=clock.now_ms,
        shuffled=lambda all_nodes: draw.sample(all_nodes[:nodes], nodes),
        policy=NodeLeasePolicy(duration_ms=10_000, renew_before_ms=4_000, **policy),
        sleep=clock.sleep,
    )
    return IdGenerator(leases, another=leases.another, now_ms=clock.now_ms, sleep=clock.sleep)


def test_a_process_waits_for_a_node_id_within_its_deadline() -> None:
    backend, clock = MemoryBackend(), MicrosecondClock()
    first = process(backend, clock, 2)
    first()
    process(backend, clock, 2)()
    waiting = process(backend, clock, 2, wait_ms=15_000)
    assert split_id(waiting()).node in (0, 1)
    assert 9 <= sum(clock.slept) <= 15
    with pytest.raises(NoFreeNode, match="a wait of 3 s"):
        process(backend, clock, 1, wait_ms=3_000)()


def test_a_clock_set_back_leases_another_node_instead_of_blocking() -> None:
    backend, clock = MemoryBackend(), MicrosecondClock()
    generate = process(backend, clock)
    ids = [generate() for _ in range(3)]
    for jump in (-60, -3_600, 7_200, -30):
        clock.advance(jump)
        ids += [generate() for _ in range(3)]
    assert len({split_id(one).node for one in ids}) > 2
    assert len(set(ids)) == len(ids)
    assert clock.slept == []


def test_leases_of_short_lived_processes_last_minutes() -> None:

    assert 60_000 <= SHORT_LIVED.duration_ms <= 600_000


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
