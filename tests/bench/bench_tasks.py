"""Tasks on DynamoDB Local: costs, leases per second, time from submission to start, rates of submission and drain.

    PYTHONPATH=functions:. python tests/bench/bench_tasks.py [--tasks N] [--rounds N] [--workers N ...] [--loads N ...]

Calls are counted by botocore's events; write units are computed from item sizes (docs/costs.md). Workers are
processes, which compete with DynamoDB Local for cores: compare ratios, calls and CPU time.
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
from delegation.tasks.life.policy import Lease, Policies, RetryPolicy
from delegation.tasks.stores.dynamodb import ConditionalTable, DynamoDbTaskStore
from delegation.tasks.submit import Tasks
from delegation.tasks.work.behaviors import Behavior, Behaviors, FunctionBehavior
from delegation.tasks.work.hooks import NoDispatchQueue
from delegation.tasks.work.service import TaskService
from delegation.tasks.work.worker import DueHints, Worker, WorkerSettings, lease_next_available_task
from infra.local.aws.dynamodb import DynamoDbLocal
from tests.bench.loads.rates import CAP, THREADS, rates
from tests.contract.costs.lives import LIVES
from tests.contract.costs.metering import Cost, Meter
from tests.contract.costs.operations import OPERATIONS, Harness
from tests.contract.task_tables import create_task_table, dynamodb_client, task_store

TASK_TYPE = "NOTE"
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
    return Behavior(TASK_TYPE, Nothing, lambda _parameters, _run: None)


# ---- calls and units


def costs(url: str) -> Iterator[tuple[str, Cost]]:
    """Yield the cost of accepted requests, then of whole tasks."""
    client = dynamodb_client(url)
    meter = Meter(client)
    acts = [(name, lambda store, name=name: OPERATIONS[name](Harness(store))) for name in REQUESTS]
    for name, ready in [*acts, *LIVES.items()]:
        with task_store(client) as store:
            act = ready(store)
            with meter.measured() as cost:
                act()
        yield name, cost


# ---- leases


@dataclass
class Leased:
    """The number of leases, the time of the last, the calls made for them and the CPU seconds used."""

    leased: int = 0
    last: float = 0.0
    cpu: float = 0.0
    calls: Counter[str] = field(default_factory=Counter)

    def __add__(self, other: "Leased") -> "Leased":
        last = max(self.last, other.last)
        return Leased(self.leased + other.leased, last, self.cpu + other.cpu, self.calls + other.calls)


def lease_all(url: str, table: str, number: int, ready: Any, go: Any, answers: Any) -> None:
    """Lease tasks in a worker process until none is due, and put the figures on the queue."""
    tasks = service(url, table)
    with contextlib.suppress(StoreUnavailable):
        tasks.reads.store.due(now())  # connects
    found, lookout = Leased(), DueHints()

    def count(http_response: Any, model: Any, **_more: Any) -> None:
        found.calls[model.name if http_response.status_code == 200 else f"{model.name} refused"] += 1

    tasks.reads.store.dynamodb.client.meta.events.register("after-call.dynamodb.*", count)
    ready.release()
    go.wait()
    began = time.process_time()
    while lease_next_available_task(tasks, f"worker-{number}", [TASK_TYPE], an_hour, lookout=lookout) is not None:
        found.leased, found.last = found.leased + 1, time.time()
    found.cpu = time.process_time() - began
    answers.put(found)


def an_hour(moment: datetime) -> Lease:
    return Lease.lasting(timedelta(hours=1), moment)


def leases(url: str, workers: int, tasks: int) -> tuple[float, Leased]:
    """Return the leases per second until the last, and the totals of all workers until no task was due."""
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
    found = sum((answers.get() for _ in processes), start=Leased())
    for process in processes:
        process.join()
    client.delete_table(TableName=table)
    if found.leased != tasks:
        raise RuntimeError(f"{found.leased} of {tasks} tasks were leased")
    return tasks / (found.last - began), found


def print_leases(print_text: Callable[[str], object], url: str, counts: Sequence[int], tasks: int, rounds: int) -> None:
    """Print the median rates over all rounds; calls and CPU time are means per lease."""
    print_text(f"\nleases of {tasks} due tasks, median of {rounds} rounds (load average {os.getloadavg()[0]:.1f})\n")
    leases(url, 1, 50)  # warms the server up
    results = [[leases(url, workers, tasks) for workers in counts] for _ in range(rounds)]
    print_text("workers  leases/s  ratio   a lease: queries   gets  writes  lost races  worker CPU ms\n")
    first = 0.0
    for workers, column in zip(counts, zip(*results, strict=True), strict=True):
        rate = statistics.median(rate for rate, _ in column)
        first = first or rate
        total = sum((found for _, found in column), start=Leased())
        calls = [total.calls[name] / total.leased for name in CALLS]
        print_text(f"{workers:>7} {rate:>9.0f}  x{rate / first:<5.2f} ")
        print_text(f"{calls[0]:>16.2f} {calls[1]:>6.2f} {calls[2]:>7.2f} {calls[3]:>11.3f} ")
        print_text(f"{total.cpu / total.leased * 1000:>14.1f}\n")


# ---- from submit to start


def starts(url: str, table: str, answers: Any, stop: Any) -> None:
    """Run a worker process whose tasks only report their start."""
    tasks = service(url, table)
    reporting: Behavior[Nothing, Any] = Behavior(
        TASK_TYPE, Nothing, lambda _parameters, run: answers.put((run.task.task_id, time.time()))
    )
    worker = Worker(tasks, Behaviors([FunctionBehavior(tasks, reporting)]), WorkerSettings(f"worker:{os.getpid()}"))
    answers.put(("", 0.0))
    while not stop.is_set():
        if worker.run_once() is None:
            stop.wait(POLL.total_seconds())


def seconds_to_start(url: str, tasks: int) -> Sequence[float]:
    """Submit each task after the previous one started, to an idle worker that polls every 50 ms."""
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


def print_loads(print_text: Callable[[str], object], server: DynamoDbLocal, loads: Sequence[int]) -> None:
    """Print the rates of whole loads; the CPU time of a task, here and in the server, shows what limits them."""
    for tasks in loads:
        print_text(f"\n{tasks} tasks, at most {CAP} at once, {THREADS} threads (load {os.getloadavg()[0]:.1f})\n")
        print_text("           tasks/s  write units   calls  client CPU ms  server CPU ms\n")
        for name, phase in rates(server.url, server.pid, tasks).items():
            print_text(phase.line(name, tasks) + "\n")


def print_rest(print_text: Callable[[str], object], server: DynamoDbLocal, options: argparse.Namespace) -> None:
    """Print costs, leases and starts."""
    print_text(f"{'uncontended':<42} write calls  write units  read calls\n")
    for name, cost in costs(server.url):
        print_text(f"{name:<42} {cost.writes:>11}  {cost.units:>11}  {cost.reads:>10}\n")
    print_leases(print_text, server.url, options.workers, options.tasks, options.rounds)
    waits = sorted(seconds_to_start(server.url, options.tasks // 4))
    median, late = statistics.median(waits), waits[int(len(waits) * 0.95)]
    print_text(f"\nfrom submit to start, idle worker that polls every {POLL.total_seconds() * 1000:.0f} ms: ")
    print_text(f"median {median * 1000:.0f} ms, 95 % within {late * 1000:.0f} ms\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument("--loads", type=int, nargs="*", default=[1_000, 20_000])
    parser.add_argument("--only-loads", action="store_true")
    options = parser.parse_args()
    print_text = sys.stdout.write
    with tempfile.TemporaryDirectory() as folder:
        server = DynamoDbLocal(log=Path(folder) / "dynamodb.log").start()
        try:
            if not options.only_loads:
                print_rest(print_text, server, options)
            print_loads(print_text, server, options.loads)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
