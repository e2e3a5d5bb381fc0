"""Choosing the engine of an attempt at a purge, within the time that its process has for that."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from delegation.errors import RunHandedOver
from delegation.keeping.referencing import ReferencingTables
from delegation.operations.purge.choose import EngineEstimate, estimate
from delegation.operations.purge.context import PurgeContext
from delegation.references.errors import ReferencesNotKnown
from delegation.tasks.life.model import Task
from delegation.tasks.life.transitions import HANDED_OVER

PREPARE_FOR: Final = timedelta(seconds=30)
"""How long an attempt that no caller waits for makes a pass before it chooses the engine."""
_PAUSE: Final = timedelta(milliseconds=250)
_USED_OF_A_REQUEST: Final = 0.5
"""The part of a request's time that a purge in it is expected to take at most: stores and catalogs may be slow."""
_UNPLANNED_ATTEMPTS: Final = 2
"""Attempts that may be handed over without a plan, one of them within a request, before Spark makes it."""


def ensure_known(ctx: PurgeContext, references: ReferencingTables, hand_over_at: datetime | None) -> None:
    """Have the pass made that a purge needs; see Refresher.ensure.

    While a caller waits, so does this for another process's pass. Otherwise the attempt ends and leaves its place: also
    after PREPARE_FOR, because the function that prepares attempts has a minute. Raises RunHandedOver.
    """
    if hand_over_at is None:
        references.ensure_known(until=ctx.now() + PREPARE_FOR.total_seconds())
        return
    while True:
        try:
            references.ensure_known()
        except ReferencesNotKnown:
            if ctx.clock() + _PAUSE >= hand_over_at:
                raise
            ctx.sleep(_PAUSE.total_seconds())
            ctx.attempt.checkpoint()
        else:
            return


def chosen(ctx: PurgeContext, task: Task, hand_over_at: datetime | None) -> EngineEstimate:
    """Choose the engine by the counts in manifest lists; no manifest is read.

    At `hand_over_at` no further list is read. A plan that one process could not make in its time, twice, is made with
    Spark. Raises RunHandedOver if inline would take longer than half of the time until then.
    """
    if hand_over_at is None:
        found = estimate(ctx)
        again = task.error_code == HANDED_OVER and task.attempt_count > _UNPLANNED_ATTEMPTS
        return replace(found, engine=ctx.options.engine or "spark") if again and not found.planned else found
    within = (hand_over_at - ctx.clock()).total_seconds() * _USED_OF_A_REQUEST
    found = estimate(ctx, within=within)
    if found.engine == "inline" and found.seconds > within:
        raise RunHandedOver(
            task.task_id,
            f"{found.files} files or more take {found.seconds:.0f} s or more, and this request has {within:.0f} s "
            "for that; the purge continues in the background",
        )
    return found
