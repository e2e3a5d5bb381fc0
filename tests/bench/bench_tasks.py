"""How fast tasks are submitted, admitted, leased and ended on DynamoDB Local, and what limits each rate.

    PYTHONPATH=functions:. python tests/bench/bench_tasks.py [--loads N ...]

What a task costs in calls and units is asserted by tests/contract/costs. The CPU time of a task, here and in the
server, shows what limits a rate.
"""

import itertools
import os
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from delegation.orchestration.dispatch import Admission
from delegation.tasks.life.declared import TaskType, TaskTypes
from delegation.tasks.life.lanes import Caps, Traits
from delegation.tasks.life.policy import Lease, Policies, RetryPolicy
from delegation.tasks.stores.dynamodb import ConditionalTable, DynamoDbTaskStore
from delegation.tasks.work.hooks import TaskHooks
from delegation.tasks.work.service import TaskService
from infra.local.aws.dynamodb import DynamoDbLocal
from tests.bench.frame import load, options
from tests.contract.costs.metering import Meter
from tests.contract.task_tables import create_task_table, dynamodb_client
from tests.kit.printing import print_now

TASK_TYPE = "NOTE"
CAP = 100
"""Tasks that run at once."""
THREADS = 10
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Phase:
    """The seconds of a phase, the CPU seconds of this process and of the server in it, and what it cost."""

    seconds: float = 0.0
    client_cpu: float = 0.0
    server_cpu: float = 0.0
    units: int = 0
    calls: int = 0

    def line(self, name: str, tasks: int) -> str:
        """Return the rate, and what a task costs: units, calls, and milliseconds of CPU here and in the server."""
        ours, theirs = self.client_cpu / tasks * 1_000, self.server_cpu / tasks * 1_000
        rate, units, calls = tasks / self.seconds, self.units / tasks, self.calls / tasks
        return f"{name:<9} {rate:>8.0f} {units:>11.1f} {calls:>7.1f} {ours:>14.1f} {theirs:>14.1f}"


class NoQueue:
    """A queue that takes every message and delivers none: the measured process admits by itself."""

    def send(self, _task_id: str, _n: int, *, correlation_id: str | None = None) -> None:
        """See DispatchQueue.send."""


class Clocks:
    """Adds up phases."""

    def __init__(self, meter: Meter, server: int) -> None:
        self.phases: dict[str, Phase] = {}
        self._meter = meter
        self._server = server

    @contextmanager
    def measured(self, name: str) -> Iterator[None]:
        phase = self.phases.setdefault(name, Phase())
        began, ours, theirs = time.perf_counter(), time.process_time(), cpu_of(self._server)
        with self._meter.measured() as cost:
            yield
        phase.seconds += time.perf_counter() - began
        phase.client_cpu += time.process_time() - ours
        phase.server_cpu += cpu_of(self._server) - theirs
        phase.units += cost.units
        phase.calls += len(cost.calls)


def cpu_of(pid: int) -> float:
    """Return the CPU seconds of a process and its children (proc_pid_stat(5))."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return (int(fields[11]) + int(fields[12])) / _TICKS + sum(cpu_of(int(child)) for child in children)


def now() -> datetime:
    return datetime.now(UTC)


def an_hour(moment: datetime) -> Lease:
    return Lease.lasting(timedelta(hours=1), moment)


def rates(url: str, server: int, tasks: int) -> dict[str, Phase]:
    """Submit tasks, then admit, lease and end all of them, CAP at a time; `drain` is the last three together."""
    client = dynamodb_client(url)
    table = create_task_table(client)
    store = DynamoDbTaskStore(ConditionalTable(client), table)
    limits = Caps(everything=CAP)
    policies = Policies(default=RetryPolicy(), by_type={}, limits=limits)
    types = TaskTypes([TaskType(name=TASK_TYPE, traits=lambda text: Traits("sales", text))])
    service = TaskService(store, policies, NoQueue(), clock=now, hooks=TaskHooks(types=types))
    clocks = Clocks(Meter(client), server)

    def submit(n: int) -> None:
        task_id = f"00000000-0000-4000-8000-{n:012d}"
        service.submission.create(
            service.submission.first(task_id=task_id, task_type=TASK_TYPE, payload=f"bucket-{n % 4}")
        )

    with ThreadPoolExecutor(THREADS) as pool:
        with clocks.measured("submit"):
            each(pool, submit, range(tasks))
        drain(store, service, clocks, pool, tasks)
    client.delete_table(TableName=table)
    parts = [clocks.phases[name] for name in ("dispatch", "lease", "end")]
    clocks.phases["drain"] = Phase(
        *(sum(values) for values in zip(*(vars(part).values() for part in parts), strict=True))
    )
    return clocks.phases


def drain(store: DynamoDbTaskStore, service: TaskService, clocks: Clocks, pool: ThreadPoolExecutor, tasks: int) -> None:
    """Admit, lease and end until every task has ended; each pass fills the free places."""
    ended = 0
    started: list[str] = []
    admission = Admission(
        service,
        store,
        [TASK_TYPE],
        lambda task_id, _n: started.append(task_id),
        limits=Caps(everything=CAP),
        threads=THREADS,
    )
    held: list[str] = []
    while ended < tasks:
        with clocks.measured("dispatch"):
            admission.run(held)
        with clocks.measured("lease"):
            each(pool, lambda task_id: service.leases.acquire(task_id, "run", an_hour), started)
        held, started[:] = list(started), []
        with clocks.measured("end"):
            each(pool, lambda task_id: service.leases.succeed(task_id, 1, "done"), held)
        ended += len(held)


def each(pool: ThreadPoolExecutor, act: Callable[[Any], object], items: Collection[Any] | range) -> None:
    for _ in itertools.chain(pool.map(act, items)):
        pass


def main() -> None:
    given = options(__doc__, loads=[1_000, 20_000])
    with tempfile.TemporaryDirectory() as folder:
        server = DynamoDbLocal(log=Path(folder) / "dynamodb.log").start()
        try:
            for tasks in given.loads:
                print_now(f"\n{tasks} tasks, at most {CAP} at once, {THREADS} threads (load {load()})")
                print_now("           tasks/s  write units   calls  client CPU ms  server CPU ms")
                for name, phase in rates(server.url, server.pid, tasks).items():
                    print_now(phase.line(name, tasks))
        finally:
            server.stop()


if __name__ == "__main__":
    main()
