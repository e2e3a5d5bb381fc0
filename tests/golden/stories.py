"""Stories of tasks, played the same way each time: real Spark tables, a clock that is moved by hand, counted ids."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import count
from typing import Any
from unittest.mock import patch

from pydantic import BaseModel

from delegation.edge.answers import ApiResponse
from delegation.orchestration.failures import Step
from delegation.removal.purge.run import purge_table
from delegation.storage.locations import parse
from delegation.tasks.errors import StoreUnavailable
from delegation.tasks.life.model import Status
from delegation.tasks.submit import Parent, Tasks
from delegation.tasks.work.attempt_context import AttemptContext
from delegation.tasks.work.behaviors import Behavior, Behaviors, FunctionBehavior
from delegation.tasks.work.worker import Worker, WorkerSettings
from tests.fixtures import corpus
from tests.golden.expiries import EXPIRIES
from tests.golden.upkeep import UPKEEP
from tests.kit.tasks.builders import MINUTE
from tests.kit.worlds.service import World

TABLES = {"orders": ("statistics", 0), "events": ("row_deletes", 0), "moved": ("moved", 0)}
"""The lake's tables: a scenario of tests/fixtures and which of its tables."""


@contextmanager
def counted_ids() -> Iterator[None]:
    """Every id and nonce that would be random is the next number instead."""
    numbers, tokens = count(1), count(1)
    with (
        patch("uuid.uuid4", lambda: uuid.UUID(int=next(numbers), version=4)),
        patch("secrets.token_hex", lambda size: f"{next(tokens):0{2 * size}x}"),
    ):
        yield


def fill(world: World) -> World:
    """Put the tables and the objects of their scenarios into the world's lake."""
    for name, (scenario, number) in TABLES.items():
        there = corpus.load(scenario)
        for path, size in there.objects.items():
            found = parse(path)
            world.lake.objects[found.bucket, found.key] = there.content.get(path, b"\0" * size)
        world.lake.pointers[name] = there.tables[number].metadata_location
    return world


Story = Callable[[World], list[ApiResponse]]


def synchronous(world: World) -> list[ApiResponse]:
    """A synchronous purge with a key, replayed, and asked again without a key."""
    body = world.body("orders")
    return [world.execute(body, "key-1"), world.execute(body, "key-1"), world.execute(body)]


def background(world: World) -> list[ApiResponse]:
    """A background purge by the state machine: replayed, attached to while it waits, replayed after its end."""
    loaded = world.body("events")
    answers = [world.submit(world.identity("events"), "key-1"), world.submit(world.identity("events"), "key-1")]
    answers.append(world.submit(loaded, "key-2"))
    world.drive()
    return [*answers, world.submit(loaded, "key-3")]


def dry_run(world: World) -> list[ApiResponse]:
    """A dry run, then the very plan it made is executed."""
    first = world.submit(world.identity("orders", **{"dry-run": "true"}))
    world.drive()
    plan = world.tasks.reads.get(first.task_id).public()["plan_segments"][0]["id"]
    second = world.submit(world.identity("orders", plan=plan))
    world.drive()
    return [first, second]


def markers(world: World) -> list[ApiResponse]:
    """Empty directory markers go with the table; a moved table's former files are not covered, and refused."""
    root = parse(world.lake.metadata("orders")["location"])
    world.lake.objects[root.bucket, f"{root.key}/data/"] = b""
    answers = [world.submit(world.identity("orders", deleteMarkerFiles="true")), world.submit(world.identity("moved"))]
    world.drive()
    return answers


def refused(world: World) -> list[ApiResponse]:
    """A guard refuses; the FAILURE is stored and replayed, and tried again under another key."""
    world.lake.rewrite_metadata("orders", {"properties": {"gc.enabled": "false"}})
    body = world.body("orders")
    return [world.execute(body, "key-1"), world.execute(body, "key-1"), world.execute(body, "key-2")]


def undeletable(world: World) -> list[ApiResponse]:
    """A key cannot be deleted: 500, not stored; retried by a person, it ends well."""
    root = world.lake.metadata("orders")["location"]
    world.objects._denied = (next(uri for uri in sorted(world.lake.below(root)) if uri.endswith(".parquet")),)
    body = world.body("orders")
    first = world.execute(body, "key-1")
    world.objects._denied = ()
    world.tasks.operators.retry(first.task_id)
    world.sweep()
    world.drive()
    return [first, world.execute(body, "key-1")]


def conflicts(world: World) -> list[ApiResponse]:
    """A second request with other properties, and a cancellation of what waits."""
    first = world.submit(world.identity("orders"))
    world.tasks.operators.cancel(first.task_id)
    world.drive()
    return [first, world.submit(world.identity("orders", shared="refuse"))]


def acquired(world: World) -> dict[str, Any]:
    """The execution of the last dispatch after its first two states."""
    task_id, n = world.queue.sent.pop()
    state = world.steps.acquire(Step(task_id, n), world.deadline())
    return world.steps.prepare(Step.of(state), world.deadline())


def handed_over(world: World) -> list[ApiResponse]:
    """Too large for the request: handed over to the state machine, whose job purges it."""
    answer = world.submit(world.identity("events", engine="spark"))
    state = acquired(world)
    assert state["next"] == "spark"
    world.clock.advance(MINUTE)
    world.behavior.run_job(purge_table, state["task_id"], state["attempt"])
    world.steps.complete(Step.of(state))
    return [answer]


def lost(world: World) -> list[ApiResponse]:
    """A holder that is never heard of again, found by the sweeper, whose successor ends it."""
    answer = world.submit(world.identity("orders"))
    acquired(world)
    world.clock.advance(timedelta(hours=2))
    world.sweep()
    world.drive()
    return [answer]


class Count(BaseModel):
    """Parameters and result of the function behaviors."""

    number: int


def functions(world: World) -> list[ApiResponse]:
    """Declared functions: one with children, one that recurs, one that fails and is tried again."""
    tasks = Tasks(world.tasks)
    failures = iter((StoreUnavailable("away for a moment"),))

    def one(parameters: Count, _run: AttemptContext) -> Count:
        for failure in failures:
            raise failure
        return Count(number=parameters.number + 1)

    child = Behavior("CHILD", Count, one, result=Count, identify=lambda parameters: str(parameters.number))

    def parent(parameters: Count, run: AttemptContext) -> None:
        run.report(done=parameters.number)
        for number in range(parameters.number):
            tasks.submit(child, Count(number=number), parent=Parent(run.task.task_id, run.task.attempt_count))

    behaviors = [
        child,
        Behavior("PARENT", Count, parent),
        Behavior("HOURLY", Count, lambda _parameters, _run: None, every=timedelta(hours=1)),
    ]
    runnable = Behaviors([FunctionBehavior(world.tasks, each) for each in behaviors])
    worker = Worker(world.tasks, runnable, WorkerSettings("worker-1"))
    for behavior in behaviors[1:]:
        tasks.submit(behavior, Count(number=2))
    for _ in range(12):
        world.clock.advance(MINUTE)
        while worker.run_once():
            pass
    assert {task.status for task in world.store.heads().tasks} == {Status.SUCCESS, Status.SUBMITTED}
    return []


STORIES: dict[str, Story] = (
    {
        story.__name__: story
        for story in (
            synchronous,
            background,
            dry_run,
            markers,
            refused,
            undeletable,
            conflicts,
            handed_over,
            lost,
            functions,
        )
    }
    | EXPIRIES
    | UPKEEP
)
