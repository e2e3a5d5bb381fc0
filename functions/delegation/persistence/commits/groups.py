"""Commits of one process that share an attempt: who waits, what was stored for them, and what each one is answered."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic

from delegation.persistence.commits.commits import CommitAttempt, Committed, H, Memo, Writes
from delegation.persistence.errors import CommitUnknown
from delegation.persistence.objects.objects import ObjectRef


@dataclass(eq=False)
class Pending(Generic[H]):
    """A commit that waits for its outcome until `deadline` (seconds of the committer's clock)."""

    change: Callable[[CommitAttempt[H]], tuple[H | None, Any]]
    operation: str
    deadline: float
    memo: Memo = field(default_factory=dict)
    woken: threading.Event = field(default_factory=threading.Event)
    outcome: Committed[Any] | None = None
    error: BaseException | None = None

    @property
    def settled(self) -> bool:
        """Return whether the outcome is known."""
        return self.outcome is not None or self.error is not None


@dataclass(eq=False)
class Group(Generic[H]):
    """Commits made together, and the objects stored for them in all attempts.

    `swapping` is the head of a swap whose outcome is open, `kept` are the writes of the attempt that was applied.
    """

    members: list[Pending[H]]
    stored: dict[int, ObjectRef] = field(default_factory=dict)
    swapping: int | None = None
    kept: Writes = field(default_factory=dict)

    @property
    def waiting(self) -> list[Pending[H]]:
        """Return the members without an outcome."""
        return [one for one in self.members if not one.settled]

    @property
    def lost(self) -> list[ObjectRef]:
        """Return the objects of attempts that are known to have lost."""
        return [ref for id_, ref in self.stored.items() if id_ not in self.kept] if self.swapping is None else []

    def fail(self, error: BaseException) -> None:
        """Answer every member without an outcome with the error."""
        for one in self.waiting:
            one.error = error

    def stopped(self) -> BaseException:
        """Return the error for members whose thread ended without an outcome for them."""
        if self.swapping is not None:
            return CommitUnknown(self.swapping)
        return RuntimeError("the thread that ran this commit was stopped")


@dataclass(slots=True)
class Round(Generic[H]):
    """The results of one attempt of a group, valid only if the head it started from is the current one."""

    head: H | None = None
    writes: Writes = field(default_factory=dict)
    results: list[tuple[Pending[H], bool, Any]] = field(default_factory=list)
    refusals: list[tuple[Pending[H], Exception]] = field(default_factory=list)

    @property
    def operations(self) -> tuple[str, ...]:
        """Return the names of what was changed."""
        return tuple(one.operation for one, changed, _ in self.results if changed and one.operation)

    def settle(self, commit_id: int | None) -> None:
        """Answer every member."""
        for one, changed, result in self.results:
            one.outcome = Committed(result, commit_id if changed else None)
        for one, error in self.refusals:
            one.error = error
