"""Ids never repeat, whatever happens to clocks, leases and processes."""

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from polaris_persistence.backends.memory import MemoryBackend
from polaris_persistence.errors import (
    BackendUnavailable,
    ClockRegressed,
    CommitOutcomeUnknown,
    LeaseExpired,
    NoFreeNode,
)
from polaris_persistence.ids.nodes import NODE_TYPE, NodeLeasePolicy, NodeLeases
from polaris_persistence.ids.snowflake import (
    EPOCH_MS,
    NODES,
    RESERVED_TIMESTAMPS,
    SEQUENCES,
    IdGenerator,
    NodeLease,
    join_id,
)
from polaris_persistence.objects.types import ObjectTypes
from polaris_persistence.objects.updateable import Updateables
from tests.effort import examples
from tests.kit.clocks import MicrosecondClock
from tests.persistence.builders import CountingBackend, split_id

TYPES = ObjectTypes([NODE_TYPE])


class Process:
    """A process with a separate clock: node lease and generator on a shared store."""

    def __init__(
        self, backend: MemoryBackend, clock: MicrosecondClock, seed: int = 0, nodes: int = NODES, wait_ms: int = 0
    ) -> None:
        draw = random.Random(seed)
        self.clock = clock
        self.between: Callable[[], None] = lambda: None
        self.leases = NodeLeases(
            Updateables(backend, TYPES, clock.now_us),
            now_ms=clock.now_ms,
            shuffled=lambda all_nodes: draw.sample(all_nodes[:nodes], nodes),
            policy=NodeLeasePolicy(duration_ms=10_000, renew_before_ms=4_000, wait_ms=wait_ms),
            sleep=clock.sleep,
        )
        self.next_id = IdGenerator(self._lease, now_ms=clock.now_ms, sleep=clock.sleep, another=self.leases.another)

    def _lease(self) -> NodeLease:
        # The generator has read the clock but not the lease: the worst moment to be frozen.
        self.between()
        return self.leases()


def fixed(lease: NodeLease, clock: MicrosecondClock, **more: int) -> IdGenerator:
    return IdGenerator(lambda: lease, now_ms=clock.now_ms, sleep=clock.sleep, **more)


def lease_until(ms: int) -> NodeLease:
    return NodeLease(5, RESERVED_TIMESTAMPS, ms)


@given(st.integers(0, 2**41 - 1), st.integers(0, NODES - 1), st.integers(0, SEQUENCES - 1))
def test_ids_split_into_what_they_were_joined_from(timestamp: int, node: int, sequence: int) -> None:
    parts = split_id(join_id(timestamp, node, sequence))
    assert (parts.timestamp, parts.node, parts.sequence) == (timestamp, node, sequence)


def test_ids_sort_by_time_and_fit_63_bits() -> None:
    assert join_id(1, 0, 0) > join_id(0, NODES - 1, SEQUENCES - 1)
    assert join_id(2**41 - 1, NODES - 1, SEQUENCES - 1) == 2**63 - 1
    for parts in [(2**41, 0, 0), (0, NODES, 0), (0, 0, SEQUENCES), (-1, 0, 0)]:
        with pytest.raises(ValueError, match="no id"):
            join_id(*parts)


@pytest.mark.parametrize(("ms", "timestamp"), [(5_000, 5_000), (500, RESERVED_TIMESTAMPS)])
def test_an_id_has_the_time_since_2025_that_is_not_reserved(ms: int, timestamp: int) -> None:
    assert split_id(fixed(NodeLease(5, 0, 10_000), MicrosecondClock(EPOCH_MS + ms))()).timestamp == timestamp


def test_max_ids_per_millisecond_then_the_next_millisecond() -> None:
    clock = MicrosecondClock(EPOCH_MS + 5_000)
    generate = fixed(lease_until(10_000), clock)
    ids = [split_id(generate()) for _ in range(SEQUENCES * 2 + 1)]
    assert [part.sequence for part in ids[:SEQUENCES]] == list(range(SEQUENCES))
    assert [part.timestamp for part in ids[::SEQUENCES]] == [5_000, 5_001, 5_002]


