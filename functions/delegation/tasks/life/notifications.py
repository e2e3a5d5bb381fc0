"""What a task's end announces, to whom, and when a receiver is set apart. Pure functions. A task names its channels at
submission, so every process that ends it announces the same. A circuit breaker with a bulkhead keeps a hanging receiver
from delaying others: its notifications go one at a time, after growing pauses while it fails, until it has accepted
several in a row quickly."""

import json
import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, Self
from urllib.parse import urlsplit

from delegation.tasks.life.model import Status, Task
from delegation.timestamps import isoformat, parse_duration
from polaris_common.backoff import exponential

PREFIX: Final = "delegation.notifications."
EVENT: Final = "event"
"""The channel of the event on EventBridge."""
_CALLBACK: Final = "callback:"
_URL_OF: Final = "callback."
_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,31}", re.ASCII)
_NUMBER: Final = re.compile(r"[1-9]\d{0,3}", re.ASCII)
_LONGEST_URL: Final = 2048
_SWITCHES: Final = {"events": "events", "private-addresses": "private_addresses"}
_DURATIONS: Final = {"initial-backoff-duration": "initial_backoff", "max-backoff-duration": "max_backoff"}
_LEAST_WAIT: Final = timedelta(seconds=60)
"""Longer than a delivery may take, so that deliveries do not overlap."""
Refuse = Callable[[str, str], Exception]


def callback_channel(name: str) -> str:
    return _CALLBACK + name


def is_callback(channel: str) -> bool:
    return channel.startswith(_CALLBACK)


def callback_name(channel: str) -> str:
    return channel.removeprefix(_CALLBACK)


@dataclass(frozen=True, slots=True)
class NotificationPolicy:
    """What ends of tasks announce; nothing by default. `events`: an EventBridge event for each end; `callbacks`: URLs
    that a request may pick, by name; `private_addresses`: whether their hosts may have private addresses. A failed
    delivery is repeated after pauses that double from `initial_backoff` to `max_backoff`; `max_attempts` counts all
    deliveries."""

    events: bool = False
    callbacks: Mapping[str, str] = field(default_factory=dict, repr=False)
    private_addresses: bool = False
    max_attempts: int = 30
    initial_backoff: timedelta = timedelta(seconds=60)
    max_backoff: timedelta = timedelta(hours=1)

    @property
    def is_on(self) -> bool:
        """Whether an end of a task may announce anything."""
        return self.events or bool(self.callbacks)

    @property
    def every_channel(self) -> tuple[str, ...]:
        return (*((EVENT,) if self.events else ()), *map(callback_channel, sorted(self.callbacks)))

    def wait_after(self, attempt: int) -> timedelta:
        """Return how long after the start of delivery `attempt` (from 1) the next one is due if it failed."""
        first, longest = self.initial_backoff.total_seconds(), self.max_backoff.total_seconds()
        return max(timedelta(seconds=exponential(attempt, first, longest)), _LEAST_WAIT)

    @property
    def lasts(self) -> timedelta:
        """How long delivery of a notification is tried if every attempt fails."""
        return sum((self.wait_after(attempt) for attempt in range(1, self.max_attempts + 1)), timedelta(0))

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], refuse: Refuse) -> Self:
        """Return the policy of these properties. Raises what `refuse` returns for a name and a reason."""
        fields: dict[str, Any] = {}
        callbacks: dict[str, str] = {}
        for full, value in properties.items():
            name = full.removeprefix(PREFIX)
            if name in _SWITCHES:
                fields[_SWITCHES[name]] = _switch(full, value, refuse)
            elif name in _DURATIONS:
                fields[_DURATIONS[name]] = _duration(full, value, refuse)
            elif name == "max-attempts":
                if not _NUMBER.fullmatch(value):
                    raise refuse(full, f"{value!r} is not a positive whole number up to 9999")
                fields["max_attempts"] = int(value)
            elif name.startswith(_URL_OF):
                callback = name.removeprefix(_URL_OF)
                callbacks[_named(full, callback, refuse)] = _url(full, value, refuse)
            else:
                raise refuse(full, "is not a property of this service")
        policy = cls(**fields, callbacks=callbacks)
        if policy.max_backoff < policy.initial_backoff:
            raise refuse(f"{PREFIX}max-backoff-duration", "is shorter than the initial backoff")
        return policy


def _switch(name: str, value: str, refuse: Refuse) -> bool:
    if value not in {"true", "false"}:
        raise refuse(name, f"{value!r} is neither true nor false")
    return value == "true"


def _duration(name: str, value: str, refuse: Refuse) -> timedelta:
    try:
        return parse_duration(value)
    except ValueError as error:
        raise refuse(name, str(error)) from error


def _named(full: str, name: str, refuse: Refuse) -> str:
    if not _NAME.fullmatch(name):
        raise refuse(
            full, "a callback's name must start with a letter and have 1 to 32 lower-case letters, digits and hyphens"
        )
    return name


