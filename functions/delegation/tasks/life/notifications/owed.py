"""What the end of a task announces: an event, and the callbacks that its requests picked; pure functions, no I/O.

A task names its channels when it is submitted, so every process that ends it announces the same, whatever its settings.
"""

import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from delegation.tasks.life.model import Status, Task
from delegation.tasks.life.notifications.policy import NotificationPolicy, is_callback
from delegation.timestamps import isoformat

TASK_ENDED: Final = "TASK_ENDED"
SEND_AGAIN_AFTER: Final = timedelta(seconds=60)
"""When the sweeper sends a notification whose first message is not known to have arrived."""
_LONGEST_ERROR: Final = 300
_NEVER_TRIED: Final = "its receiver failed whenever it was tried with other notifications"


class NotificationState(StrEnum):
    """Whether a notification is still to be delivered, or was tried as often as the policy allows (a dead letter)."""

    OWED = "owed"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class Notification:
    """One notification of one end of a task on one channel; it is deleted when it was delivered.

    `notification_id` is the same in every process that computes it, and is the Idempotency-Key of every delivery.
    `body` is JSON text, the same bytes at every delivery. `attempts` counts the deliveries that were begun, `due_at` is
    when the next is sent, `revision` grows with every change. `parked`: its receiver was set apart (`receivers`), so it
    is found among those of its channel only. `since_ts`: when it was sent again by command.
    """

    notification_id: str
    task_id: str
    version: int
    channel: str
    body: str = field(repr=False)
    created_ts: datetime
    due_at: datetime
    state: NotificationState = NotificationState.OWED
    attempts: int = 0
    last_error: str | None = None
    revision: int = 1
    parked: bool = False
    since_ts: datetime | None = None

    @property
    def owed_since(self) -> datetime:
        """When it became owed, or was sent again by command last."""
        return self.since_ts or self.created_ts

    @property
    def is_dead(self) -> bool:
        """Whether nothing delivers it until it is sent again by command."""
        return self.state is NotificationState.DEAD


def owed_by(rows: Iterable[Task]) -> tuple[Notification, ...]:
    """Return what new versions of a task announce: each SUCCESS and FAILURE one notification for each channel."""
    return tuple(_notification(row, channel) for row in rows if row.is_terminal for channel in row.notify)


def joined(task: Task, channels: Iterable[str]) -> tuple[Task, tuple[Notification, ...]]:
    """Return the task with the channels of a request that attached to it, and their notifications if it has ended.

    The task is the same if it has them already. The event of an end was owed when it ended.
    """
    if task.is_terminal:
        return task, tuple(_notification(task, channel) for channel in channels if is_callback(channel))
    more = tuple(channel for channel in channels if channel not in task.notify)
    return (task.evolve(notify=(*task.notify, *more)) if more else task), ()


def begun(owed: Notification, now: datetime, policy: NotificationPolicy) -> Notification:
    """Count a delivery that is about to begin; it is repeated if it has no outcome by `due_at`.

    The one after the last that the policy allows is a dead letter instead: its process ended without an outcome.
    """
    if owed.attempts >= policy.max_attempts:
        return _dead(owed, now)
    return _changed(owed, attempts=owed.attempts + 1, due_at=now + policy.wait_after(owed.attempts + 1))


def failed(
    owed: Notification, error: str, now: datetime, policy: NotificationPolicy, *, apart: bool = False
) -> Notification:
    """Record why a delivery failed: it is repeated at `due_at`, or is a dead letter after the last.

    `apart`: its receiver is set apart now.
    """
    reason = error if len(error) <= _LONGEST_ERROR else error[: _LONGEST_ERROR - 1] + "…"
    if owed.attempts >= policy.max_attempts:
        return _dead(owed, now, last_error=reason)
    return _changed(owed, last_error=reason, parked=apart)


def parked(owed: Notification, due_at: datetime, now: datetime, policy: NotificationPolicy) -> Notification:
    """Put a notification with the others of its receiver, which is set apart; no delivery was begun.

    After the time that all deliveries together would have taken it is a dead letter, for a receiver that fails is tried
    with few of them.
    """
    if is_aged(owed, now, policy):
        return _dead(owed, now, last_error=owed.last_error or _NEVER_TRIED)
    return _changed(owed, parked=True, due_at=max(due_at, now))


def is_aged(owed: Notification, now: datetime, policy: NotificationPolicy) -> bool:
    """Return whether a notification has been owed for longer than all deliveries together would have taken."""
    return now - owed.owed_since >= policy.lasts


def sent_again(owed: Notification, now: datetime) -> Notification:
    """Move the time at which the sweeper sends it, because it is about to be sent."""
    return _changed(owed, due_at=now + SEND_AGAIN_AFTER)


def revived(owed: Notification, now: datetime) -> Notification:
    """Let a dead letter be delivered again, with a fresh number of attempts; the last error stays."""
    return _changed(owed, state=NotificationState.OWED, attempts=0, due_at=now, since_ts=now)


def notification_id(task: Task, channel: str) -> str:
    """Return the id of a notification of this version: two lives of a removed task differ by their creation."""
    name = f"{task.task_id}:{isoformat(task.created_ts)}:{task.version}:{channel}"
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"polaris-delegation:notification:{name}"))


def _dead(owed: Notification, now: datetime, **changes: Any) -> Notification:
    return _changed(owed, state=NotificationState.DEAD, due_at=now, parked=False, **changes)


def _changed(owed: Notification, **changes: Any) -> Notification:
    """Take the tag from an object that was written over the listed one, in case that it has it."""
    return replace(owed, revision=owed.revision + 1, **changes)


def _notification(task: Task, channel: str) -> Notification:
    key = notification_id(task, channel)
    return Notification(
        notification_id=key,
        task_id=task.task_id,
        version=task.version,
        channel=channel,
        body=json.dumps(_document(task, channel, key), ensure_ascii=False, separators=(",", ":")),
        created_ts=task.last_status_change_ts,
        due_at=task.last_status_change_ts + SEND_AGAIN_AFTER,
    )


def _document(task: Task, channel: str, key: str) -> dict[str, Any]:
    about = _about(task.task_payload)
    document = {
        "notification_id": key,
        "type": TASK_ENDED,
        "channel": channel,
        "task_id": task.task_id,
        "version": task.version,
        "task_type": task.task_type,
        "status": task.status.value,
        "error_code": task.error_code if task.status is Status.FAILURE else None,
        "result_summary": task.result_summary,
        "partly_deleted": task.is_left_partly_done or None,
        "created_ts": isoformat(task.created_ts),
        "ended_ts": isoformat(task.last_status_change_ts),
        **about,
    }
    return {name: value for name, value in document.items() if value is not None}


def _about(payload: str) -> dict[str, Any]:
    """Return the table and the correlation id of a payload (Delegation Service proposal, Persistence), if it has any.

    A receiver finds its own work by them; a payload of another form has none.
    """
    try:
        document = json.loads(payload)
    except ValueError:
        return {}
    common = document.get("common_payload") if isinstance(document, Mapping) else None
    parameters = document.get("operation_parameters") if isinstance(document, Mapping) else None
    return {
        "polaris_correlation_id": common.get("polaris_correlation_id") if isinstance(common, Mapping) else None,
        "table_identity": parameters.get("table_identity") if isinstance(parameters, Mapping) else None,
    }