def test_the_generator_waits_for_a_clock_a_little_behind_and_refuses_one_far_behind() -> None:
    clock = MicrosecondClock(EPOCH_MS + 5_000)
    generate = fixed(lease_until(100_000), clock)
    first = generate()
    clock.advance(-0.4)
    second = generate()
    assert second > first
    assert clock.slept == [0.4]
    clock.advance(-60)
    with pytest.raises(ClockRegressed):
        generate()
    clock.advance(60)
    assert generate() > second


def test_a_stopped_clock_is_refused_after_the_longest_wait() -> None:
    clock = MicrosecondClock(EPOCH_MS + 5_000)
    generate = IdGenerator(lambda: lease_until(10_000), now_ms=clock.now_ms, sleep=lambda _seconds: None)
    for _ in range(SEQUENCES):
        generate()
    with pytest.raises(ClockRegressed):
        generate()


def test_no_id_at_or_after_the_end_of_the_lease() -> None:
    clock = MicrosecondClock(EPOCH_MS + 9_999)
    generate = fixed(lease_until(10_000), clock)
    assert split_id(generate()).timestamp == 9_999
    clock.advance(0.001)
    with pytest.raises(LeaseExpired):
        generate()


def test_frozen_between_clock_and_lease_check_and_thawed_past_the_lease() -> None:
    """Polaris reads the clock after the check: then this id would be in the time of the next holder."""
    clock = MicrosecondClock(EPOCH_MS + 5_000)
    lease = lease_until(10_000)

    def frozen() -> NodeLease:
        clock.advance(60)
        return lease

    generate = IdGenerator(frozen, now_ms=clock.now_ms, sleep=clock.sleep)
    assert split_id(generate()).timestamp == 5_000
    with pytest.raises(LeaseExpired):
        generate()


def test_many_threads_never_get_the_same_id() -> None:
    lock = threading.Lock()
    clock = MicrosecondClock()

    def now_ms() -> int:
        with lock:
            clock.us += 7
            return clock.now_ms()

    generate = IdGenerator(lambda: NodeLease(1, 1_000, 2**41), now_ms=now_ms, sleep=clock.sleep)
    with ThreadPoolExecutor(8) as pool:
        ids = [id_ for some in pool.map(lambda _: [generate() for _ in range(2_000)], range(8)) for id_ in some]
    assert len(set(ids)) == 16_000


def test_lease_is_renewed_early_and_only_then() -> None:
    backend, clock = CountingBackend(), MicrosecondClock()
    process = Process(backend, clock)
    first = process.leases()
    backend.calls.clear()
    clock.advance(5.9)
    assert process.leases() == first
    assert backend.calls == []
    clock.advance(0.2)
    renewed = process.leases()
    assert renewed.node == first.node
    assert renewed.not_before == first.not_before
    assert renewed.until == first.until + 6_100
    assert backend.calls == ["update"]


def test_a_failed_renewal_leaves_the_lease_unchanged_and_is_retried() -> None:
    backend, clock = CountingBackend(), MicrosecondClock()
    process = Process(backend, clock)
    first = process.leases()
    clock.advance(7)
    for failure in (BackendUnavailable("down"), CommitOutcomeUnknown("cut off")):
        backend.fail_before["update"] = [failure]
        backend.fail_before["fetch_many"] = [BackendUnavailable("down")]
        assert process.leases() == first
        backend.fail_before.clear()
        calls = len(backend.calls)
        assert process.leases() == first
        assert len(backend.calls) == calls
        clock.advance(1)
    assert process.leases().until == first.until + 9_000


def test_a_renewal_applied_without_an_answer_is_found() -> None:
    backend, clock = CountingBackend(), MicrosecondClock()
    process = Process(backend, clock)
    first = process.leases()
    clock.advance(7)
    backend.fail_after["update"] = [CommitOutcomeUnknown("cut off")]
    backend.fail_before["fetch_many"] = [BackendUnavailable("down")]
    assert process.leases() == first
    clock.advance(1.5)
    assert process.leases().until == first.until + 7_000


def test_a_process_whose_node_was_taken_over_uses_only_the_rest_of_its_lease() -> None:
    """Its clock is behind that of the process that took over the node."""
    backend = MemoryBackend()
    slow, fast = MicrosecondClock(), MicrosecondClock()
    fast.advance(20)
    behind, ahead = Process(backend, slow, nodes=1), Process(backend, fast, nodes=1)
    old = behind.leases()
    new = ahead.leases()
    assert new.not_before == old.until
    slow.advance(9.9)
    assert split_id(behind.next_id()).timestamp < old.until <= split_id(ahead.next_id()).timestamp
    slow.advance(0.2)
    with pytest.raises(NoFreeNode):
        behind.next_id()