def _url(name: str, value: str, refuse: Refuse) -> str:
    """Return a URL that can be called. Messages do not quote it: its path or query may hold a secret."""
    try:
        parts = urlsplit(value)
        has_place = parts.scheme == "https" and bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise refuse(name, "is not a URL") from None
    if not has_place:
        raise refuse(name, "must be an https URL with a host")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise refuse(name, "must have neither a user name nor a fragment")
    if len(value) > _LONGEST_URL or not value.isascii() or not value.isprintable() or " " in value:
        raise refuse(name, f"must have at most {_LONGEST_URL} characters, all printable ASCII and no blanks")
    return value


TASK_ENDED: Final = "TASK_ENDED"
SEND_AGAIN_AFTER: Final = timedelta(seconds=60)
"""When the sweeper sends a notification again whose first message may not have arrived."""
_LONGEST_ERROR: Final = 300
_NEVER_TRIED: Final = "never sent, because its receiver failed for other notifications"


class NotificationState(StrEnum):
    """Whether a notification is still to be delivered or is a dead letter, tried as often as the policy allows."""

    OWED = "owed"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class Notification:
    """A notification of one end of a task on one channel; deleted once delivered. `notification_id` is the same in
    every process, and is the Idempotency-Key of every delivery. `body` is JSON text, the same bytes each time.
    `attempts` counts deliveries started, `due_at` is the next, `revision` grows with every change. `parked`: its
    receiver is set apart, so only its channel's list has it. `since_ts`: when a command last sent it again."""

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
        """When it became due for delivery, or when a command last sent it again."""
        return self.since_ts or self.created_ts

    @property
    def is_dead(self) -> bool:
        """Whether nothing delivers it until a command sends it again."""
        return self.state is NotificationState.DEAD

    @property
    def parked_with(self) -> str | None:
        """The channel in whose list it is found, None if it is not parked."""
        return self.channel if self.parked else None


def owed_by(rows: Iterable[Task]) -> tuple[Notification, ...]:
    """Return what new versions of a task announce: for each SUCCESS or FAILURE one notification per channel."""
    return tuple(_notification(row, channel) for row in rows if row.is_terminal for channel in row.notify)


def joined(task: Task, channels: Iterable[str]) -> tuple[Task, tuple[Notification, ...]]:
    """Return the task with the channels of a request that attached to it, and their notifications if it has ended. The
    task is unchanged if it has them. The event of an end is never added later."""
    if task.is_terminal:
        return task, tuple(_notification(task, channel) for channel in channels if is_callback(channel))
    more = tuple(channel for channel in channels if channel not in task.notify)
    return (task.evolve(notify=(*task.notify, *more)) if more else task), ()


def begun(owed: Notification, now: datetime, policy: NotificationPolicy) -> Notification:
    """Count a delivery that is about to start; it is repeated if it has no outcome by `due_at`. After the last one that
    the policy allows it is a dead letter: its process ended without an outcome."""
    if owed.attempts >= policy.max_attempts:
        return _dead(owed, now)
    return _changed(owed, attempts=owed.attempts + 1, due_at=now + policy.wait_after(owed.attempts + 1))


def failed(
    owed: Notification, error: str, now: datetime, policy: NotificationPolicy, *, apart: bool = False
) -> Notification:
    """Record why a delivery failed: it is repeated at `due_at`, or is a dead letter after the last. `apart`: its
    receiver is set apart."""
    reason = error if len(error) <= _LONGEST_ERROR else error[: _LONGEST_ERROR - 1] + "…"
    if owed.attempts >= policy.max_attempts:
        return _dead(owed, now, last_error=reason)
    return _changed(owed, last_error=reason, parked=apart)


def parked(owed: Notification, due_at: datetime, now: datetime, policy: NotificationPolicy) -> Notification:
    """Park a notification with the others of its receiver, which is set apart, without a delivery. It is a dead letter
    after the time of all deliveries together, because a failing receiver gets few of them."""
    if is_aged(owed, now, policy):
        return _dead(owed, now, last_error=owed.last_error or _NEVER_TRIED)
    return _changed(owed, parked=True, due_at=max(due_at, now))


def is_aged(owed: Notification, now: datetime, policy: NotificationPolicy) -> bool:
    """Return whether a notification is older than all its deliveries together would take."""
    return now - owed.owed_since >= policy.lasts


def sent_again(owed: Notification, now: datetime) -> Notification:
    """Move the time at which the sweeper sends it, because it is about to be sent."""
    return _changed(owed, due_at=now + SEND_AGAIN_AFTER)


def revived(owed: Notification, now: datetime) -> Notification:
    """Let a dead letter be delivered again, with a fresh number of attempts; the last error stays."""
    return _changed(owed, state=NotificationState.OWED, attempts=0, due_at=now, since_ts=now)


