"""For what a task waits: its lane, its place in the lane, and what keeps the next of the lane from starting."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from delegation.tasks.life.lanes import Caps, Lane, Running, blocking
from delegation.tasks.life.model import Task
from delegation.tasks.stores.admission import AdmissionStore, LaneRange, behind

MOST_COUNTED: Final = 1_000
"""Tasks of the lane that are counted before a task; behind more of them its place is not known."""


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """A waiting task: its lane in words, and its place there, 1 for the next that starts. `place` is None before the
    time of its next attempt, behind MOST_COUNTED others, and if nothing was read. `reasons` keep the next task of the
    lane from starting."""

    lane: str
    place: int | None = None
    reasons: tuple[str, ...] = ()


def waiting_of(store: AdmissionStore, task: Task, limits: Caps | None, now: datetime) -> QueuePlace | None:
    """Return what a task waits for, None if it needs no place; raises StoreUnavailable. Without `limits`, the caps of
    its deployment, the reasons are what runs."""
    if not task.is_queued or task.admission.lane is None:
        return None
    lane = Lane.parse(task.admission.lane)
    page = store.queued_in(
        now, each=MOST_COUNTED, lanes=1, span=LaneRange(task.admission.lane, behind(task.admission.lane))
    )
    ordered = sorted(page.found, key=lambda one: (one.since, one.task_id))
    place = next((number for number, one in enumerate(ordered, 1) if one.task_id == task.task_id), None)
    return QueuePlace(lane.words, place, _reasons(store.running(), lane, limits))


def _reasons(running: Sequence[Running], lane: Lane, limits: Caps | None) -> tuple[str, ...]:
    if limits is None:
        tenant = sum(one.lane.tenant == lane.tenant for one in running)
        bucket = sum(one.lane.bucket == lane.bucket for one in running)
        alike = sum(one.lane.task_type == lane.task_type for one in running)
        counts = f"{len(running)} in all, {tenant} of its tenant, {bucket} on its bucket, {alike} of its type"
        return (f"a place beside those that run: {counts} (DELEGATION_PROPERTIES names the caps)",)
    return blocking(lane, running, limits) or ("the next look of the dispatcher or of a worker, within a minute",)
