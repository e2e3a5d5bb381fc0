"""Who is notified of the end of a task, and how often that is tried: `delegation.notifications.*`."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Self
from urllib.parse import urlsplit

from delegation.timestamps import parse_duration
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
"""Longer than a delivery may take, so that the next one does not begin beside it."""
Refuse = Callable[[str, str], Exception]


def callback_channel(name: str) -> str:
    return _CALLBACK + name


def is_callback(channel: str) -> bool:
    return channel.startswith(_CALLBACK)


def callback_name(channel: str) -> str:
    return channel.removeprefix(_CALLBACK)


@dataclass(frozen=True, slots=True)
class NotificationPolicy:
    """What ends of tasks announce by default: nothing.

    `events`: an event on EventBridge for each end; `callbacks`: the URLs that a request may pick, by name;
    `private_addresses`: whether their hosts may have addresses that are not public. A delivery that fails is repeated
    after pauses that double from `initial_backoff` up to `max_backoff`, `max_attempts` in all.
    """

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
        """Return how long after the beginning of delivery `attempt` (from 1) the next one is due, if it failed."""
        first, longest = self.initial_backoff.total_seconds(), self.max_backoff.total_seconds()
        return max(timedelta(seconds=exponential(attempt, first, longest)), _LEAST_WAIT)

    @property
    def lasts(self) -> timedelta:
        """How long a notification is tried when each delivery fails."""
        return sum((self.wait_after(attempt) for attempt in range(1, self.max_attempts + 1)), timedelta(0))

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], refuse: Refuse) -> Self:
        """Return the policy of these properties; raises what `refuse` makes of a name and a reason."""
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
            raise refuse(f"{PREFIX}max-backoff-duration", "is below the initial backoff")
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
        raise refuse(full, "a callback's name must be 1 to 32 lower-case letters, digits and hyphens, a letter first")
    return name


def _url(name: str, value: str, refuse: Refuse) -> str:
    """Return a URL that can be called; no message quotes it, because its path or query may hold a secret."""
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
        raise refuse(name, f"must be at most {_LONGEST_URL} printable ASCII characters, without blanks")
    return value
