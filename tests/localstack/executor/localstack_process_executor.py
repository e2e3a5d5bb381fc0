"""A plugin of LocalStack that runs Lambda functions as processes of this machine, where no container engine is.

Each execution environment is one `python -m awslambdaric HANDLER`, AWS' own runtime client, in the unpacked bundle. It
takes its events from a Lambda runtime API on loopback (Lambda developer guide, "Using the Lambda runtime API").
LAMBDA_PROCESS_PYTHON names its interpreter, whose environment has awslambdaric alone.
"""

import json
import os
import queue
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from localstack.services.lambda_.invocation.executor_endpoint import StatusErrorException
from localstack.services.lambda_.invocation.lambda_models import InvocationResult
from localstack.services.lambda_.invocation.plugins import RuntimeExecutorPlugin
from localstack.services.lambda_.invocation.runtime_executor import LambdaRuntimeException, RuntimeExecutor

PYTHON = "LAMBDA_PROCESS_PYTHON"
START_SECONDS = 180.0
"""A machine that does much else starts a function in a minute; Lambda does in less than a second."""
LOOPBACK = "127.0.0.1"


class ProcessExecutorPlugin(RuntimeExecutorPlugin):
    """What LocalStack finds under the entry point's name."""

    name = "process"

    def load(self, *args: Any, **kwargs: Any) -> type[RuntimeExecutor]:
        return ProcessExecutor


class _RuntimeApi(ThreadingHTTPServer):
    """One execution environment's runtime API; the process asks for events, the executor waits for their results."""

    daemon_threads = True

    def __init__(self, timeout_seconds: float) -> None:
        super().__init__((LOOPBACK, 0), _RuntimeApiHandler)
        self.timeout_seconds = timeout_seconds
        self.events: queue.Queue[dict[str, str] | None] = queue.Queue()
        self.results: queue.Queue[tuple[str, bytes, bool]] = queue.Queue()
        self.ready = threading.Event()
        self.failed_start: bytes | None = None
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self.events.put(None)
        self.shutdown()
        self.server_close()


class _RuntimeApiHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _RuntimeApi

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the parent's name
        """Log nothing: LocalStack logs each invocation."""

    def do_GET(self) -> None:
        """Answer `/runtime/invocation/next` with the next event."""
        self.server.ready.set()
        event = self.server.events.get()
        if event is None:
            self.close_connection = True
            return
        deadline = int((time.time() + self.server.timeout_seconds) * 1000)
        self._answer(
            200,
            event["payload"].encode() or b"null",
            {
                "Lambda-Runtime-Aws-Request-Id": event["invoke-id"],
                "Lambda-Runtime-Deadline-Ms": str(deadline),
                "Lambda-Runtime-Invoked-Function-Arn": event["invoked-function-arn"],
                "Lambda-Runtime-Trace-Id": event.get("trace-id", ""),
            },
        )

    def do_POST(self) -> None:
        """Take `/runtime/init/error`, `/runtime/invocation/ID/response` and `/runtime/invocation/ID/error`."""
        body = self._body()
        *_, before, last = self.path.split("/")
        if before == "init":
            self.server.failed_start = body
            self.server.ready.set()
        else:
            self.server.results.put((before, body, last == "error"))
        self._answer(202, b"{}", {})

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0] or b"0", 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Type": "application/json", "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