def notification_id(task: Task, channel: str) -> str:
    """Return the id of a notification of this version. A task that is removed and created again has other ids."""
    name = f"{task.task_id}:{isoformat(task.created_ts)}:{task.version}:{channel}"
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"polaris-delegation:notification:{name}"))


def _dead(owed: Notification, now: datetime, **changes: Any) -> Notification:
    return _changed(owed, state=NotificationState.DEAD, due_at=now, parked=False, **changes)


def _changed(owed: Notification, **changes: Any) -> Notification:
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
    """Return a payload's table and correlation id (Delegation Service proposal, Persistence), if any: receivers
    identify their own work by them."""
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


SLOW: Final = timedelta(milliseconds=500)
"""A delivery that takes longer is a strike, accepted or not."""
BLOCKING: Final = timedelta(seconds=2)
"""A delivery that takes longer sets its receiver apart at once."""
STRIKES: Final = 3
"""Strikes in a row that set a receiver apart."""
PROOF: Final = 3
"""Quick acceptances in a row that bring it back; twice as many after each relapse."""
_MOST_DOUBLINGS: Final = 6
PROBE: Final = timedelta(seconds=30)
"""How long one delivery has a failing receiver to itself; longer than a delivery takes."""
FIRST_PAUSE: Final = timedelta(seconds=30)
LONGEST_PAUSE: Final = timedelta(minutes=15)
FORGOTTEN_AFTER: Final = timedelta(hours=24)
"""A receiver whose record has not changed for this long starts afresh."""


@dataclass(frozen=True, slots=True)
class Receiver:
    """The results of the last deliveries to a receiver; no record means no strikes. `strikes` counts failed or slow
    deliveries in a row, `failures` failed ones, `quick` quick acceptances in a row since it was set apart for the
    `times_apart`th time. Until `not_before` no delivery to one set apart starts. `revision` grows with every change."""

    channel: str
    changed_ts: datetime
    not_before: datetime
    strikes: int = 0
    failures: int = 0
    quick: int = 0
    times_apart: int = 0
    apart: bool = False
    revision: int = 1

    @property
    def is_failing(self) -> bool:
        """Whether it is set apart and its last delivery failed: one delivery at a time tries it."""
        return self.apart and self.failures > 0


def after_failure(before: Receiver | None, channel: str, took: timedelta, now: datetime) -> Receiver:
    known = _known(before, channel, now)
    failures = known.failures + 1
    after = _struck(replace(known, failures=failures, quick=0), took, now)
    if not after.apart:
        return after
    tried = failures if known.apart else 1
    pause = exponential(tried, FIRST_PAUSE.total_seconds(), LONGEST_PAUSE.total_seconds())
    return replace(after, failures=tried, not_before=now + timedelta(seconds=pause))


def after_acceptance(before: Receiver | None, channel: str, took: timedelta, now: datetime) -> Receiver | None:
    """Return the record of a receiver after a delivery that it accepted; `before` if nothing changed."""
    if took > SLOW:
        return _struck(replace(_known(before, channel, now), failures=0, quick=0, not_before=now), took, now)
    if before is None or not (before.apart or before.strikes):
        return before
    quick = before.quick + 1
    still_apart = before.apart and quick < proof(before)
    return _with_pace(
        replace(before, strikes=0, failures=0, quick=quick if still_apart else 0, apart=still_apart, not_before=now),
        now,
    )


def claimed(receiver: Receiver, now: datetime) -> Receiver | None:
    """Return the record with which a delivery to a receiver set apart may start, None while none may. The same record
    allows any number of deliveries; a changed one must be stored first, by one process only."""
    if now < receiver.not_before:
        return None
    return _with_pace(replace(receiver, not_before=now + PROBE), now) if receiver.is_failing else receiver


def proof(receiver: Receiver) -> int:
    """Return how many quick acceptances in a row bring back a receiver that is set apart."""
    return PROOF << min(receiver.times_apart - 1, _MOST_DOUBLINGS)


def _known(before: Receiver | None, channel: str, now: datetime) -> Receiver:
    return Receiver(channel, now, now, revision=0) if before is None else before


def _struck(receiver: Receiver, took: timedelta, now: datetime) -> Receiver:
    strikes = STRIKES if took > BLOCKING else min(receiver.strikes + 1, STRIKES)
    apart = receiver.apart or strikes >= STRIKES
    former = 0 if now - receiver.changed_ts >= FORGOTTEN_AFTER else receiver.times_apart
    times = receiver.times_apart if receiver.apart else former + apart
    return _with_pace(replace(receiver, strikes=strikes, apart=apart, times_apart=times), now)


def _with_pace(receiver: Receiver, now: datetime) -> Receiver:
    return replace(receiver, changed_ts=now, revision=receiver.revision + 1)
