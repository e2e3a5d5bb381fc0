"""An attempt as the function of a behavior sees it: with a cursor and children, and the same for coroutines."""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal, Never, TypeVar, Unpack, overload

from delegation.tasks.errors import AwaitedTaskFailed, ChildrenPending
from delegation.tasks.life.declared import CURSOR
from delegation.tasks.life.model import Task
from delegation.tasks.submit import Call, Handle, Options, Parent, Tasks
from delegation.tasks.work.attempt_context import REPORT_EVERY, AttemptContext
from delegation.tasks.work.service import TaskService
from polaris_common.errors import DelegationError

V = TypeVar("V")
T = TypeVar("T")
SAME: Final = object()
_LONGEST_CURSOR: Final = 4_096


class ChildFailed(DelegationError):
    """A child whose result the work needs ended in FAILURE. The parent fails too, unless the work catches this."""

    code = "CHILD_FAILED"


class Context(AttemptContext):
    """One attempt as its author's function sees it, with a cursor and children. Methods end the attempt by RunStopped,
    which is no Exception. A run is everything from a submission to its outcome: retries, hand-overs, attempts after a
    loss."""

    def __init__(self, tasks: TaskService, task: Task, **settings: Any) -> None:
        super().__init__(tasks, task, **settings)
        self._saved: str | None = task.details.get(CURSOR)
        self._moved: str | None = self._saved
        self._saved_at = self.seconds()
        self._known: Mapping[str, Task] | None = None

    @property
    def cursor(self) -> Any:
        """The last value given to `checkpoint` in this run, also by a former attempt; None at its start. After a crash
        it may be two seconds old, so the work just after it may be done twice."""
        return None if self._moved is None else json.loads(self._moved)

    def checkpoint(self, *, cursor: Any = SAME, moved: bool = True) -> None:
        """Check that work may continue; call it before each piece of work. `cursor` is any JSON value from which
        another attempt can continue: all work before it is done. `moved` is False if the work only waits, which counts
        as no progress. Raises LeaseLost, RunCancelled, RunHandedOver, RunTimedOut, DelegationError (BAD_CURSOR)."""
        self._move(cursor)
        super().checkpoint(moved=moved)
        if moved and self.seconds() - self._saved_at >= REPORT_EVERY.total_seconds():
            self.save()

    def _move(self, cursor: Any) -> None:
        if cursor is not SAME:
            self._moved = _cursor_text(cursor)

    def save(self) -> None:
        """Write the cursor now if it has moved; the end of an attempt does so too. Raises LeaseLost."""
        if self._moved == self._saved:
            return
        moved = self._moved
        self.write(lambda: self.tasks.leases.note(self.task_id, self.attempt, details={CURSOR: moved}))
        self._saved, self._saved_at = moved, self.seconds()

    def submit(self, call: Call[V], **options: Unpack[Options]) -> Handle[V]:
        """Submit a child: its parent ends after it, and fails with it unless `gather` reads its outcome. A child
        without a key or computed id is identified as the n-th child of this run. Repeated work attaches to it and must
        submit the same children in the same order; otherwise raises DelegationError (CHILD_CHANGED)."""
        return self.submit_all([call], **options)[0]

    def submit_all(self, calls: Sequence[Call[V]], **options: Unpack[Options]) -> list[Handle[V]]:
        """Submit many children as `submit` does, with two writes for every 40; all have the same `options`."""
        if self._known is None:
            # Adopted by former attempts of this run, and read once: there may be many.
            self._known = (
                self.tasks.reads.find_many(self.tasks.reads.children(self.task_id)) if self.task.family.children else {}
            )
        wanted: Options = {**options, "parent": Parent(self.task_id, self.attempt)}
        handles: list[Handle[V]] = []
        submitted = Tasks(self.tasks).submit_children(calls, wanted, self._known)
        for call, (first, child) in zip(calls, submitted, strict=True):
            by_place = call.behavior.identify is None and options.get("key") is None
            if by_place and child.task_payload != first.task_payload:
                raise DelegationError(
                    f"an earlier run of task {self.task_id} submitted its child {child.task_id} with other parameters. "
                    "Each run must submit the same children in the same order",
                    code="CHILD_CHANGED",
                )
            handles.append(Handle(self.tasks, call.behavior, child.task_id))
        return handles

    @overload
    def gather(self, children: Sequence[Handle[V]]) -> list[V]: ...
    @overload
    def gather(self, children: Sequence[Handle[V]], *, return_errors: Literal[True]) -> list[V | AwaitedTaskFailed]: ...

    def gather(self, children: Sequence[Handle[V]], *, return_errors: bool = False) -> list[Any]:
        """Return the children's results, in order, when all have ended. Until then this ends the attempt, which counts
        against no limit, and the work runs again from its start with the same children. Raises ChildFailed, unless
        `return_errors` puts the errors into the list."""
        heads = self.tasks.reads.find_many([child.task_id for child in children])
        outcomes = [child.peek(head=heads.get(child.task_id)) for child in children]
        missing = sum(outcome is None for outcome in outcomes)
        if missing:
            raise ChildrenPending(self.task_id, missing)
        self.settled.update(child.task_id for child in children)
        failed = [outcome for outcome in outcomes if isinstance(outcome, AwaitedTaskFailed)]
        self.forgiven.update(failure.task_id for failure in failed)
        if failed and not return_errors:
            raise ChildFailed(f"{len(failed)} of {len(outcomes)} children failed. The first error: {failed[0]}")
        return [outcome if isinstance(outcome, AwaitedTaskFailed) else outcome.value for outcome in outcomes if outcome]


