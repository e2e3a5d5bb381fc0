"""Tasks on DynamoDB Local: what requests and lives cost, leases a second by workers, time from submit to start.

    PYTHONPATH=functions:. python tests/bench/bench_tasks.py [--tasks N] [--rounds N] [--workers N ...]

Calls are counted by botocore's events, write units computed from item sizes (docs/costs.md). Workers are processes; on
a machine with fewer cores than workers DynamoDB Local and they compete for them: compare ratios.
"""

import argparse
import contextlib
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from delegation.tasks.behaviors import Behavior, Behaviors, FunctionBehavior
from delegation.tasks.conditional import ConditionalTable
from delegation.tasks.dynamodb import DynamoDbTaskStore
from delegation.tasks.errors import StoreUnavailable
from delegation.tasks.leasing import Lookout, lease_next_available_task
from delegation.tasks.policy import Policies, RetryPolicy
from delegation.tasks.service import Lease, NoDispatchQueue, TaskService
from delegation.tasks.tasks import Tasks
from delegation.tasks.worker import Worker, WorkerSettings
from infra.local.dynamodb import DynamoDbLocal
from tests.contract.cost_lives import LIVES
from tests.contract.cost_operations import OPERATIONS, House
from tests.contract.metering import Cost, Meter
from tests.contract.task_tables import create_task_table, dynamodb_client, task_store

KIND = "NOTE"
REQUESTS = ("Acceptance.accept", "Acceptance.accept with a key", "Acceptance.known, replayed", "Tasks.submit")
POLL = timedelta(milliseconds=50)


class Nothing(BaseModel):
    """No parameters."""


def now() -> datetime:
    return datetime.now(UTC)


def service(url: str, table: str) -> TaskService:
    store = DynamoDbTaskStore(ConditionalTable(dynamodb_client(url)), table)
    return TaskService(store, Policies(default=RetryPolicy(), by_type={}), NoDispatchQueue(), clock=now)


def behavior() -> Behavior[Nothing, Any]:
    return Behavior(KIND, Nothing, lambda _parameters, _run: None)


# ---- calls and units


def costs(url: str) -> Iterator[tuple[str, Cost]]:
    """Accepted requests, then whole lives."""
    client = dynamodb_client(url)
    meter = Meter(client)
    acts = [(name, lambda store, name=name: OPERATIONS[name](House(store))) for name in REQUESTS]
    for name, ready in [*acts, *LIVES.items()]:
        with task_store(client) as store:
            act = ready(store)
            with meter.measured() as cost:
                act()
        yield name, cost


# ---- leases


def lease_all(url: str, table: str, number: int, ready: Any, go: Any, answers: Any) -> None:
    """One worker process: lease until nothing is due, and say how many it got and when it got the last."""
    tasks = service(url, table)
    with contextlib.suppress(StoreUnavailable):
        tasks.store.due(now())  # connects
    ready.release()
    go.wait()
    leased, last, lookout = 0, time.time(), Lookout()
    while lease_next_available_task(tasks, f"worker-{number}", [KIND], an_hour, lookout=lookout) is not None:
        leased, last = leased + 1, time.time()
    answers.put((leased, last))


def an_hour(moment: datetime) -> Lease:
    return Lease.lasting(timedelta(hours=1), moment)


def leases_a_second(url: str, workers: int, tasks: int) -> float:
    context = multiprocessing.get_context("spawn")
    client = dynamodb_client(url)
    table = create_task_table(client)
    submitter = Tasks(service(url, table))
    for _ in range(tasks):
        submitter.submit(behavior(), Nothing())
    ready, go, answers = context.Semaphore(0), context.Event(), context.Queue()
    processes = [
        context.Process(target=lease_all, args=(url, table, number, ready, go, answers)) for number in range(workers)
    ]
    for process in processes:
        process.start()
    for _ in processes:
        ready.acquire()
    began = time.time()
    go.set()
    found = [answers.get() for _ in processes]
    for process in processes:
        process.join()
    client.delete_table(TableName=table)
    if sum(leased for leased, _ in found) != tasks:
        raise RuntimeError(f"{found} of {tasks} tasks were leased")
    return tasks / (max(last for _, last in found) - began)


# ---- from submit to start


def starts(url: str, table: str, answers: Any, stop: Any) -> None:
    """A worker process whose work is to say that it began."""
    tasks = service(url, table)
    said: Behavior[Nothing, Any] = Behavior(
        KIND, Nothing, lambda _parameters, run: answers.put((run.task.task_id, time.time()))
    )
    worker = Worker(tasks, Behaviors([FunctionBehavior(tasks, said)]), WorkerSettings(f"worker:{os.getpid()}"))
    answers.put(("", 0.0))
    while not stop.is_set():
        if worker.run_once() is None:
            stop.wait(POLL.total_seconds())


def seconds_to_start(url: str, tasks: int) -> Sequence[float]:
    """Each task is submitted after the former began: an idle worker that looks every 50 ms."""
    context = multiprocessing.get_context("spawn")
    client = dynamodb_client(url)
    table = create_task_table(client)
    submitter = Tasks(service(url, table))
    answers, stop = context.Queue(), context.Event()
    process = context.Process(target=starts, args=(url, table, answers, stop))
    process.start()
    answers.get()
    waits = []
    for _ in range(tasks):
        at = time.time()
        submitter.submit(behavior(), Nothing())
        waits.append(answers.get()[1] - at)
    stop.set()
    process.join()
    client.delete_table(TableName=table)
    return waits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 4, 8])
    options = parser.parse_args()
    say = sys.stdout.write
    with tempfile.TemporaryDirectory() as folder:
        server = DynamoDbLocal(log=Path(folder) / "dynamodb.log").start()
        try:
            say(f"{'uncontended':<42} write calls  write units  read calls\n")
            for name, cost in costs(server.url):
                say(f"{name:<42} {cost.writes:>11}  {cost.units:>11}  {cost.reads:>10}\n")
            load = os.getloadavg()[0]
            say(f"\nleases of {options.tasks} due tasks, median of {options.rounds} rounds (load average {load:.1f})\n")
            leases_a_second(server.url, 1, 50)  # warms the server up
            rounds = [
                [leases_a_second(server.url, workers, options.tasks) for workers in options.workers]
                for _ in range(options.rounds)
            ]
            rates = [statistics.median(column) for column in zip(*rounds, strict=True)]
            for workers, rate in zip(options.workers, rates, strict=True):
                say(f"{workers:>2} workers {rate:>7.0f} leases/s  x{rate / rates[0]:.2f}\n")
            waits = sorted(seconds_to_start(server.url, options.tasks // 4))
            median, late = statistics.median(waits), waits[int(len(waits) * 0.95)]
            say(f"\nfrom submit to start, idle worker that looks every {POLL.total_seconds() * 1000:.0f} ms: ")
            say(f"median {median * 1000:.0f} ms, 95 % within {late * 1000:.0f} ms\n")
        finally:
            server.stop()


if __name__ == "__main__":
    main()
