"""DynamoDB in moto behind a client that fails on demand, and changes to make there."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from delegation.tasks.life.model import Task
from delegation.tasks.stores.base import Advance, Create, Expect, Revise, TaskChange
from delegation.tasks.stores.dynamodb import DynamoDbTaskStore
from tests.kit.tasks.builders import acquired, started, submitted, touched
from tests.unit.tasks.stores.faulty_client import (
    FaultyClient,
    answered,
    cancelled,
    connect_timeout,
    connection_closed,
    no_connection,
    no_credentials_now,
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
    "not signed": no_credentials_now,
}
"""Errors that mean that nothing was written."""

UNCLEAR = {
    "server error": answered("InternalServerError", 500),
    "unavailable": answered("ServiceUnavailable", 503),
    "bad gateway": answered("502", 502),
    "unknown server error": answered("InternalFailure", 500),
    "in progress": answered("TransactionInProgressException"),
    "read time-out": read_timeout,
    "connection closed": connection_closed,
}
"""Errors after which the write may have been applied."""


@dataclass
class Bench:
    store: DynamoDbTaskStore
    client: FaultyClient
    waits: list[float]
    rival: DynamoDbTaskStore


@dataclass(frozen=True)
class Case:
    """A change, and what its task looks like after it was applied once."""

    change: TaskChange
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
    after = touched(task, dispatches=task.dispatches.evolve(count=1))
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


def rival_of(bench: Bench, change: TaskChange) -> Task:
    match change:
        case Create(task):
            return bench.rival.apply(Create(submitted(task.task_id, task_payload="{}")))
        case Advance(before, _):
            return bench.rival.apply(Advance(before, acquired(before, "rival")))
        case Revise(before, _):
            return bench.rival.apply(Revise(before, touched(before, dispatches=before.dispatches.evolve(count=7))))
        case Expect(task):
            return task
