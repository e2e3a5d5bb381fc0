"""Engines that delete the chunks of a plan, whatever operation made it: this process, or Spark executors."""

from collections.abc import Callable, Sequence
from typing import Protocol

from delegation.identifiers import TableIdentifier
from delegation.storage.base import ObjectStore, PlanStore
from delegation.storage.deleter import DeletePolicy, Deleter
from delegation.storage.rate import AdaptiveRate
from delegation.worksets.attempt import Attempt
from delegation.worksets.engines.choice import EngineChoice
from delegation.worksets.engines.inline import Tally, Work, delete_here


class DeleteSettings(Protocol):
    """The operator's numbers, as far as deletes need them."""

    @property
    def delete(self) -> DeletePolicy: ...


class Deleting(Protocol):
    """One attempt at an operation on the table `identifier`, as far as an engine needs it to delete what is planned.

    `store` has the table's files, `plans` the plan and its marks. `now` and `sleep` count in seconds. A `rate` is that
    of all deletes of this process in the attempt; without one, each call finds its own.
    """

    @property
    def attempt(self) -> Attempt: ...

    @property
    def identifier(self) -> TableIdentifier: ...

    @property
    def store(self) -> ObjectStore: ...

    @property
    def plans(self) -> PlanStore: ...

    @property
    def settings(self) -> DeleteSettings: ...

    @property
    def now(self) -> Callable[[], float]: ...

    @property
    def sleep(self) -> Callable[[float], None]: ...

    @property
    def rate(self) -> AdaptiveRate | None: ...


class DeleteEngine(Protocol):
    """Deletes chunks of published plans."""

    @property
    def name(self) -> EngineChoice: ...

    def delete(self, ctx: Deleting, work: Sequence[Work], report: Callable[[Tally], None]) -> None:
        """Delete chunks with `delete_chunks` in any order; `report` the outcome of one or more at a time."""
        ...


def delete_in_this_process(ctx: Deleting, work: Sequence[Work], report: Callable[[Tally], None]) -> None:
    """Delete chunks with threads of this process."""
    deleter = Deleter(ctx.store, ctx.settings.delete, now=ctx.now, sleep=ctx.sleep, rate=ctx.rate)
    delete_here(ctx.plans, work, deleter, ctx.attempt.checkpoint, report)


class InlineDeletes:
    """DeleteEngine with threads of this process."""

    name: EngineChoice = "inline"
    delete = staticmethod(delete_in_this_process)
