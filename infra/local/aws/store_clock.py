"""The clock of the stack's S3. It can be moved ahead, so that a person sees within minutes what takes days.

moto takes an object's LastModified from a function of its module, and leaves the `Date` of its answers to the server.
Both come from this clock. All other parts of the stack have the machine's time.
"""

import json
import threading
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from moto.s3 import models

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

PATH: Final = "/local/store-clock"
"""Where the clock is beside the services: GET has how far it is ahead, POST {"seconds": n} moves it by n > 0 first."""
AHEAD: Final = "ahead_seconds"
"""The member of the answer."""
_LONGEST_BODY: Final = 1000
# Untyped, because the code replaces a function that moto's module imports.
_MODELS: Any = models
_NOW: Final = "utcnow"


class StoreClock:
    """The machine's time and how far the store's is ahead of it; it only moves forward. Thread-safe."""

    def __init__(self, machine: Callable[[], float] = time.time) -> None:
        """Begin at the machine's time, `machine` in seconds since 1970."""
        self._machine = machine
        self._lock = threading.Lock()
        self._ahead = 0.0

    @property
    def ahead(self) -> timedelta:
        """How far the store's clock is ahead of the machine's."""
        return timedelta(seconds=self._ahead)

    def advance(self, by: timedelta) -> None:
        """Move it ahead; raises ValueError for no time or a negative one."""
        if by <= timedelta(0):
            raise ValueError("the store's clock only moves forward")
        with self._lock:
            self._ahead += by.total_seconds()

    def seconds(self) -> float:
        """Return the store's time in seconds since 1970."""
        return self._machine() + self._ahead

    def apply_to_moto(self) -> Callable[[], None]:
        """Have moto, in this process, write LastModified by this clock; return a function that undoes it."""
        original = getattr(models, _NOW)
        setattr(_MODELS, _NOW, self._utcnow)
        return lambda: setattr(_MODELS, _NOW, original)

    def _utcnow(self) -> datetime:
        return datetime.fromtimestamp(self.seconds(), UTC).replace(tzinfo=None)


class MovableClock:
    """Forwards requests, but those for PATH, which read or move a store's clock."""

    def __init__(self, app: "WSGIApplication", clock: StoreClock) -> None:
        self._app = app
        self._clock = clock

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        if environ["PATH_INFO"] != PATH:
            return self._app(environ, start_response)
        status = "200 OK"
        if environ["REQUEST_METHOD"] == "POST":
            try:
                length = min(int(environ.get("CONTENT_LENGTH") or 0), _LONGEST_BODY)
                self._clock.advance(timedelta(seconds=float(json.loads(environ["wsgi.input"].read(length))["seconds"])))
            except (ValueError, KeyError, TypeError, OverflowError):
                status = "400 Bad Request"
        body = json.dumps({AHEAD: self._clock.ahead.total_seconds()}).encode()
        start_response(status, [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
        return [body]
