"""`delegation callbacks …`: list the events and callbacks that were not delivered, and send them again.

They use the task table with the operator's own AWS credentials; the sweeper and the notifier do the delivery.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

import typer

from delegation.cli.calls import Call, argument, command, defaulted, group, switch
from delegation.cli.connection import Connection
from delegation.cli.errors import CommandError, partly_done
from delegation.items import reason_of
from delegation.notifications.queue import dead_letters_of, resent
from delegation.tasks.life.notifications import Notification, NotificationState
from delegation.tasks.stores.notifications import NotificationStore, every
from delegation.timestamps import isoformat, utc_now
from delegation.wiring.tasks import notification_store
from polaris_common.errors import counted

app = group("callbacks")
_EVER: Final = timedelta(days=3650)
_MOST: Final = 10_000


@command(app, "list", "stack tasks_table")
def list_command(
    call: Call,
    *,
    everything: bool = switch("--all", "Also list notifications that are still being delivered."),
    limit: int = defaulted("--limit", "The number of entries to list.", 50, min=1, max=_MOST),
) -> None:
    """List undeliverable events and callbacks, the oldest first."""
    store = store_of(call.connection, call.tasks_table)
    states = (NotificationState.DEAD, NotificationState.OWED) if everything else (NotificationState.DEAD,)
    notifications = [
        notification for state in states for notification in every(store, state, utc_now() + _EVER, limit=limit)
    ][:limit]
    call.output.result({"notifications": [document_of(notification) for notification in notifications]})
    for notification in notifications:
        call.output.say(text_of(notification))
    if not notifications:
        call.output.say(
            "There are no notifications to deliver, and no dead letters."
            if everything
            else "There are no dead letters."
        )


@command(app, "resend", "yes stack tasks_table")
def resend_command(
    call: Call,
    task_id: str | None = argument("[TASK_ID]", "The task whose dead letters are sent again.", default=None),
    *,
    everything: bool = switch("--all", "Send the dead letters of all tasks."),
) -> None:
    """Send dead letters again at the next sweep, with the same Idempotency-Key and as many attempts as at first."""
    if (task_id is None) != everything:
        raise typer.BadParameter("name one task, or give --all")
    store = store_of(call.connection, call.tasks_table)
    letters = dead_letters(store, task_id)
    if not letters:
        raise CommandError(
            f"task {task_id} has no dead letter" if task_id else "no task has a dead letter",
            "`delegation callbacks list --all` also lists notifications that are still being delivered.",
            code="NOTHING_TO_RESEND",
        )
    if everything:
        call.confirm(f"Send {counted(len(letters), 'dead letter')} again?")
    tried = resent(store, letters, utc_now())
    sent = [attempt.item for attempt in tried if attempt.result]
    failed = {name_of(attempt.item): reason_of(attempt.error) for attempt in tried if attempt.error is not None}
    call.output.result({"resent": [document_of(notification) for notification in sent]})
    for notification in sent:
        call.output.say(f"{name_of(notification)} will be sent within a minute")
    if failed:
        raise partly_done(failed, counted(len(letters), "dead letter"), "sent again")


def dead_letters(store: NotificationStore, task_id: str | None) -> Sequence[Notification]:
    """Return the dead letters of a task, or of all tasks up to a bound; repeat the command for more."""
    if task_id is None:
        return store.notifications(NotificationState.DEAD, utc_now() + _EVER, limit=_MOST)
    return dead_letters_of(store, task_id)


def store_of(connection: Connection, table: str | None) -> NotificationStore:
    return notification_store(connection.task_store(table))


def document_of(notification: Notification) -> dict[str, Any]:
    return {
        "notification_id": notification.notification_id,
        "task_id": notification.task_id,
        "version": notification.version,
        "channel": notification.channel,
        "state": notification.state.value,
        "attempts": notification.attempts,
        "ended_ts": isoformat(notification.created_ts),
        "due_at": isoformat(notification.due_at),
        "last_error": notification.last_error,
    }


def name_of(notification: Notification) -> str:
    return f"{notification.channel} of task {notification.task_id}, version {notification.version}"


def text_of(notification: Notification) -> str:
    """Return a notification for people: three lines that fit on 80 columns unless the reason is long."""
    times = "once" if notification.attempts == 1 else f"{notification.attempts} times"
    lines = [
        f"{notification.state.value}  {notification.channel}, tried {times}",
        f"  {notification.created_ts:%Y-%m-%d %H:%M:%SZ} task {notification.task_id}, version {notification.version}",
    ]
    return "\n".join([*lines, f"  {notification.last_error}"] if notification.last_error else lines)
