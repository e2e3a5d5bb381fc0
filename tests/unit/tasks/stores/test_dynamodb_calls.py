"""How the DynamoDB store reads, which calls its operations make, and how a write of another store joins its own."""

from collections.abc import Callable
from typing import Any

import pytest

from delegation.tasks.errors import OutcomeUnknown, StoreUnavailable
from delegation.tasks.stores.base import Advance, Create, Expect, Received
from delegation.tasks.stores.dynamodb import CompanionRefused
from delegation.wiring.tasks import task_store
from tests.kit.tasks.builders import NOW, acquired, submitted
from tests.unit.tasks.stores.dynamodb_bench import (
    REFUSALS,
    TRIES,
    UNCLEAR,
    Bench,
    Case,
    advancing,
    creating,
    errors,
    revising,
)
from tests.unit.tasks.stores.faulty_client import Fault, answered, read_timeout

# ---- reading


READS = {
    "get": lambda store, task: store.get(task.task_id),
    "get_version": lambda store, task: store.get_version(task.task_id, 1),
    "history": lambda store, task: store.history(task.task_id),
    "due": lambda store, task: store.due(task.due_at),
    "heads": lambda store, task: store.heads(),
    "received": lambda store, task: store.received(Received(NOW, since=NOW)),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS.keys())
@errors({**REFUSALS, **UNCLEAR})
def test_a_read_is_tried_again(bench, read, error):
    task = bench.rival.apply(Create(submitted()))
    bench.client.reads = [Fault(error)] * (TRIES - 1)
    assert read(bench.store, task) == read(bench.rival, task)
    assert len(bench.waits) == TRIES - 1


def test_a_list_reads_again_what_a_batch_left_out(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """DynamoDB leaves out keys of an answer above 16 MB, or all while it is throttled (BatchGetItem)."""
    tasks = {bench.rival.apply(Create(submitted())).task_id for _ in range(5)}
    read, asked = bench.client.batch_get_item, []

    def some(*, RequestItems: dict[str, Any]) -> dict[str, Any]:
        ((table, wanted),) = RequestItems.items()
        asked.append(len(wanted["Keys"]))
        served, left = ([], wanted["Keys"]) if len(asked) == 2 else (wanted["Keys"][:2], wanted["Keys"][2:])
        found = read(RequestItems={table: {"Keys": served}})["Responses"] if served else {}
        return {"Responses": found, "UnprocessedKeys": {table: {"Keys": left}} if left else {}}

    monkeypatch.setattr(bench.client, "batch_get_item", some, raising=False)
    page = bench.store.received(Received(NOW, since=NOW))
    assert {task.task_id for _, task in page.entries} == tasks
    assert (asked, len(bench.waits)) == ([5, 3, 3, 1], 1)
    throttled = lambda **asked: {"Responses": {}, "UnprocessedKeys": asked["RequestItems"]}  # noqa: E731
    monkeypatch.setattr(bench.client, "batch_get_item", throttled)
    with pytest.raises(StoreUnavailable, match="throttled the reads of 5 tasks"):
        bench.store.received(Received(NOW, since=NOW))


def test_due_reads_all_pages_however_small(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page is 1 MB: entries that stay due in a shard, of a newer release for example, must not hide others."""
    tasks = [bench.rival.apply(Create(submitted())) for _ in range(24)]
    query = bench.client.query
    monkeypatch.setattr(bench.client, "query", lambda **asked: query(**{**asked, "Limit": 1}), raising=False)
    now = max(task.due_at for task in tasks if task.due_at)
    assert {entry.task_id for entry in bench.store.due(now)} == {task.task_id for task in tasks}
    assert len(bench.store.due(now, limit=7)) == 7


@pytest.mark.parametrize("read", READS.values(), ids=READS.keys())
@errors(
    {"throttled": answered("ThrottlingException"), "denied": answered("AccessDeniedException"), "none": read_timeout}
)
def test_a_table_that_cannot_be_read_is_unavailable(bench, read, error):
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


def test_the_calls_of_each_read(bench: Bench) -> None:
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
        # The index has keys only.
        "received": ["query", "batch_get_item"],
    }
    consistent = {operation for operation, arguments in bench.client.calls if arguments.get("ConsistentRead")}
    assert consistent <= {"get_item", "query"}


# ---- joined to another store's write


def test_a_joined_write_without_a_clear_answer_stays_unknown_even_after_another_write(bench: Bench) -> None:
    """An Expect stores nothing: only the joined record shows whether the transaction was applied."""
    task = bench.rival.apply(Create(submitted()))
    marker = submitted()
    joined = bench.store._actions(Create(marker))
    bench.client.between = [lambda: bench.rival.apply(Advance(task, acquired(task)))]
    bench.client.writes = [Fault(read_timeout, applied=True)] + [Fault(read_timeout)] * (TRIES - 1)
    with pytest.raises(OutcomeUnknown):
        bench.store.transact(Expect(task), joined, token=marker.nonce)
    assert bench.rival.get(marker.task_id) == marker


def test_a_refused_joined_write_is_distinguished_from_a_lost_race(bench: Bench) -> None:
    task, other = bench.rival.apply(Create(submitted())), bench.rival.apply(Create(submitted()))
    joined = bench.store._actions(Create(submitted(other.task_id)))
    with pytest.raises(CompanionRefused) as refused:
        bench.store.transact(Advance(task, acquired(task)), joined)
    assert refused.value.item["nonce"] == other.nonce
    assert bench.rival.get(task.task_id) == task


def test_the_client_of_the_entry_points_makes_one_try_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """It never repeats a write without the store knowing."""
    for name, value in {"AWS_DEFAULT_REGION": "us-east-1", "DELEGATION_TASKS_TABLE": "t"}.items():
        monkeypatch.setenv(name, value)
    store = task_store()
    assert store.dynamodb.client.meta.config.retries["total_max_attempts"] == 1
    store.dynamodb.client.close()