def test_frozen_past_its_lease_and_thawed() -> None:
    backend, clock = MemoryBackend(), MicrosecondClock()
    frozen, other = Process(backend, clock, nodes=1), Process(backend, clock, nodes=1)
    first = frozen.next_id()
    others: list[int] = []

    def freeze() -> None:
        frozen.between = lambda: None
        clock.advance(11)
        others.append(other.next_id())

    frozen.between = freeze
    with pytest.raises(NoFreeNode):
        frozen.next_id()
    assert others[0] > first


def test_a_released_node_is_free_from_the_next_millisecond_and_ids_differ() -> None:
    backend, clock = MemoryBackend(), MicrosecondClock()
    one, two = Process(backend, clock, nodes=1), Process(backend, clock, nodes=1)
    last = one.next_id()
    one.leases.release(split_id(last).timestamp)
    clock.advance(0.001)
    assert two.next_id() > last
    one.leases.release(split_id(last).timestamp)
    with pytest.raises(NoFreeNode):
        one.next_id()


def test_allocate_all_thousand_nodes_and_refuse_the_next() -> None:
    backend, clock = MemoryBackend(), MicrosecondClock()
    processes = [Process(backend, clock, seed) for seed in range(NODES)]
    ids = [split_id(process.next_id()) for process in processes]
    assert {part.node for part in ids} == set(range(NODES))
    with pytest.raises(NoFreeNode, match="1024"):
        Process(backend, clock, seed=5_000).next_id()


def test_lease_policy_must_renew_before_the_end() -> None:
    for duration, before in [(10, 10), (10, 0), (10, 11)]:
        with pytest.raises(ValueError, match="renew_before_ms"):
            NodeLeasePolicy(duration_ms=duration, renew_before_ms=before)


class Ids(RuleBasedStateMachine):
    """Processes that restart and lose answers, with clocks that drift, jump and freeze, on three nodes."""

    @initialize()
    def begin(self) -> None:
        self.backend = CountingBackend()
        self.made: list[int] = []
        self.started = 0
        self.processes = [self.start() for _ in range(4)]

    def start(self) -> Process:
        self.started += 1
        clock = MicrosecondClock(
            EPOCH_MS + 100_000 + max((split_id(id_).timestamp for id_ in self.made), default=0) // 2
        )
        return Process(self.backend, clock, self.started, nodes=3)

    @rule(which=st.integers(0, 3), count=st.integers(1, 5))
    def generate(self, which: int, count: int) -> None:
        for _ in range(count):
            self.attempt(self.processes[which])

    @rule(which=st.integers(0, 3), seconds=st.floats(-30, 30))
    def jump(self, which: int, seconds: float) -> None:
        self.processes[which].clock.advance(seconds)

    @rule(which=st.integers(0, 3), seconds=st.floats(0, 30), other=st.integers(0, 3))
    def freeze(self, which: int, seconds: float, other: int) -> None:
        frozen = self.processes[which]

        def between() -> None:
            frozen.between = lambda: None
            for process in self.processes:
                process.clock.advance(seconds)
            if other != which:
                self.attempt(self.processes[other])

        frozen.between = between
        self.attempt(frozen)
        frozen.between = lambda: None

    @rule(which=st.integers(0, 3))
    def restart(self, which: int) -> None:
        self.processes[which] = self.start()

    @rule(applied=st.booleans(), operation=st.sampled_from(["insert", "update"]))
    def lose_an_answer(self, applied: bool, operation: str) -> None:
        faults = self.backend.fail_after if applied else self.backend.fail_before
        faults[operation] = [CommitOutcomeUnknown("cut off")]
        self.backend.fail_before["fetch_many"] = [None, BackendUnavailable("down")]

    def attempt(self, process: Process) -> None:
        try:
            self.made.append(process.next_id())
        except (ClockRegressed, LeaseExpired, NoFreeNode, BackendUnavailable):
            return

    @invariant()
    def unique(self) -> None:
        if hasattr(self, "made"):
            assert len(set(self.made)) == len(self.made)


TestIds = Ids.TestCase
TestIds.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
