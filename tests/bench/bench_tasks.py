"""Tasks on DynamoDB Local: what requests and lives cost, leases a second by workers, time from submit to start.

    PYTHONPATH=functions:. python tests/bench/bench_tasks.py [--tasks N] [--rounds N] [--workers N ...]

Calls are counted by botocore's events, write units computed from item sizes (docs/costs.md). Workers are processes; on
a machine with fewer cores than workers DynamoDB Local and they compete for them: compare ratios, calls and CPU time.
"""

import argparse
import contextlib
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from delegation.tasks.errors import StoreUnavailable
from delegation.tasks.life.lease import Lease
from delegation.tasks.life.policy import Policies, RetryPolicy
from delegation.tasks.stores.dynamodb import ConditionalTable, DynamoDbTaskStore
from delegation.tasks.work.behaviors import Behavior, Behaviors, FunctionBehavior
from delegation.tasks.work.claim import Lookout, lease_next_available_task
from delegation.tasks.work.dispatch_queue import NoDispatchQueue
from delegation.tasks.work.service import TaskService
from delegation.tasks.work.submit import Tasks
from delegation.tasks.work.worker import Worker, WorkerSettings
from infra.local.aws.dynamodb import DynamoDbLocal
from tests.contract.costs.lives import LIVES
from tests.contract.costs.metering import Cost, Meter
from tests.contract.costs.operations import OPERATIONS, House
from tests.contract.task_tables import create_task_table, dynamodb_client, task_store

KIND = "NOTE"
REQUESTS = ("Acceptance.accept", "Acceptance.accept with a key", "Acceptance.known, replayed", "Tasks.submit")
POLL = timedelta(milliseconds=50)
CALLS = ("Query", "GetItem", "TransactWriteItems", "TransactWriteItems refused")


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


@dataclass
class Haul:
    """What workers leased, when the last of it, the calls they made for it and their processor time in seconds."""

    leased: int = 0
    last: float = 0.0
    cpu: float = 0.0
    calls: Counter[str] = field(default_factory=Counter)

    def __add__(self, other: "Haul") -> "Haul":
        last = max(self.last, other.last)
        return Haul(self.leased + other.leased, last, self.cpu + other.cpu, self.calls + other.calls)


def lease_all(url: str, table: str, number: int, ready: Any, go: Any, answers: Any) -> None:
    """One worker process: lease until nothing is due, and say how many it got and when it got the last."""
    tasks = service(url, table)
    with contextlib.suppress(StoreUnavailable):
        tasks._store.due(now())  # connects
    found, lookout = Haul(), Lookout()

    def count(http_response: Any, model: Any, **_more: Any) -> None:
        found.calls[model.name if http_response.status_code == 200 else f"{model.name} refused"] += 1

    tasks._store.dynamodb.client.meta.events.register("after-call.dynamodb.*", count)
    ready.release()
    go.wait()
    began = time.process_time()
    while lease_next_available_task(tasks, f"worker-{number}", [KIND], an_hour, lookout=lookout) is not None:
        found.leased, found.last = found.leased + 1, time.time()
    found.cpu = time.process_time() - began
    answers.put(found)


def an_hour(moment: datetime) -> Lease:
    return Lease.lasting(timedelta(hours=1), moment)


def leases(url: str, workers: int, tasks: int) -> tuple[float, Haul]:
    """Leases a second until the last one, and what all workers needed until each found nothing more."""
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
    found = sum((answers.get() for _ in processes), start=Haul())
    for process in processes:
        process.join()
    client.delete_table(TableName=table)
    if found.leased != tasks:
        raise RuntimeError(f"{found.leased} of {tasks} tasks were leased")
    return tasks / (found.last - began), found


def say_leases(say: Callable[[str], object], url: str, counts: Sequence[int], tasks: int, rounds: int) -> None:
    """Medians of rates over rounds; calls and processor time are means for a lease."""
    say(f"\nleases of {tasks} due tasks, median of {rounds} rounds (load average {os.getloadavg()[0]:.1f})\n")
    leases(url, 1, 50)  # warms the server up
    results = [[leases(url, workers, tasks) for workers in counts] for _ in range(rounds)]
    say("workers  leases/s  ratio   a lease: queries   gets  writes  lost races  worker CPU ms\n")
    first = 0.0
    for workers, column in zip(counts, zip(*results, strict=True), strict=True):
        rate = statistics.median(rate for rate, _ in column)
        first = first or rate
        haul = sum((found for _, found in column), start=Haul())
        calls = [haul.calls[name] / haul.leased for name in CALLS]
        say(f"{workers:>7} {rate:>9.0f}  x{rate / first:<5.2f} ")
        say(f"{calls[0]:>16.2f} {calls[1]:>6.2f} {calls[2]:>7.2f} {calls[3]:>11.3f} ")
        say(f"{haul.cpu / haul.leased * 1000:>14.1f}\n")


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
            say_leases(say, server.url, options.workers, options.tasks, options.rounds)
            waits = sorted(seconds_to_start(server.url, options.tasks // 4))
            median, late = statistics.median(waits), waits[int(len(waits) * 0.95)]
            say(f"\nfrom submit to start, idle worker that looks every {POLL.total_seconds() * 1000:.0f} ms: ")
            say(f"median {median * 1000:.0f} ms, 95 % within {late * 1000:.0f} ms\n")
        finally:
            server.stop()


if __name__ == "__main__":
    main()
