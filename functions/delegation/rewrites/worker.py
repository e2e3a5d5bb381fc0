"""The shared worker: one Spark session that rewrites several tables at a time, until none is left.

A table may kill the process, and with it the attempts at all other tables. It is unknown which table did, so each
attempt after such a loss is a suspect: no other suspect runs beside it, and after two losses in a row it runs alone.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from delegation.errors import RunHandedOver
from delegation.rewrites.behavior import ALONE_AFTER, SHARED_WAIT, RewriteJob
from delegation.rewrites.context import RewriteEngine, RewriteResult
from delegation.rewrites.errors import RewriteEngineFailed
from delegation.rewrites.run import run_rewrites
from delegation.tasks.errors import RunPostponed
from delegation.tasks.life.model import Task
from delegation.tasks.work.service import TaskService
from delegation.tasks.work.worker import Worker
from delegation.timestamps import elapsed

logger = logging.getLogger(__name__)
_POLL_SECONDS: Final = 1.0


class SessionLost(RewriteEngineFailed):
    """The session's JVM ended. The process must end, and another one continues."""


@dataclass
class Places:
    """Who may use a session at the same time. Thread-safe. `now` counts in seconds."""

    now: Callable[[], float] = elapsed
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _present: int = 0
    _has_suspect: bool = False
    _has_single: bool = False
    """One attempt runs alone, or waits for the others to leave."""
    _is_over: bool = False
    _left_at: float = field(init=False)

    def __post_init__(self) -> None:
        self._left_at = self.now()

    @property
    def idle_seconds(self) -> float:
        """Return how many seconds ago an attempt last used or awaited the session."""
        with self._changed:
            return 0.0 if self._present else self.now() - self._left_at

    @property
    def is_closed(self) -> bool:
        """Return whether no other attempt gets a place: one runs alone or waits for that, or the session has ended."""
        return self._has_single or self._is_over

    def has_place(self, losses: int) -> bool:
        """Return whether an attempt would get a place now, after this many losses in a row."""
        return not self.is_closed and not (losses and self._has_suspect)

    def close(self) -> None:
        """Let no attempt start: handed-over tasks would be leased again at once, until the process ends."""
        self._is_over = True

    @contextmanager
    def taken(self, losses: int, checkpoint: Callable[[], None]) -> Iterator[None]:
        """Give an attempt a place after this many losses in a row. Raises RunPostponed if it may not run beside the
        others. An attempt that must be alone waits until the others have left, and raises what `checkpoint` raises
        meanwhile. Other attempts do not wait, because they could be lost while they do."""
        is_suspect, is_single = losses > 0, losses >= ALONE_AFTER
        with self._changed:
            if self._has_single or (is_suspect and self._has_suspect):
                raise RunPostponed("another attempt must run alone in this process", SHARED_WAIT)
            self._present += 1
            self._has_suspect |= is_suspect
            self._has_single |= is_single
        try:
            while is_single and not self._is_alone():
                checkpoint()
            yield
        finally:
            with self._changed:
                self._present -= 1
                self._has_suspect &= not is_suspect
                self._has_single &= not is_single
                self._left_at = self.now()
                self._changed.notify_all()

    def _is_alone(self) -> bool:
        """Wait for at most a second. Returns whether the others have left."""
        with self._changed:
            return self._changed.wait_for(lambda: self._present == 1, _POLL_SECONDS)