class ProcessExecutor(RuntimeExecutor):
    """One execution environment: a process and its runtime API; both are replaced after a time-out or an exit."""

    def __init__(self, id: str, function_version: Any) -> None:  # noqa: A002 - the parent's name
        super().__init__(id, function_version)
        self._timeout = float(function_version.config.timeout or 3)
        self._environment: dict[str, str] = {}
        self._lines: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._api: _RuntimeApi | None = None

    def start(self, env_vars: dict[str, Any]) -> None:
        """Start the process and wait until it asks for an event; raises if its handler cannot be imported."""
        self._environment = {name: str(value) for name, value in env_vars.items() if value is not None}
        api = self._api = _RuntimeApi(self._timeout)
        code = str(self.function_version.config.code.get_unzipped_code_location())
        environment = {
            **{name: os.environ[name] for name in ("PATH", "TMPDIR") if name in os.environ},
            "LANG": "C.UTF-8",
            "PYTHONUNBUFFERED": "1",
            **self._environment,
            "TZ": "UTC",
            "AWS_LAMBDA_RUNTIME_API": f"{LOOPBACK}:{api.server_address[1]}",
            "LAMBDA_TASK_ROOT": code,
            "PYTHONPATH": code,
        }
        self._process = subprocess.Popen(
            [os.environ[PYTHON], "-m", "awslambdaric", environment["_HANDLER"]],
            cwd=code,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        threading.Thread(target=self._read, args=(self._process,), daemon=True).start()
        if not self._is_ready():
            raise LambdaRuntimeException(f"the runtime did not become ready:\n{self.get_logs()}")
        if api.failed_start is not None:
            raise StatusErrorException("Environment startup failed", payload=api.failed_start)

    def stop(self) -> None:
        """End the process and its runtime API; may be called again."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._api is not None:
            self._api.close()
            self._api = None

    def invoke(self, payload: dict[str, str]) -> InvocationResult:
        """Run the function once; a time-out or an exit of the process is its failure, as Lambda words it."""
        request, mark = payload["invoke-id"], len(self._lines)
        if self._process is None or self._process.poll() is not None:
            self._restart()
        body, failed = self._result(request, payload)
        logs = "".join(
            [
                f"START RequestId: {request} Version: {self.function_version.id.qualifier}\n",
                *self._lines[mark:],
                f"END RequestId: {request}\nREPORT RequestId: {request}\n",
            ]
        )
        return InvocationResult(request, body, is_error=failed, logs=logs)

    def get_logs(self) -> str:
        return "".join(self._lines)

    def get_address(self) -> str:
        return LOOPBACK

    def get_endpoint_from_executor(self) -> str:
        return LOOPBACK

    def get_runtime_endpoint(self) -> str:
        return ""

    @classmethod
    def prepare_version(cls, function_version: Any) -> None:
        """Unpack the bundle."""
        if function_version.config.code:
            function_version.config.code.prepare_for_execution()

    @classmethod
    def cleanup_version(cls, function_version: Any) -> None:
        """Leave the unpacked bundle; it is removed with LocalStack's folder."""

    def _result(self, request: str, payload: dict[str, str]) -> tuple[bytes, bool]:
        """Hand the event to the process and wait; return the result's body, and whether it is an error."""
        api, process = self._api, self._process
        assert api is not None
        assert process is not None
        api.events.put(payload)
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                answered, body, failed = api.results.get(timeout=0.2)
            except queue.Empty:
                if time.monotonic() > deadline:
                    return self._broken(
                        request, "Sandbox.Timedout", f"Task timed out after {self._timeout:.2f} seconds"
                    )
                if process.poll() is not None and api.results.empty():
                    text = f"Runtime exited with error: exit status {process.returncode}"
                    return self._broken(request, "Runtime.ExitError", text)
            else:
                if answered == request:
                    return body, failed

    def _broken(self, request: str, kind: str, message: str) -> tuple[bytes, bool]:
        self._restart()
        described = {"errorType": kind, "errorMessage": f"RequestId: {request} Error: {message}"}
        return json.dumps(described).encode(), True

    def _restart(self) -> None:
        self.stop()
        self.start(self._environment)

    def _is_ready(self) -> bool:
        """Wait until the process asks for an event; return False if it ends before, or takes too long."""
        assert self._api is not None
        assert self._process is not None
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self._api.ready.wait(0.1):
                return True
            if self._process.poll() is not None:
                return False
        return False

    def _read(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdout is not None
        for line in iter(process.stdout.readline, b""):
            self._lines.append(line.decode(errors="replace"))
