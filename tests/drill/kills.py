"""Submits tasks, and meanwhile ends processes and executions at random."""

import contextlib
import os
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Self

from botocore.exceptions import ClientError

from delegation.tasks.submit import Submitted, Tasks
from tests.drill import observed
from tests.drill.findings import Findings, examine
from tests.drill.observed import END, PIECE, START, Done, Piece
from tests.drill.site import StateMachine, Store
from tests.faults.shared.victims import Kills, functions_among, kill_descendant
from tests.faults.shared.worker_process import WorkerProcess
from tests.integration.local.stack_process import descendants

KILLS_A_SECOND = 1.5
TIMEOUT_SECONDS = 240


class Drill:
    """Workers and the state machine, on tasks of two clients, of which one sends dispatches to the queue.

    `dice` determines the tasks, the victims and the times; how the processes react is not deterministic.
    """

    def __init__(self, store: Store, machine: StateMachine, dice: random.Random, *, tasks: int, workers: int) -> None:
        self._store = store
        self._machine = machine
        self._dice = dice
        self._pieces = [
            Piece(name=f"task {n}", steps=dice.randrange(2, 9), pause_seconds=dice.uniform(0.05, 0.15))
            for n in range(tasks)
        ]
        self._clients = (Tasks(store.tasks()), Tasks(machine.tasks()))
        self._submitted: list[Submitted[Done]] = []
        self._pause = threading.Event()
        self._names = iter(range(1_000_000))
        self._workers: list[WorkerProcess] = []
        self._number = workers
        self.kills = Kills()

    def __enter__(self) -> Self:
        self._workers = [self._worker() for _ in range(self._number)]
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not all(worker.log_entries() for worker in self._workers):
            if time.monotonic() > deadline:
                raise RuntimeError(f"a worker did not start within {TIMEOUT_SECONDS} s")
            self._pause.wait(0.05)
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.kill()

    def kill_for(self, seconds: float) -> None:
        """Kill at random times while tasks are submitted; executions only in the first half, as recovery takes long."""
        with ThreadPoolExecutor(1) as clients:
            submitting = clients.submit(self._submit_within, seconds * 0.9)
            began = time.monotonic()
            while (now := time.monotonic() - began) < seconds:
                self._pause.wait(min(self._dice.expovariate(KILLS_A_SECOND), seconds - now))
                self._kill_one(executions=now < seconds / 2)
            submitting.result()

    def settle(self) -> None:
        """Wait for the outcome of every task; raise RuntimeError after TIMEOUT_SECONDS."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        waiting = list(self._submitted)
        while waiting := [each for each in waiting if each.handle.outcome() is None]:
            if time.monotonic() > deadline:
                raise RuntimeError(f"no outcome of {', '.join(each.task_id for each in waiting)}")
            self._pause.wait(0.2)

    def findings(self) -> Findings:
        """Return the totals and violations."""
        tasks = self._store.tasks()
        return examine(tasks, self._submitted, observed.read(self._store.log), kills=self.kills.total())

    def _submit_within(self, seconds: float) -> None:
        """Submit all tasks at even intervals, every fifth one by both clients, so that the second attaches."""
        began = time.monotonic()
        for n, piece in enumerate(self._pieces):
            self._pause.wait(max(began + seconds * n / len(self._pieces) - time.monotonic(), 0))
            one, other = self._clients[n % 2], self._clients[(n + 1) % 2]
            self._submitted.append(one.submit(PIECE, piece))
            if n % 5 == 0:
                other.submit(PIECE, piece)

    def _worker(self) -> WorkerProcess:
        return self._store.worker(f"worker-{next(self._names)}")

    def _kill_one(self, *, executions: bool) -> None:
        """End an execution, a worker or a function's process, preferably one that runs a task."""
        if executions and self._dice.random() < 0.2 and self._stop_execution():
            return
        busy = {line.pid: line.what for line in observed.read(self._store.log) if line.what in {START, END}}
        functions = dict(functions_among(descendants(os.getpid())))
        workers = {worker.pid: at for at, worker in enumerate(self._workers)}
        processes = list(workers) if self._dice.random() < 0.5 or not functions else list(functions)
        running = [pid for pid in processes if busy.get(pid) == START]
        victim = self._dice.choice(running if running and self._dice.random() < 0.7 else processes)
        if victim in functions:
            self.kills["functions"] += kill_descendant(victim)
            return
        self._workers[workers[victim]].kill()
        self._workers[workers[victim]] = self._worker()
        self.kills["workers"] += 1

    def _stop_execution(self) -> bool:
        running = self._machine.running()
        if not running:
            return False
        with contextlib.suppress(ClientError):  # it may have ended meanwhile
            self._machine.states.stop_execution(executionArn=self._dice.choice(running))
            self.kills["executions"] += 1
            return True
        return False
