"""moto's server as a WSGI application that is correct under threads.

When requests overlap, moto loses acknowledged DynamoDB writes and starts two executions of one name; a lock for each of
the two prevents that. One lock for all requests would deadlock: a state machine's call of a Lambda is open while the
function makes calls itself.
"""

import os
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Self

from infra.local.processes.programs import LOOPBACK, ServerProcess, TetheredProcess, answers, free_port, import_path

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

_START_TIMEOUT_SECONDS = 60


class Serialised:
    """Forwards requests; those whose `X-Amz-Target` begins with one of `targets` run one at a time."""

    def __init__(self, app: "WSGIApplication", targets: Iterable[str]) -> None:
        self._app = app
        self._locks = {target: threading.Lock() for target in targets}

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        asked = environ.get("HTTP_X_AMZ_TARGET", "")
        for target, lock in self._locks.items():
            if asked.startswith(target):
                with lock:
                    # The body is built inside the lock, because moto answers lazily.
                    return list(self._app(environ, start_response))
        return self._app(environ, start_response)


def application() -> "WSGIApplication":
    """Return moto's server for every service that this project uses."""
    # Imported here because it takes a second, and only the process that serves needs it.
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app  # noqa: PLC0415

    from infra.local.aws.moto_shortcuts import take_shortcuts  # noqa: PLC0415

    take_shortcuts()
    return Serialised(
        DomainDispatcherApplication(create_backend_app), ["DynamoDB_20120810.", "AWSStepFunctions.StartExecution"]
    )


def serve(port: int) -> None:
    from werkzeug.serving import run_simple  # noqa: PLC0415

    # moto's in-memory tables need no credentials, but its code asks for some.
    os.environ.setdefault("AWS_ACCESS_KEY_ID", "local")
    os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "local")
    os.environ["MOTO_PORT"] = str(port)
    run_simple(LOOPBACK, port, application(), threaded=True)


class MotoProcess(ServerProcess):
    """moto in a process of its own, because it never frees memory; it runs `module` with a port as its argument."""

    def __init__(self, module: str = "infra.local.aws.moto_app", *, log: Path) -> None:
        super().__init__(log=log)
        self._module = module

    def start(self) -> Self:
        """Start on a free port and wait until it answers; raises `CannotStartError`."""
        self._port = free_port()
        command = [sys.executable, "-m", self._module, str(self._port)]
        process = TetheredProcess.start(command, env={**os.environ, "PYTHONPATH": import_path()}, log=self._log)
        process.wait_until(
            "moto", lambda: answers(self._port, path="/moto-api/"), timeout_seconds=_START_TIMEOUT_SECONDS
        )
        self._process = process
        return self


if __name__ == "__main__":
    serve(int(sys.argv[1]))