class SessionWorker(Worker):
    """A worker of a session. It leases nothing while an attempt runs alone, or after the session has ended."""

    def __init__(self, *arguments: Any, places: Places, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._places = places

    def run_once(self) -> Task | None:
        return None if self._places.is_closed else super().run_once()


@dataclass(frozen=True)
class SharedSession:
    """RewriteSession over one Spark session. Thread-safe. `is_alive` returns whether its JVM still answers."""

    engine: RewriteEngine
    is_alive: Callable[[], bool]
    places: Places = field(default_factory=Places)
    lost: threading.Event = field(default_factory=threading.Event)

    def taken(self, losses: int, checkpoint: Callable[[], None]) -> AbstractContextManager[None]:
        return self.places.taken(losses, checkpoint)

    def rewrite(self, job: RewriteJob) -> RewriteResult:
        if self._is_lost():
            raise RunHandedOver(job.ctx.attempt.task_id, "the Spark session of this process has ended")
        try:
            return run_rewrites(job.ctx, job.plan.rewrites, self.engine, job.planned_again)
        except RewriteEngineFailed:
            self._is_lost()
            raise

    def _is_lost(self) -> bool:
        """Return whether the session has ended, and record it."""
        if not self.is_alive():
            self.lost.set()
            self.places.close()
        return self.lost.is_set()


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """When a shared worker ends: after `idle` without an attempt. It leases nothing more after `budget`. None: never.
    Attempts that still run after twice the budget are handed over."""

    tasks_at_once: int = 4
    idle: timedelta | None = None
    budget: timedelta | None = None


def unwatched() -> None: ...


class SharedWorker:
    """Runs several workers side by side, over one session. It ends when it is stopped, is idle, has used its budget, or
    has lost its session."""

    def __init__(
        self,
        tasks: TaskService,
        session: SharedSession,
        workers: Sequence[Worker],
        limits: WorkerLimits,
        stop: threading.Event,
        *,
        now: Callable[[], float] = elapsed,
        poll_seconds: float = _POLL_SECONDS,
    ) -> None:
        """`stop` is the event by which all `workers` stop."""
        self._tasks = tasks
        self._session = session
        self._workers = workers
        self._limits = limits
        self._stop = stop
        self._now = now
        self._poll_seconds = poll_seconds
        self._why = "it was stopped"
        self._failures: list[BaseException] = []
        self._wake_up = threading.Event()

    @property
    def owner(self) -> str:
        """The name under which it holds tasks. Each worker appends its number."""
        return self._workers[0].owner.rpartition("/")[0]

    def stop(self) -> None:
        """Hand the current tasks over at their next checkpoints, and end."""
        self._tasks.drain()
        self._stop.set()

    def run(self, checkpoint: Callable[[], None] = unwatched) -> str:
        """Work until the end; return why it ended. `checkpoint` is called each second. If it raises, the tasks are
        handed over. Raises what `checkpoint` raised, SessionLost, and what ended a worker: after WorkOutlivedLease the
        caller must end the process at once."""
        began = self._now()
        # Daemons, so that work that does not stop cannot keep the process from ending.
        threads = [
            threading.Thread(target=self._work, args=(worker,), name=worker.owner, daemon=True)
            for worker in self._workers
        ]
        for thread in threads:
            thread.start()
        try:
            while self._is_working(threads):
                checkpoint()
                self._check_limits(self._now() - began)
        except BaseException:
            self.stop()
            while not self._failures and self._is_working(threads):
                pass
            raise
        if self._session.lost.is_set():
            raise SessionLost("the Spark session ended. Start the worker again")
        return self._why

    def _is_working(self, threads: Sequence[threading.Thread]) -> bool:
        """Wait a moment. Returns whether a worker still works; raises what ended one."""
        self._wake_up.wait(self._poll_seconds)
        if self._failures:
            raise self._failures[0]
        return any(thread.is_alive() for thread in threads)

    def _work(self, worker: Worker) -> None:
        try:
            worker.run()
        except BaseException as error:  # noqa: BLE001 - passed to the thread that waits
            self._failures.append(error)
            self.stop()
            self._wake_up.set()

    def _check_limits(self, seconds: float) -> None:
        if self._session.lost.is_set():
            # What runs in it fails by itself.
            self._ends("its session is lost")
        limits, idle = self._limits, self._session.places.idle_seconds
        if limits.idle is not None and idle >= limits.idle.total_seconds():
            self._ends("it is idle")
        if limits.budget is not None and seconds >= limits.budget.total_seconds():
            self._ends("its budget is used up")
            if seconds >= 2 * limits.budget.total_seconds():
                self._tasks.drain()

    def _ends(self, why: str) -> None:
        if not self._stop.is_set():
            self._why = why
            logger.info("the shared worker leases nothing more: %s", why, extra={"action": "end", "owner": self.owner})
            self._stop.set()
