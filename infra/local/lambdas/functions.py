"""AWS Lambda for one machine: each function runs in separate worker processes, several at once, reused while warm.

A worker gets only the environment of its function, is killed at the function's time-out, and ends with this process.
Workers are started as programs (worker.py), never forked from this process, which has threads.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

from infra.local.errors import LocalStackError
from infra.local.lambdas import worker as wire
from infra.local.processes.programs import import_path

# Lambda developer guide, "Lambda quotas": invocation payload, synchronous.
PAYLOAD_LIMIT_BYTES = 6 * 1024 * 1024
INIT_TIMEOUT_SECONDS = 60.0
# AWS throttles at once; here a burst of starts on two cores may take long.
QUEUE_TIMEOUT_SECONDS = 60.0


class FunctionUnknownError(LocalStackError):
    """No function of that name."""


class PayloadTooLargeError(LocalStackError):
    """The invocation is larger than Lambda accepts (413 `RequestTooLargeException`)."""


class TooManyRequestsError(LocalStackError):
    """All workers that the concurrency limit allows were busy for too long (429 `TooManyRequestsException`)."""


@dataclass(frozen=True, slots=True)
class FunctionSpec:
    """A function as deployed; `handler` is "package.module.attribute", `environment` all of its variables."""

    name: str
    handler: str
    timeout_seconds: float
    memory_mb: int
    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    concurrency: int = 10


@dataclass(frozen=True, slots=True)
class Invocation:
    """The result of one invocation: the payload as JSON text, and `error` ("Unhandled") if the function failed."""

    request_id: str
    payload: bytes = field(repr=False)
    error: str | None = None


class _Worker:
    """One process of one function; only one thread at a time uses it."""

    def __init__(self, process: "subprocess.Popen[bytes]", channel: socket.socket, version: int) -> None:
        self._process = process
        self._channel = channel
        self.version = version

    def receive(self, deadline: float) -> tuple[bytes, bytes]:
        return wire.receive(self._channel, deadline=deadline), wire.receive(self._channel, deadline=deadline)

    def send(self, header: bytes, payload: bytes, deadline: float) -> None:
        self._channel.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            wire.send(self._channel, header, payload)
        except ConnectionError as exc:
            raise EOFError from exc

    @property
    def pid(self) -> int:
        return self._process.pid

    def alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """Send SIGKILL to the worker's process group; a thread that waits for its answer gets EOFError."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def end(self) -> int:
        """Kill the worker, wait for it and return its exit status; only for the thread that uses it."""
        self.kill()
        status = self._process.wait()
        self._channel.close()
        return status


