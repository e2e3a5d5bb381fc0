"""AWS for one machine: moto's server in this process, with executed state machines and Lambda run by `LambdaPool`.

A process can run only one: moto keeps its state in module globals, and Step Functions calls the port in MOTO_PORT.
"""

import json
import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import urlsplit

import boto3
from moto.awslambda_simple.models import LambdaSimpleBackend
from moto.core.config import default_user_config
from moto.core.exceptions import JsonRESTError
from moto.moto_server.werkzeug_app import MotoRequestHandler
from moto.s3.models import s3_backends
from moto.stepfunctions.parser.asl.component.state.wait.wait_function.timestamp import Timestamp
from werkzeug.serving import make_server
from werkzeug.wrappers import Request, Response

from delegation.timestamps import LONGEST_DURATION
from infra.local.aws.moto_app import application
from infra.local.errors import CannotStartError, LocalStackError
from infra.local.lambdas.functions import (
    FunctionUnknownError,
    LambdaPool,
    PayloadTooLargeError,
    TooManyRequestsError,
)
from infra.local.processes.programs import LOOPBACK, LoopbackServer

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment


# Untyped, because the code assigns a private attribute of moto's class.
_STATE: Any = Timestamp
_NAME = "_from_timestamp_string"
_ALMOST_A_SECOND = timedelta(seconds=1, microseconds=-1)


def as_local_time(moment: datetime) -> datetime:
    """Convert a naive UTC time to the naive local time that moto expects, so that whole seconds are rounded up."""
    return moment.replace(tzinfo=UTC).astimezone().replace(tzinfo=None) + _ALMOST_A_SECOND


def correct_wait_times() -> Callable[[], None]:
    """Have moto wait as AWS does; return a function that undoes it."""
    original = vars(Timestamp)[_NAME]
    parse = original.__func__

    def moment(timestamp: str) -> datetime | None:
        parsed = parse(timestamp)
        return None if parsed is None else as_local_time(parsed)

    setattr(_STATE, _NAME, staticmethod(moment))
    return lambda: setattr(_STATE, _NAME, original)


PATH: Final = "/local/object-ages"
"""Where the ages are beside the services: POST {"seconds": n} makes what is there older, GET changes nothing."""
OLDER: Final = "older_seconds"
"""The member of the answer: by how much the oldest objects are older than they are."""


class ObjectAges:
    """By how much objects were made older; what is written later has its own age. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.older = timedelta(0)

    def add(self, by: timedelta) -> None:
        """Make all objects that are in moto now older; raises ValueError for no time, a negative or a very long one."""
        if not timedelta(0) < by <= LONGEST_DURATION - self.older:
            raise ValueError("the age to add must be positive, and at most ten years")
        with self._lock:
            self.older += by
            for version in _versions():
                version.last_modified -= by


def _versions() -> Iterable[Any]:
    buckets = (
        key_object
        for backend in s3_backends.values()
        for part in backend.values()
        for key_object in part.buckets.values()
    )
    return [version for bucket in buckets for _, versions in bucket.keys.iterlists() for version in versions]


class WithObjectAges:
    """Forwards requests, but those for PATH, which read or change the ages."""

    def __init__(self, app: "WSGIApplication", ages: ObjectAges) -> None:
        self._app = app
        self._ages = ages

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        request = Request(environ)
        if request.path != PATH:
            return self._app(environ, start_response)
        status = 200
        if request.method == "POST":
            try:
                self._ages.add(timedelta(seconds=float(json.loads(request.get_data())["seconds"])))
            except (ValueError, KeyError, TypeError, OverflowError):
                status = 400
        body = json.dumps({OLDER: self._ages.older.total_seconds()})
        return Response(body, status, content_type="application/json")(environ, start_response)


LOG = logging.getLogger(__name__)
# The class of moto's Lambda in every region; while the server runs, `invoke` is replaced.
_BACKEND: Any = LambdaSimpleBackend
REGION = "us-east-1"
ACCOUNT = "123456789012"
_REFUSALS: Final[Mapping[type[LocalStackError], tuple[int, str]]] = {
    FunctionUnknownError: (404, "ResourceNotFoundException"),
    PayloadTooLargeError: (413, "RequestTooLargeException"),
    TooManyRequestsError: (429, "TooManyRequestsException"),
}
"""The errors of Lambda's API (Lambda API reference, "Invoke")."""


