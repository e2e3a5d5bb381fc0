"""What DynamoDB answers when it is not well, injected: a fault is never taken for a lost race, nor a loss for a fault.

moto stands behind the faults and applies a repeated ClientRequestToken a second time, as DynamoDB does after ten
minutes; so a repeated transaction finds both of its conditions failed by its own first try.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from delegation.tasks.conditional import ConditionalTable
from delegation.tasks.dynamodb import CompanionRefused, DynamoDbTaskStore
from delegation.tasks.errors import OutcomeUnknown, RevisionConflict, StaleTask, StoreUnavailable, TaskExists
from delegation.tasks.model import Task
from delegation.tasks.store import Advance, Change, Create, Expect, Revise
from tests.contract.task_tables import moto, no_wait, task_store
from tests.unit.tasks.builders import acquired, started, submitted, touched
from tests.unit.tasks.faulty_client import (
    Fault,
    FaultyClient,
    answered,
    cancelled,
    connect_timeout,
    connection_closed,
    no_connection,
    read_timeout,
)

TRIES = 4

REFUSALS = {
    "conflict": cancelled("TransactionConflict", "None"),
    "conflict on the row": cancelled("TransactionConflict", "TransactionConflict"),
    "throttled": answered("ThrottlingException"),
    "throttled in the transaction": cancelled("ThrottlingError", "None"),
    "throughput": answered("ProvisionedThroughputExceededException"),
    "throughput in the transaction": cancelled("ProvisionedThroughputExceeded", "None"),
    "request limit": answered("RequestLimitExceeded"),
    "not connected": no_connection,
    "not connected in time": connect_timeout,
}
"""Answers that say that nothing was written."""

UNCLEAR = {
    "server error": answered("InternalServerError", 500),
    "unavailable": answered("ServiceUnavailable", 503),
    "bad gateway": answered("502", 502),
    "unknown server error": answered("InternalFailure", 500),
    "in progress": answered("TransactionInProgressException"),
    "read time-out": read_timeout,
    "connection closed": connection_closed,
}
"""Answers, or none, that leave open whether it was."""


@dataclass
class Bench:
    store: DynamoDbTaskStore
    client: FaultyClient
    waits: list[float]
    rival: DynamoDbTaskStore


@pytest.fixture(scope="module")
def moto_client() -> Iterator[Any]:
    with moto() as client:
        yield client


@pytest.fixture
def calm(moto_client: Any) -> Iterator[DynamoDbTaskStore]:
    with task_store(moto_client) as store:
        yield store


@pytest.fixture
def bench(calm: DynamoDbTaskStore) -> Bench:
    client = FaultyClient(calm.dynamodb.client)
    waits: list[float] = []
    table = ConditionalTable(client, tries=TRIES, sleep=waits.append, draw=lambda: 0.5)
    rival = DynamoDbTaskStore(ConditionalTable(calm.dynamodb.client, sleep=no_wait), calm.table)
    return Bench(DynamoDbTaskStore(table, calm.table), client, waits, rival)


@dataclass(frozen=True)
class Case:
    """A change, and what its task looks like after it was applied once."""

    change: Change
    after: Task
    rows: int


def creating(_bench: Bench) -> Case:
    task = submitted()
    return Case(Create(task), task, 1)


def advancing(bench: Bench) -> Case:
    task = bench.rival.apply(Create(submitted()))
    after = acquired(task)
    return Case(Advance(task, after), after, 2)


def revising(bench: Bench) -> Case:
    task = bench.rival.apply(Create(submitted()))
    after = touched(task, dispatch_count=1)
    return Case(Revise(task, after), after, 1)


def advancing_by_two(bench: Bench) -> Case:
    task = bench.rival.apply(Create(submitted()))
    held = acquired(task)
    after = started(held).evolve(revision=held.revision, nonce=held.nonce)
    return Case(Advance(task, after, via=(held,)), after, 3)


CHANGES = pytest.mark.parametrize(
    "make", [creating, advancing, advancing_by_two, revising], ids=lambda make: make.__name__
)


def errors(table: dict[str, Callable[[str], Exception]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("error", table.values(), ids=table.keys())


def applied_once(bench: Bench, case: Case) -> None:
    assert bench.rival.get(case.after.task_id) == case.after
    assert len(bench.rival.history(case.after.task_id)) == case.rows


def not_applied(bench: Bench, case: Case) -> None:
    head = bench.rival.get(case.after.task_id)
    assert head is None or head.nonce != case.after.nonce
    assert case.after.nonce not in {row.nonce for row in bench.rival.history(case.after.task_id)}


# ---- faults that pass


@CHANGES
@errors(REFUSALS | UNCLEAR)
def test_a_fault_before_the_write_is_tried_again(
    bench: Bench, make: Callable[[Bench], Case], error: Callable[[str], Exception]
) -> None:
    case, times = make(bench), TRIES - 1
    bench.client.writes = [Fault(error)] * times
    assert bench.store.apply(case.change) == case.after
    applied_once(bench, case)
    assert len(bench.waits) == times
    assert all(0 < wait <= 1 for wait in bench.waits)


@CHANGES
@errors(UNCLEAR)
def test_a_lost_answer_is_recognised_on_the_next_try(
    bench: Bench, make: Callable[[Bench], Case], error: Callable[[str], Exception]
) -> None:
    """Head and row both refuse the repeated write: they hold its own nonce."""
    case = make(bench)
    bench.client.writes = [Fault(error, applied=True)]
    assert bench.store.apply(case.change) == case.after
    applied_once(bench, case)
    tries = bench.client.tried("put_item", "transact_write_items")
    assert len(tries) == 2
    assert tries[0] == tries[1]


@CHANGES
def test_faults_of_all_kinds_in_a_row(bench: Bench, make: Callable[[Bench], Case]) -> None:
    case = make(bench)
    bench.client.writes = [
        Fault(read_timeout, applied=True),
        Fault(REFUSALS["conflict"]),
        Fault(UNCLEAR["unavailable"]),
    ]
    assert bench.store.apply(case.change) == case.after
    applied_once(bench, case)


def test_a_transaction_is_repeated_with_its_nonce_as_request_token(bench: Bench) -> None:
    case = advancing(bench)
    bench.client.writes = [Fault(read_timeout)] * 2
    bench.store.apply(case.change)
    tokens = [arguments["ClientRequestToken"] for arguments in bench.client.tried("transact_write_items")]
    assert tokens == [case.after.nonce] * 3


# ---- faults that stay


@CHANGES
@errors(REFUSALS)
def test_a_store_that_takes_nothing_is_unavailable(
    bench: Bench, make: Callable[[Bench], Case], error: Callable[[str], Exception]
) -> None:
    case = make(bench)
    bench.client.writes = [Fault(error)] * TRIES
    with pytest.raises(StoreUnavailable):
        bench.store.apply(case.change)
    not_applied(bench, case)
    assert len(bench.client.tried("put_item", "transact_write_items")) == TRIES


@CHANGES
@errors(UNCLEAR)
@pytest.mark.parametrize("when", range(TRIES))
def test_an_unknown_outcome_is_resolved_by_reading_back(
    bench: Bench, make: Callable[[Bench], Case], error: Callable[[str], Exception], when: int
) -> None:
    case = make(bench)
    bench.client.writes = [Fault(error, applied=n == when) for n in range(when + 1)]
    bench.client.writes += [Fault(read_timeout)] * (TRIES - when - 1)
    assert bench.store.apply(case.change) == case.after
    applied_once(bench, case)


@CHANGES
@errors(UNCLEAR)
def test_an_outcome_stays_unknown_while_the_write_may_still_arrive(
    bench: Bench, make: Callable[[Bench], Case], error: Callable[[str], Exception]
) -> None:
    case = make(bench)
    bench.client.writes = [Fault(error)] + [Fault(REFUSALS["throttled"])] * (TRIES - 1)
    with pytest.raises(OutcomeUnknown):
        bench.store.apply(case.change)
    not_applied(bench, case)


@CHANGES
@pytest.mark.parametrize("applied", [True, False])
@errors({"no table": answered("ResourceNotFoundException"), "denied": answered("AccessDeniedException")})
def test_an_answer_that_ends_the_tries_does_not_deny_an_earlier_unclear_one(
    bench: Bench, make: Callable[[Bench], Case], applied: bool, error: Callable[[str], Exception]
) -> None:
    case = make(bench)
    bench.client.writes = [Fault(read_timeout, applied=applied), Fault(error)]
    if applied:
        assert bench.store.apply(case.change) == case.after
        applied_once(bench, case)
    else:
        with pytest.raises(OutcomeUnknown):
            bench.store.apply(case.change)


@CHANGES
@pytest.mark.parametrize("applied", [True, False])
def test_an_outcome_that_cannot_be_read_back_is_unknown_not_unwritten(
    bench: Bench, make: Callable[[Bench], Case], applied: bool
) -> None:
    case = make(bench)
    bench.client.writes = [Fault(read_timeout, applied=applied)] + [Fault(read_timeout)] * (TRIES - 1)
    bench.client.reads = [Fault(read_timeout)] * 100
    with pytest.raises(OutcomeUnknown):
        bench.store.apply(case.change)


def test_a_refusal_whose_winner_cannot_be_read_is_unknown(bench: Bench) -> None:
    """The row says that it was there already, the head says nothing: it may have been this very write."""
    case = advancing(bench)
    bench.client.writes = [Fault(read_timeout, applied=True), Fault(cancelled("None", "ConditionalCheckFailed"))]
    bench.client.reads = [Fault(read_timeout)] * 100
    with pytest.raises(OutcomeUnknown):
        bench.store.apply(case.change)


@errors({"no table": answered("ResourceNotFoundException"), "denied": answered("AccessDeniedException")})
def test_an_answer_that_will_not_change_is_not_tried_again(bench: Bench, error: Callable[[str], Exception]) -> None:
    case = advancing(bench)
    bench.client.writes = [Fault(error)]
    with pytest.raises(StoreUnavailable, match="Exception"):
        bench.store.apply(case.change)
    assert bench.waits == []


# ---- faults and rivals together


@CHANGES
@errors(REFUSALS | UNCLEAR)
def test_a_race_lost_behind_a_fault_is_a_lost_race(
    bench: Bench, make: Callable[[Bench], Case], error: Callable[[str], Exception]
) -> None:
    case = make(bench)
    rivals: list[Task] = []
    bench.client.between = [lambda: rivals.append(rival_of(bench, case.change))]
    bench.client.writes = [Fault(error)]
    with pytest.raises((TaskExists, StaleTask, RevisionConflict)) as lost:
        bench.store.apply(case.change)
    assert lost.value.stored == rivals[0]
    assert bench.rival.get(case.after.task_id) == rivals[0]
    not_applied(bench, case)


@CHANGES
def test_a_race_lost_behind_nothing_but_faults_is_a_lost_race(bench: Bench, make: Callable[[Bench], Case]) -> None:
    """Reading back shows a head that this change can never follow any more: that is an answer."""
    case = make(bench)
    rivals: list[Task] = []
    bench.client.between = [lambda: rivals.append(rival_of(bench, case.change))]
    bench.client.writes = [Fault(read_timeout)] * TRIES
    with pytest.raises((TaskExists, StaleTask, RevisionConflict)) as lost:
        bench.store.apply(case.change)
    assert lost.value.stored == rivals[0]
    not_applied(bench, case)


def test_an_applied_advance_is_recognised_below_a_rivals_heartbeat(bench: Bench) -> None:
    case = advancing(bench)
    bench.client.between = [lambda: bench.rival.apply(Revise(case.after, touched(case.after, files_deleted=5)))]
    bench.client.writes = [Fault(read_timeout, applied=True)]
    assert bench.store.apply(case.change).files_deleted == 5
    assert len(bench.rival.history(case.after.task_id)) == 2


def test_an_applied_advance_is_recognised_below_a_rivals_next_version(bench: Bench) -> None:
    case = advancing(bench)
    following = started(case.after)
    bench.client.between = [lambda: bench.rival.apply(Advance(case.after, following))]
    bench.client.writes = [Fault(read_timeout, applied=True)] + [Fault(read_timeout)] * (TRIES - 1)
    assert bench.store.apply(case.change) == following
    assert [row.version for row in bench.rival.history(case.after.task_id)] == [1, 2, 3]


def test_a_head_write_that_a_rival_wrote_over_may_have_been_applied(bench: Bench) -> None:
    """Nothing tells any more, and nothing needs to: the head was touched, so read again and decide again."""
    case = revising(bench)
    bench.client.between = [lambda: bench.rival.apply(Revise(case.after, touched(case.after, dispatch_count=2)))]
    bench.client.writes = [Fault(read_timeout, applied=True)]
    with pytest.raises(RevisionConflict) as conflict:
        bench.store.apply(case.change)
    assert conflict.value.stored is not None
    assert conflict.value.stored.dispatch_count == 2


def test_an_expectation_is_read_and_never_written(bench: Bench) -> None:
    task = bench.rival.apply(Create(submitted()))
    assert bench.store.apply(Expect(task)) == task
    assert bench.client.tried("put_item", "transact_write_items") == []


def rival_of(bench: Bench, change: Change) -> Task:
    match change:
        case Create(task):
            return bench.rival.apply(Create(submitted(task.task_id, task_payload="{}")))
        case Advance(before, _):
            return bench.rival.apply(Advance(before, acquired(before, "rival")))
        case Revise(before, _):
            return bench.rival.apply(Revise(before, touched(before, dispatch_count=7)))
        case Expect(task):
            return task


# ---- reading


READS = {
    "get": lambda store, task: store.get(task.task_id),
    "get_version": lambda store, task: store.get_version(task.task_id, 1),
    "history": lambda store, task: store.history(task.task_id),
    "due": lambda store, task: store.due(task.due_at),
    "heads": lambda store, task: store.heads(),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS.keys())
@errors({**REFUSALS, **UNCLEAR})
def test_a_read_is_tried_again(
    bench: Bench, read: Callable[[DynamoDbTaskStore, Task], object], error: Callable[[str], Exception]
) -> None:
    task = bench.rival.apply(Create(submitted()))
    bench.client.reads = [Fault(error)] * (TRIES - 1)
    assert read(bench.store, task) == read(bench.rival, task)
    assert len(bench.waits) == TRIES - 1


@pytest.mark.parametrize("read", READS.values(), ids=READS.keys())
@errors(
    {"throttled": answered("ThrottlingException"), "denied": answered("AccessDeniedException"), "none": read_timeout}
)
def test_a_table_that_cannot_be_read_is_unavailable(
    bench: Bench, read: Callable[[DynamoDbTaskStore, Task], object], error: Callable[[str], Exception]
) -> None:
    task = bench.rival.apply(Create(submitted()))
    bench.client.reads = [Fault(error)] * 1000
    with pytest.raises(StoreUnavailable):
        read(bench.store, task)


# ---- what each operation costs


@pytest.mark.parametrize(
    ("make", "calls"),
    [(creating, ["transact_write_items"]), (advancing, ["transact_write_items"]), (revising, ["put_item"])],
)
def test_an_uncontended_change_is_one_call(bench: Bench, make: Callable[[Bench], Case], calls: list[str]) -> None:
    case = make(bench)
    bench.store.apply(case.change)
    assert [operation for operation, _ in bench.client.calls] == calls


def test_a_lost_race_is_one_call_too(bench: Bench) -> None:
    """The refusal itself brings the head that won."""
    case = advancing(bench)
    rival_of(bench, case.change)
    with pytest.raises(StaleTask):
        bench.store.apply(case.change)
    assert [operation for operation, _ in bench.client.calls if operation != "get_item"] == ["transact_write_items"]


def test_what_reads_cost(bench: Bench) -> None:
    task = bench.rival.apply(Create(submitted()))
    costs = {}
    for name, read in READS.items():
        bench.client.calls.clear()
        read(bench.store, task)
        costs[name] = [operation for operation, _ in bench.client.calls]
    assert costs == {
        "get": ["get_item"],
        "get_version": ["get_item"],
        "history": ["query"],
        "due": ["query"] * 16,
        "heads": ["scan"],
    }
    consistent = {operation for operation, arguments in bench.client.calls if arguments.get("ConsistentRead")}
    assert consistent <= {"get_item", "query"}


# ---- joined to another store's write


def test_a_joined_write_without_a_clear_answer_stays_unknown_even_when_the_task_moved_on(bench: Bench) -> None:
    """An Expect leaves no trace: only the joined record can tell whether the transaction was applied."""
    task = bench.rival.apply(Create(submitted()))
    marker = submitted()
    joined = bench.store._actions(Create(marker))
    bench.client.between = [lambda: bench.rival.apply(Advance(task, acquired(task)))]
    bench.client.writes = [Fault(read_timeout, applied=True)] + [Fault(read_timeout)] * (TRIES - 1)
    with pytest.raises(OutcomeUnknown):
        bench.store.transact(Expect(task), joined, token=marker.nonce)
    assert bench.rival.get(marker.task_id) == marker


def test_a_refused_joined_write_is_told_from_a_lost_race(bench: Bench) -> None:
    task, other = bench.rival.apply(Create(submitted())), bench.rival.apply(Create(submitted()))
    joined = bench.store._actions(Create(submitted(other.task_id)))
    with pytest.raises(CompanionRefused) as refused:
        bench.store.transact(Advance(task, acquired(task)), joined)
    assert refused.value.item is not None
    assert refused.value.item["nonce"] == other.nonce
    assert bench.rival.get(task.task_id) == task