class LocalFunction:
    def __init__(self, spec: FunctionSpec, *, arn: str, log: Path, spawner: Executor) -> None:
        self.spec = spec
        self.arn = arn
        self.log = log
        self._spawner = spawner
        self._changed = threading.Condition()
        self._idle: list[_Worker] = []
        self._busy: set[_Worker] = set()
        self._failed_starts: list[bytes] = []
        self._starting = 0
        self._waiting = 0
        self._version = 1
        self._closed = False
        log.parent.mkdir(parents=True, exist_ok=True)

    @property
    def workers(self) -> int:
        """The number of workers, including those that are starting."""
        return len(self._idle) + len(self._busy) + self._starting

    def warm(self) -> None:
        with self._changed:
            if not self._closed and self.workers < self.spec.concurrency:
                self._start_one()

    def pids(self, *, busy: bool = False) -> frozenset[int]:
        """Return the processes of the workers, with `busy` only of those that run an invocation."""
        with self._changed:
            return frozenset(worker.pid for worker in (*self._busy, *(() if busy else self._idle)))

    def update(self, spec: FunctionSpec) -> None:
        """Deploy another version: what begins from now on runs it, what runs ends in the version that it began in.

        Lambda developer guide, "Understanding the Lambda execution environment lifecycle".
        """
        with self._changed:
            self.spec = spec
            self._version += 1
            outdated, self._idle = self._idle, []
        for worker in outdated:
            worker.end()

    def invoke(self, payload: bytes) -> Invocation:
        """Run the function once and return its result.

        Raises `PayloadTooLargeError`, and `TooManyRequestsError` if no worker became free in time.
        """
        if len(payload) > PAYLOAD_LIMIT_BYTES:
            raise PayloadTooLargeError(f"{len(payload)} byte payload is too large for {self.spec.name}")
        request_id = str(uuid.uuid4())
        worker = self._reserve()
        if isinstance(worker, bytes):
            return Invocation(request_id, worker, "Unhandled")
        started = time.monotonic()
        self._write(f"START RequestId: {request_id} Version: $LATEST")
        try:
            invocation = self._run(worker, request_id, payload)
        finally:
            duration = (time.monotonic() - started) * 1000
            self._write(f"END RequestId: {request_id}\nREPORT RequestId: {request_id} Duration: {duration:.2f} ms")
        return invocation

    def close(self) -> None:
        with self._changed:
            self._closed = True
            idle, busy = list(self._idle), list(self._busy)
            self._idle.clear()
            self._changed.notify_all()
        for worker in busy:
            worker.kill()
        for worker in idle:
            worker.end()

    def _run(self, worker: _Worker, request_id: str, payload: bytes) -> Invocation:
        deadline = time.monotonic() + self.spec.timeout_seconds
        header = {
            "request_id": request_id,
            "function_arn": self.arn,
            "deadline_ms": time.time_ns() // 1_000_000 + int(self.spec.timeout_seconds * 1000),
        }
        try:
            worker.send(json.dumps(header).encode(), payload, deadline)
            error, result = worker.receive(deadline)
        except TimeoutError:
            self._discard(worker)
            message = f"Task timed out after {self.spec.timeout_seconds:.2f} seconds"
            return self._sandbox_failure("Sandbox.Timedout", message, request_id)
        except (EOFError, OSError):
            status = self._discard(worker)
            how = f"signal: {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
            return self._sandbox_failure("Runtime.ExitError", f"Runtime exited with error: {how}", request_id)
        self._release(worker)
        if len(result) > PAYLOAD_LIMIT_BYTES:
            message = f"Response payload size exceeded maximum allowed payload size ({PAYLOAD_LIMIT_BYTES} bytes)."
            return self._sandbox_failure("Function.ResponseSizeTooLarge", message, request_id)
        return Invocation(request_id, result, error.decode() or None)

    def _sandbox_failure(self, error_type: str, message: str, request_id: str) -> Invocation:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._write(f"{now} {request_id} {message}")
        payload = {"errorType": error_type, "errorMessage": f"RequestId: {request_id} Error: {message}"}
        return Invocation(request_id, json.dumps(payload).encode(), "Unhandled")

    def _reserve(self) -> "_Worker | bytes":
        """Return a free worker, started if necessary, or the error payload of a failed start."""
        deadline = time.monotonic() + QUEUE_TIMEOUT_SECONDS
        with self._changed:
            self._waiting += 1
            try:
                while True:
                    if self._closed:
                        raise FunctionUnknownError(f"{self.spec.name} is shut down")
                    while self._idle:
                        # The worker used last is the warmest; one that ended while idle is dropped.
                        worker = self._idle.pop()
                        if worker.alive():
                            self._busy.add(worker)
                            return worker
                        worker.end()
                    if self._failed_starts:
                        return self._failed_starts.pop()
                    if self._starting < self._waiting and self.workers < self.spec.concurrency:
                        self._start_one()
                    if not self._changed.wait(deadline - time.monotonic()):
                        raise TooManyRequestsError(f"{self.spec.name}: all {self.workers} workers are busy")
            finally:
                self._waiting -= 1

    def _release(self, worker: _Worker) -> None:
        with self._changed:
            self._busy.discard(worker)
            if not self._closed and worker.version == self._version:
                self._idle.append(worker)
                self._changed.notify()
                return
            # A caller that waits may have another worker started in its place.
            self._changed.notify()
        worker.end()

    def _discard(self, worker: _Worker) -> int:
        status = worker.end()
        with self._changed:
            self._busy.discard(worker)
            self._changed.notify()
        return status

    def _start_one(self) -> None:
        self._starting += 1
        threading.Thread(target=self._start, name=f"start-{self.spec.name}", daemon=True).start()

    def _start(self) -> None:
        # Linux kills a worker when the thread that started it ends (PR_SET_PDEATHSIG); the spawner's thread stays.
        try:
            worker = self._spawner.submit(self._spawn).result()
        except (OSError, RuntimeError) as exc:
            self._started(None, json.dumps({"errorType": "Runtime.StartError", "errorMessage": str(exc)}).encode())
            return
        try:
            error, payload = worker.receive(time.monotonic() + INIT_TIMEOUT_SECONDS)
        except (EOFError, OSError):
            message = f"no worker started within {INIT_TIMEOUT_SECONDS:.0f} s; see {self.log.name}"
            failure = {"errorType": "Runtime.InitError", "errorMessage": message}
            error, payload = b"Unhandled", json.dumps(failure).encode()
        if error:
            worker.end()
            self._started(None, payload)
        else:
            self._started(worker, b"")

    def _started(self, worker: _Worker | None, failure: bytes) -> None:
        with self._changed:
            self._starting -= 1
            if worker is None:
                # One waiting caller gets the error; without one it is only in the log.
                if self._waiting > len(self._failed_starts):
                    self._failed_starts.append(failure)
            elif not self._closed and worker.version == self._version:
                self._idle.append(worker)
                worker = None
            self._changed.notify_all()
        if worker is not None:
            worker.end()

    def _spawn(self) -> _Worker:
        version = self._version
        ours, theirs = socket.socketpair()
        with theirs, self.log.open("ab") as log:
            command = [sys.executable, "-u", "-m", "infra.local.lambdas.worker", str(theirs.fileno())]
            process = subprocess.Popen(
                command,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        return _Worker(process, ours, version)

    def _environment(self) -> dict[str, str]:
        """Return the function's variables and those that Lambda sets ("Defined runtime environment variables")."""
        given = dict(self.spec.environment)
        extra_path = given.pop("PYTHONPATH", "")
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "LANG": "C.UTF-8",
            "TZ": ":UTC",
            "PYTHONPATH": os.pathsep.join(filter(None, [import_path(), extra_path])),
            **given,
            "_HANDLER": self.spec.handler,
            "AWS_LAMBDA_FUNCTION_NAME": self.spec.name,
            "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(self.spec.memory_mb),
            "AWS_LAMBDA_LOG_GROUP_NAME": f"/aws/lambda/{self.spec.name}",
            "AWS_LAMBDA_LOG_STREAM_NAME": f"{datetime.now(UTC):%Y/%m/%d}/[$LATEST]{uuid.uuid4().hex}",
            "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
            "AWS_EXECUTION_ENV": f"AWS_Lambda_python{sys.version_info.major}.{sys.version_info.minor}",
        }

    def _write(self, text: str) -> None:
        with self.log.open("a") as log:
            log.write(text + "\n")


