"""The object store of a run: moto's server in a process of its own, which also takes many objects in one request.

`python -m tests.chaos.store PORT`. Writing thousands of files one by one would take longer than a short run.
"""

import base64
import json
import os
import sys
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import httpx
from werkzeug.wrappers import Request, Response

from infra.local.aws.moto_app import MotoProcess, application
from infra.local.aws.server import ACCOUNT
from infra.local.errors import CannotStartError
from infra.local.processes.programs import WsgiServer

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

_OBJECTS: Final = "/chaos/objects"


class ChaosStore(MotoProcess):
    """The process, and the client of what it has besides S3 and STS."""

    def __init__(self, *, log: Path) -> None:
        super().__init__("tests.chaos.store", log=log)

    def put(self, bucket: str, objects: Mapping[str, bytes]) -> None:
        """Write objects by key; raises `CannotStartError` if the store does not take them."""
        texts = {key: base64.b64encode(data).decode() for key, data in objects.items()}
        answer = httpx.post(f"{self.url}{_OBJECTS}", json={"bucket": bucket, "objects": texts}, timeout=60)
        if answer.status_code != 200:
            raise CannotStartError(
                "the object store", f"{answer.status_code} to {len(objects)} objects; see {self._log}"
            )


class _Loading:
    """moto's application, before which requests for `_OBJECTS` are answered."""

    def __init__(self, app: "WSGIApplication") -> None:
        self._app = app

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        if environ["PATH_INFO"] != _OBJECTS:
            return self._app(environ, start_response)
        from moto.s3.models import s3_backends

        document = json.loads(Request(environ).get_data())
        for key, text in document["objects"].items():
            s3_backends[ACCOUNT]["aws"].put_object(document["bucket"], key, base64.b64decode(text))
        return Response("", 200)(environ, start_response)


def serve(port: int) -> None:
    """Serve on the loopback interface until the process ends."""
    os.environ.setdefault("AWS_ACCESS_KEY_ID", "local")
    os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "local")
    os.environ["MOTO_PORT"] = str(port)
    WsgiServer(_Loading(application()), port=port).start()
    threading.Event().wait()


if __name__ == "__main__":
    serve(int(sys.argv[1]))
