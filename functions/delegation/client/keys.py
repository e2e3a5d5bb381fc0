"""Idempotency keys for a catalog's client that sends none, such as pyiceberg 0.12 (Idempotency-Key proposal,
"Client-Side"). Needs neither pyiceberg nor requests: it sits between the given catalog's session and the session's
adapter."""

import json
import logging
import re
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from delegation.client.conversations import SameKeyPauses
from delegation.identifiers import encoded_query
from delegation.timestamps import parse_duration

logger = logging.getLogger("delegation.client")
KEY_HEADER: Final = "Idempotency-Key"
_SUPPORTED: Final = "idempotency-key-supported"
_LIFETIME: Final = "idempotency-key-lifetime"
_MUTATION: Final = re.compile(
    r"/(namespaces(/[^/]+(/(properties|register|register-view|tables|views)|/(tables|views)/[^/]+"
    r"|/tables/[^/]+/unregister)?)?"
    r"|(tables|views)/rename|transactions/commit)/?\Z"
)
"""The end of a mutation's path (Iceberg REST Catalog API, "paths")."""
_UNCLEAR: Final = frozenset({429, 500, 502, 503, 504})
_RUNNING: Final = "request_in_progress"
_PAUSES: Final = SameKeyPauses(first_seconds=0.5, longest_seconds=15.0)


class HttpAdapter(Protocol):
    """The part of requests' HTTPAdapter that a session calls."""

    def send(self, request: Any, *args: Any, **options: Any) -> Any:
        """Send a prepared request and return the response. Raises OSError without one."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class KeyedRequests:
    """An adapter that gives each mutation a key, and repeats it with its key after an unclear outcome. It repeats up to
    `attempts` times, and only while the catalog surely remembers the key: `window` from the first request on. Other
    requests are sent unchanged."""

    adapter: HttpAdapter
    window: timedelta
    attempts: int = 8
    pauses: SameKeyPauses = _PAUSES
    sleep: Callable[[float], None] = time.sleep
    monotonic: Callable[[], float] = time.monotonic
    new_key: Callable[[], str] = lambda: str(uuid.uuid4())

    def send(self, request: Any, *args: Any, **options: Any) -> Any:
        if not is_mutation(request.method, request.url):
            return self.adapter.send(request, *args, **options)
        request.headers.setdefault(KEY_HEADER, self.new_key())
        until = self.monotonic() + self.window.total_seconds()
        for attempt in range(1, self.attempts):
            lost: OSError | None = None
            try:
                response = self.adapter.send(request, *args, **options)
                if not _is_unclear(response):
                    return response
                wait = self.pauses.wait(attempt, _retry_after(response))
            except OSError as error:
                lost, wait = error, self.pauses.wait(attempt, None)
            if self.monotonic() + wait >= until:
                if lost is not None:
                    raise lost
                return response
            logger.warning(
                "the outcome of the %s request is unclear; it is sent again with its key in %g s", request.method, wait
            )
            if lost is None:
                response.close()
            self.sleep(wait)
        return self.adapter.send(request, *args, **options)

    def close(self) -> None:
        self.adapter.close()


def send_keys(catalog: Any, **options: Any) -> bool:
    """Make a pyiceberg RestCatalog send keys and repeat with them; return whether its server honors keys. Otherwise
    nothing changes, because a repeat could have a second effect (Idempotency-Key proposal, "Client behavior").
    `options` are those of KeyedRequests."""
    session = catalog._session  # noqa: SLF001 - pyiceberg has no public way to it
    base = f"{catalog.uri.rstrip('/')}/"
    warehouse = catalog.properties.get("warehouse")
    query = f"?{encoded_query([('warehouse', warehouse)])}" if warehouse else ""
    answer = session.get(f"{base}v1/config{query}")
    window = advertised(answer.content) if answer.status_code == 200 else None
    if window is None:
        return False
    session.mount(base, KeyedRequests(session.get_adapter(base), window, **options))
    return True


def advertised(config: bytes) -> timedelta | None:
    """Return how long keys are remembered by a `/v1/config` in either form, None if they are not honored."""
    try:
        document = json.loads(config)
        properties = document.get("properties") or {}
        proposed = properties.get(_LIFETIME) if properties.get(_SUPPORTED) == "true" else None
        text = proposed or (None if _SUPPORTED in properties else document.get(_LIFETIME))
        return None if text is None else parse_duration(text)
    except (ValueError, AttributeError, RecursionError, TypeError):
        return None


def is_mutation(method: str, url: str) -> bool:
    path = urlsplit(url).path
    return method in {"POST", "DELETE"} and "/v1/" in path and _MUTATION.search(path) is not None


def _is_unclear(response: Any) -> bool:
    if response.status_code != 409:
        return response.status_code in _UNCLEAR
    try:
        return bool(response.json()["error"]["type"] == _RUNNING)
    except (ValueError, KeyError, TypeError):
        return False


def _retry_after(response: Any) -> float | None:
    text = response.headers.get("Retry-After", "")
    return float(text) if text.isascii() and text.isdigit() else None