class LambdaPool:
    def __init__(self, *, log_folder: Path, region: str = "us-east-1", account: str = "123456789012") -> None:
        self._log_folder = log_folder
        self._region = region
        self._account = account
        self._functions: dict[str, LocalFunction] = {}
        # One thread that lives as long as the pool: Linux kills a worker when the thread that started it ends.
        self._spawner = ThreadPoolExecutor(1, thread_name_prefix="lambda-spawner")

    def arn(self, name: str) -> str:
        """Return the ARN of the function of that name, which need not exist yet."""
        return f"arn:aws:lambda:{self._region}:{self._account}:function:{name}"

    def add(self, spec: FunctionSpec) -> LocalFunction:
        """Deploy a function; its first worker starts with the first invocation or with `warm()`."""
        function = LocalFunction(
            spec,
            arn=self.arn(spec.name),
            log=self._log_folder / f"{spec.name}.log",
            spawner=self._spawner,
        )
        self._functions[spec.name] = function
        return function

    def function(self, name: str) -> LocalFunction:
        """Return the function of that name; raise `FunctionUnknownError`."""
        try:
            return self._functions[name]
        except KeyError:
            raise FunctionUnknownError(f"Function not found: {name}") from None

    def invoke(self, name: str, payload: bytes) -> Invocation:
        """Run a function and return its result; raises as `function` and `LocalFunction.invoke` do."""
        return self.function(name).invoke(payload)

    def stop(self) -> None:
        """End every worker of every function; may be called again."""
        for function in self._functions.values():
            function.close()
        self._spawner.shutdown()
