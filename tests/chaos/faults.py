"""Carries out a plan: kills, throttles, takes down, pauses and deploys; one line of output for each."""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from typing import Final, Self, TypeVar

from botocore.exceptions import ClientError

from tests.chaos.callers import Callers
from tests.chaos.plan import CONNECTIONS, EXECUTION, JOB, PARTS, WORKER, Fault, Kind
from tests.chaos.site import WholeSystem
from tests.faults.shared.victims import Kills, command_of, kill_descendant
from tests.integration.local.stack_process import descendants

BUSY_SECONDS: Final = 3.0
"""How long to wait for a process that is at work before an idle one is killed."""
PATIENCE_SECONDS: Final = 20.0
"""How long to wait for any process of a part."""
_SPARK: Final = "org.apache.spark.deploy.SparkSubmit"
Say = Callable[[str], None]
T = TypeVar("T", int, str)


class Faults:
    """The faults of a run; `kills` counts by part, `paused` is when the pause was on, for the service."""

    def __init__(self, site: WholeSystem, callers: Callers, say: Say) -> None:
        self._site = site
        self._callers = callers
        self._say = say
        self._began = time.monotonic()
        self._threads = ThreadPoolExecutor(8, thread_name_prefix="fault")
        self._running: list[Future[None]] = []
        self._over = threading.Event()
        self.kills = Kills(dict.fromkeys(PARTS, 0))
        self.paused: tuple[datetime, datetime] | None = None
        self.deployed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End every fault, so that what is left can finish."""
        self._over.set()
        self._threads.shutdown()
        for proxy in (self._site.s3, self._site.dynamodb):
            proxy.throttle(0.0)
        self._site.polaris.down(False)

    def begin(self, fault: Fault) -> None:
        """Carry out one fault in a thread of its own."""
        self._running.append(self._threads.submit(self._carry_out, fault))

    def join(self) -> None:
        """Wait until every fault that began is over; raises what one raised."""
        for each in self._running:
            each.result()

    def _carry_out(self, fault: Fault) -> None:
        match fault.kind:
            case Kind.KILL:
                self._kill(fault)
            case Kind.THROTTLE_S3 | Kind.THROTTLE_DYNAMODB:
                self._throttle(fault)
            case Kind.POLARIS_DOWN:
                self._say(f"Polaris is down for {fault.seconds:.0f} s")
                self._site.polaris.down(True)
                self._over.wait(fault.seconds)
                self._site.polaris.down(False)
                self._say("Polaris is up again")
            case Kind.PAUSE:
                since = self._callers.hold(paused=True)
                self._say(f"all tasks are paused for {fault.seconds:.0f} s")
                self._over.wait(fault.seconds)
                resuming = datetime.now(since.tzinfo)
                self._callers.hold(paused=False)
                self.paused = since, resuming
                self._say("the tasks are resumed")
            case Kind.DEPLOY:
                self._site.deploy()
                self.deployed = True
                self._say("deployed: every function with other variables, every worker anew")

    def _throttle(self, fault: Fault) -> None:
        proxy = self._site.s3 if fault.kind is Kind.THROTTLE_S3 else self._site.dynamodb
        before = proxy.throttled
        self._say(f"{fault.kind}: {fault.share:.0%} of the requests for {fault.seconds:.0f} s")
        proxy.throttle(fault.share)
        self._over.wait(fault.seconds)
        proxy.throttle(0.0)
        self._say(f"{fault.kind} ended: {proxy.throttled - before} requests refused")

    def _kill(self, fault: Fault) -> None:
        done = {
            CONNECTIONS: self._cut,
            EXECUTION: self._stop_execution,
            WORKER: self._kill_worker,
            JOB: self._kill_job,
        }.get(fault.part, self._kill_function)(fault)
        if done:
            self.kills[fault.part] += 1
            self._say(f"killed {fault.part}: {done}")
        else:
            self._say(f"nothing to kill of {fault.part}")

    def _cut(self, _fault: Fault) -> str:
        cut = self._site.front.cut()
        return f"{cut} connections of callers to the API" if cut else ""

    def _stop_execution(self, fault: Fault) -> str:
        running = self._awaited(self._site.executions, PATIENCE_SECONDS)
        with contextlib.suppress(ClientError):  # it may have ended meanwhile
            if running:
                victim = _chosen(running, fault)
                self._site.states.stop_execution(executionArn=victim)
                return victim.rpartition(":")[2]
        return ""

    def _kill_worker(self, fault: Fault) -> str:
        if not self._site.workers:
            return ""
        at = int(fault.dice * len(self._site.workers))
        pid = self._site.workers[at].pid
        self._site.replace_worker(at)
        return f"process {pid}, and started another"

    def _kill_job(self, fault: Fault) -> str:
        def jobs() -> list[int]:
            return [pid for pid in descendants(os.getpid()) if _SPARK in command_of(pid)]

        found = self._awaited(jobs, PATIENCE_SECONDS)
        return self._killed(_chosen(found, fault), "") if found else ""

    def _kill_function(self, fault: Fault) -> str:
        function = self._site.functions()[fault.part]
        busy = self._awaited(lambda: function.pids(busy=True), BUSY_SECONDS)
        if busy:
            return self._killed(_chosen(busy, fault), "at work")
        idle = self._awaited(function.pids, PATIENCE_SECONDS)
        return self._killed(_chosen(idle, fault), "idle") if idle else ""

    @staticmethod
    def _killed(pid: int, state: str) -> str:
        return f"process {pid}{f', {state}' if state else ''}" if kill_descendant(pid) else ""

    def _awaited(self, found: Callable[[], Collection[T]], seconds: float) -> "Collection[T]":
        """Return what there is, as soon as there is anything; nothing after so many seconds."""
        deadline = time.monotonic() + seconds
        while not (some := found()):
            if time.monotonic() > deadline or self._over.wait(0.02):
                return ()
        return some


def _chosen(some: Collection[T], fault: Fault) -> T:
    ordered = sorted(some)
    return ordered[int(fault.dice * len(ordered))]