class _RefusedInvocation(JsonRESTError):
    def __init__(self, code: int, error_type: str, message: str) -> None:
        self.code = code
        super().__init__(error_type, message)


class _QuietMotoHandler(MotoRequestHandler):
    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Log nothing, because there are thousands of requests, and a request line may name an object."""


class MotoAws(LoopbackServer):
    """moto's server on the loopback interface; `.url` is the endpoint for `AWS_ENDPOINT_URL`.

    With `ages` a request makes the objects of its S3 older (`infra.local.aws.server`).
    """

    def __init__(self, lambdas: LambdaPool, *, port: int = 0, ages: ObjectAges | None = None) -> None:
        """Bind the port; raises `CannotStartError` if it is in use."""
        app = application() if ages is None else WithObjectAges(application(), ages)
        try:
            super().__init__(make_server(LOOPBACK, port, app, threaded=True, request_handler=_QuietMotoHandler))
        except (OSError, SystemExit) as exc:
            # If the port is in use, werkzeug prints advice and exits.
            raise CannotStartError("AWS (moto)", f"port {port} cannot be used") from exc
        self._lambdas = lambdas
        self._replaced: dict[str, Any] = {}

    def start(self) -> Self:
        self._configure()
        super().start()
        # State machines share boto3's default session, whose lazy initialization is not thread-safe; this completes it.
        boto3.client("lambda", endpoint_url=self.url, region_name=REGION).close()
        return self

    def stop(self) -> None:
        super().stop()
        if self._replaced:
            _BACKEND.invoke = self._replaced["invoke"]
            self._replaced["waiting"]()
            default_user_config.update(self._replaced["config"])
            self._replaced = {}

    def client(self, service: str) -> Any:
        """Return a boto3 client for this server; moto accepts any credentials."""
        return boto3.session.Session().client(  # type: ignore[call-overload]
            service,
            endpoint_url=self.url,
            region_name=REGION,
            aws_access_key_id="local",
            aws_secret_access_key="local",  # noqa: S106
        )

    def _configure(self) -> None:
        os.environ["MOTO_PORT"] = str(urlsplit(self.url).port)
        self._replaced = {
            "invoke": LambdaSimpleBackend.invoke,
            "waiting": correct_wait_times(),
            "config": {name: default_user_config[name] for name in ("stepfunctions", "lambda")},
        }
        default_user_config["stepfunctions"] = {"execute_state_machine": True}
        default_user_config["lambda"] = {"use_docker": False}
        lambdas = self._lambdas

        def invoke(
            _backend: object,
            function_name: str,
            _qualifier: str | None,
            body: str | bytes | None,
            headers: Any,
            response_headers: dict[str, str],
        ) -> bytes:
            payload = body.encode() if isinstance(body, str) else body or b"{}"
            if headers.get("X-Amz-Invocation-Type") == "Event":
                lambdas.function(_name(function_name))
                threading.Thread(target=lambdas.invoke, args=(_name(function_name), payload), daemon=True).start()
                return b""
            try:
                invocation = lambdas.invoke(_name(function_name), payload)
            except tuple(_REFUSALS) as exc:
                status, name = _REFUSALS[type(exc)]
                raise _RefusedInvocation(status, name, str(exc)) from exc
            response_headers["x-amz-executed-version"] = "$LATEST"
            if invocation.error:
                response_headers["x-amz-function-error"] = invocation.error
            return invocation.payload

        _BACKEND.invoke = invoke


def _name(name_or_arn: str) -> str:
    """Return a function's name from its name, partial ARN or ARN, qualified or not."""
    parts = name_or_arn.split(":")
    return parts[parts.index("function") + 1] if "function" in parts[:-1] else parts[0]