class AsyncContext:
    """A Context for coroutines. Its methods that may call the store are awaited, one at a time."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._lock = threading.Lock()

    @property
    def task(self) -> Task:
        return self._context.task

    @property
    def attempt(self) -> int:
        return self._context.attempt

    @property
    def cursor(self) -> Any:
        return self._context.cursor

    async def checkpoint(self, *, cursor: Any = SAME, moved: bool = True) -> None:
        """Check that work may continue, as Context does. A coroutine that waits is cancelled without it."""
        await self._called(lambda: self._context.checkpoint(cursor=cursor, moved=moved))

    async def save(self) -> None:
        await self._called(self._context.save)

    async def report(
        self,
        *,
        done: int | None = None,
        total: int | None = None,
        unit: str | None = None,
        message: str | None = None,
        eta: datetime | None = None,
        details: Mapping[str, Any] | None = None,
        **unknown: Never,
    ) -> None:
        await self._called(
            lambda: self._context.report(
                done=done, total=total, unit=unit, message=message, eta=eta, details=details, **unknown
            )
        )

    async def submit(self, call: Call[V], **options: Unpack[Options]) -> Handle[V]:
        return await self._called(lambda: self._context.submit(call, **options))

    async def submit_all(self, calls: Sequence[Call[V]], **options: Unpack[Options]) -> list[Handle[V]]:
        return await self._called(lambda: self._context.submit_all(calls, **options))

    @overload
    async def gather(self, children: Sequence[Handle[V]]) -> list[V]: ...
    @overload
    async def gather(
        self, children: Sequence[Handle[V]], *, return_errors: Literal[True]
    ) -> list[V | AwaitedTaskFailed]: ...

    async def gather(self, children: Sequence[Handle[V]], *, return_errors: bool = False) -> list[Any]:
        if return_errors:
            return await self._called(lambda: self._context.gather(children, return_errors=True))
        return await self._called(lambda: self._context.gather(children))

    async def _called(self, method: Callable[[], T]) -> T:
        import asyncio  # noqa: PLC0415 - only coroutines need it

        def alone() -> T:
            with self._lock:
                return method()

        return await asyncio.to_thread(alone)


def _cursor_text(cursor: Any) -> str | None:
    if cursor is None:
        return None
    try:
        text = json.dumps(cursor, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise DelegationError(f"the cursor is not a JSON value: {error}", code="BAD_CURSOR") from error
    if len(text) > _LONGEST_CURSOR:
        raise DelegationError(
            f"the cursor has {len(text)} characters, more than {_LONGEST_CURSOR}. Store only a position in it",
            code="BAD_CURSOR",
        )
    return text
