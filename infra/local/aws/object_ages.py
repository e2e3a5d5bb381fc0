"""The ages of the objects in the stack's S3. A person makes them older, and sees within minutes what takes days.

Its clock stays the machine's, as all other parts have it: a removal of orphan files stops where the two differ.
"""

import json
import threading
from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from moto.s3.models import s3_backends

from delegation.timestamps import LONGEST_DURATION

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

PATH: Final = "/local/object-ages"
"""Where the ages are beside the services: POST {"seconds": n} makes what is there older, GET changes nothing."""
OLDER: Final = "older_seconds"
"""The member of the answer: by how much the oldest objects are older than they are."""
_LONGEST_BODY: Final = 1000


class ObjectAges:
    """By how much objects were made older; what is written later has its own age. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.older = timedelta(0)

    def add(self, by: timedelta) -> None:
        """Make all objects that are in moto now older; raises ValueError for no time, a negative or a very long one."""
        if not timedelta(0) < by <= LONGEST_DURATION - self.older:
            raise ValueError("objects get older by a positive time, ten years at most")
        with self._lock:
            self.older += by
            for one in _versions():
                one.last_modified -= by


def _versions() -> Iterable[Any]:
    """Return all versions of all objects, and the delete markers."""
    buckets = (one for backend in s3_backends.values() for part in backend.values() for one in part.buckets.values())
    return [version for bucket in buckets for _, versions in bucket.keys.iterlists() for version in versions]


class WithObjectAges:
    """Forwards requests, but those for PATH, which read or change the ages."""

    def __init__(self, app: "WSGIApplication", ages: ObjectAges) -> None:
        self._app = app
        self._ages = ages

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        if environ["PATH_INFO"] != PATH:
            return self._app(environ, start_response)
        status = "200 OK"
        if environ["REQUEST_METHOD"] == "POST":
            try:
                length = min(int(environ.get("CONTENT_LENGTH") or 0), _LONGEST_BODY)
                self._ages.add(timedelta(seconds=float(json.loads(environ["wsgi.input"].read(length))["seconds"])))
            except (ValueError, KeyError, TypeError, OverflowError):
                status = "400 Bad Request"
        body = json.dumps({OLDER: self._ages.older.total_seconds()}).encode()
        start_response(status, [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
        return [body]
