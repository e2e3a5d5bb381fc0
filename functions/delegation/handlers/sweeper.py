"""The sweeper: every minute it ends lost attempts, dispatches due tasks, and measures how old the oldest are."""

from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from functools import cache
from typing import Any, Final

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext

from delegation.items import code_of, each_item
from delegation.metrics import (
    DISPATCHES_FAILED,
    DISPATCHES_UNANSWERED,
    PAUSED,
    SWEEP_ERRORS,
    TASKS_REDISPATCHED,
    TASKS_SWEPT,
    Metric,
    MetricLines,
)
from delegation.orchestration.sweep import COUNTED, Swept, ages, maintenance_age, sweep, unfinished
from delegation.tasks.life.transitions import DISPATCH_FAILED
from delegation.tasks.stores.admission import queued
from delegation.tasks.work.maintenance import ensure_submitted, maintenance_head
from delegation.tasks.work.worker import LeftAlone
from delegation.timestamps import utc_now
from delegation.wiring.deployment import DeployedTasks
from delegation.wiring.maintenance import store_maintenance, swept_tasks
from delegation.wiring.tasks import notification_queue

logger: Final = Logger()
_MARGIN: Final = timedelta(seconds=5)
"""Time kept for the tasks in progress and the maintenance; at most a quarter of the time left."""
_THREADS: Final = 10
"""Tasks reconciled at once, as many as a client has connections: each mostly waits for DynamoDB, SQS and EMR."""


_deployed: Final = cache(swept_tasks)
_left_alone: Final = LeftAlone()


def handler(_event: Mapping[str, Any], context: LambdaContext) -> dict[str, int]:
    """Sweep once; return how many due tasks were reconciled (`looked`) and how many of these failed."""
    deployed = _deployed()
    remaining = timedelta(milliseconds=context.get_remaining_time_in_millis())
    deadline = utc_now() + remaining - min(_MARGIN, remaining / 4)
    counts: Counter[Metric] = Counter({TASKS_SWEPT: 0})
    failed = 0
    swept_tasks = sweep(
        deployed.tasks,
        deployed.task_types,
        deadline=deadline,
        clock=utc_now,
        threads=_THREADS,
        left_alone=_left_alone,
    )
    for swept in swept_tasks:
        counts[TASKS_SWEPT] += 1
        failed += swept.error is not None or swept.set_aside or swept.unsettled
        counts.update(_report(swept))
    steps = (_wake, _send_owed, _ensure_maintenance, _measured, _maintenance_age, _pauses)
    measured: dict[Metric, float] = {}
    # After an error of one the next sweep tries it again.
    for outcome in each_item(
        steps,
        lambda step: step(deployed),
        name="sweeper.steps",
        clock=utc_now,
        shown=lambda step: step.__name__.strip("_"),
        in_a_row=None,
    ):
        measured |= outcome.result or {}
    MetricLines.of_environment().put({**counts, **measured}, action="sweep")
    return {"looked": counts[TASKS_SWEPT], "failed": failed}


def _measured(deployed: DeployedTasks) -> dict[Metric, float]:
    now = utc_now()
    return ages(queued(deployed.store, now, each=COUNTED), unfinished(deployed.tasks.reads, now, threads=_THREADS), now)


def _maintenance_age(deployed: DeployedTasks) -> Mapping[Metric, float]:
    return maintenance_age(maintenance_head(deployed.tasks, store_maintenance(deployed)), utc_now())


def _pauses(deployed: DeployedTasks) -> dict[Metric, float]:
    """Return whether anything is paused, 0 or 1, as this function last read it; an alarm shows a pause."""
    pauses = deployed.tasks.pauses.now().pauses
    for pause in pauses:
        logger.warning(pause.text, extra={"action": "pause"})
    return {PAUSED: 1 if pauses else 0}


def _wake(deployed: DeployedTasks) -> None:
    """Make the dispatcher admit tasks if any wait: earlier messages may be lost, and retries become due by time."""
    if next(queued(deployed.store, utc_now(), each=1), None) is not None:
        deployed.tasks.messages.wake()


def _send_owed(deployed: DeployedTasks) -> None:
    if notification_queue() is None:
        return
    from delegation.wiring.notifier import send_owed  # noqa: PLC0415

    sent = send_owed(deployed.store)
    if sent:
        logger.info("sent", extra={"action": "notify", "notifications": sent})


def _ensure_maintenance(deployed: DeployedTasks) -> None:
    if ensure_submitted(deployed.tasks, store_maintenance(deployed)):
        logger.info("submitted", extra={"action": "maintain"})


def _report(swept: Swept) -> Counter[Metric]:
    """Log the result for a due task, and return what it counts."""
    task = swept.after or swept.before
    fields = {"action": "sweep", "task_id": task.task_id if task else None}
    if swept.error is not None or swept.set_aside:
        if swept.error is not None:
            logger.warning("sweep failed", extra={**fields, "error_code": code_of(swept.error)})
        return Counter([SWEEP_ERRORS])
    if swept.unsettled:
        logger.warning("the job of a lost attempt could not be ended; the next sweep tries again", extra=fields)
        return Counter([SWEEP_ERRORS])
    if swept.before is None or swept.after is None or swept.after is swept.before:
        return Counter()
    counts = Counter([DISPATCHES_UNANSWERED] if swept.had_no_answer else [])
    if swept.after.error_code == DISPATCH_FAILED:
        logger.error("task cannot be dispatched", extra={**fields, "dispatch_count": swept.after.dispatches.count})
        return counts + Counter([DISPATCHES_FAILED])
    if swept.after.dispatches.count > swept.before.dispatches.count:
        counts[TASKS_REDISPATCHED] += 1
    logger.info("swept", extra={**fields, "status": swept.after.status, "dispatch": swept.after.dispatches.count})
    return counts
