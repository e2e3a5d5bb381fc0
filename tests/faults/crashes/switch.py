"""A purge's stores for several processes, with a switch that kills whoever makes a given call.

The stores are in memory in the test's process. Its own code, the driver, calls them directly; executors, which are
processes of their own, through a socket. Every call goes by one switch, which knows it by what it is (who makes it,
what it does to what, the how manieth of its like), for the order in which executors come is never the same twice.
"""

import os
import pickle
import signal
import socket
import socketserver
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from delegation.errors import DelegationError
from delegation.identifiers import TableIdentifier
from delegation.operations.purge.context import PurgeContext
from delegation.storage.base import BatchResult
from delegation.storage.locations import ObjectLocation
from delegation.storage.memory import Faults, Killed

DRIVER, EXECUTOR = "driver", "executor"


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an attempt: the `nth` that this side makes of this name and subject."""

    side: str
    name: str
    subject: str
    nth: int

    def __str__(self) -> str:
        what = f"{self.name} {self.subject}".strip()
        return f"{self.side}'s {what}" + (f" ({self.nth})" if self.nth > 1 else "")


class Switch(Faults):
    """Kills one call, before or after it takes effect; a driver that was killed makes no further one.

    An executor is killed once: the one that takes its place makes the same call and lives.
    """

    def __init__(self, kill: Call | None = None, *, after: bool = False) -> None:
        super().__init__()
        self._kill = kill
        self._kill_after = after
        self._counts: Counter[tuple[str, str, str]] = Counter()
        self._driver_is_dead = False
        self.made: list[Call] = []
        self.fired = False

    @contextmanager
    def call(self, name: str) -> Iterator[None]:
        side, subject = getattr(_caller, "who", (DRIVER, ""))
        with self._lock:
            self._counts[side, name, subject] += 1
            call = Call(side, name, subject, self._counts[side, name, subject])
            self.made.append(call)
            due = call == self._kill and not self.fired
            self.fired = self.fired or due
            dead = self._driver_is_dead and side == DRIVER
            self._driver_is_dead = self._driver_is_dead or (due and side == DRIVER)
        if dead or (due and not self._kill_after):
            raise Killed(name)
        try:
            yield
        finally:
            if due:
                raise Killed(name)


_caller = threading.local()


class StoreServer:
    """Serves the stores of the context that is open; a context manager."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._server = _Server(str(Path(self._folder.name) / "stores"), _Handler)
        self._server.open = {}
        self._opened = 0
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="store-server")

    def __enter__(self) -> "StoreServer":
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._folder.cleanup()

    def workplace(self, ctx: PurgeContext, *, whole_executors: bool = False) -> "RemoteWorkplace":
        """Where executors find a context's stores; those of a former attempt at the same table still find theirs.

        What dies there is a Python worker, or with `whole_executors` the executor's JVM with all that it holds.
        """
        if any(other.plans is not ctx.plans for other in self._server.open.values()):
            self._server.open.clear()
        self._opened += 1
        self._server.open[self._opened] = ctx
        return RemoteWorkplace(str(self._server.server_address), self._opened, whole_executors)


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    block_on_close = False
    open: dict[int, PurgeContext]

    def answer(self, number: int, store: str, method: str, arguments: tuple[Any, ...]) -> tuple[str, Any]:
        ctx = self.open.get(number)
        if ctx is None:
            return "die", None
        _caller.who = (EXECUTOR, _subject(arguments))
        try:
            value = getattr({"store": ctx.store, "plans": ctx.plans, "attempt": ctx.attempt}[store], method)(
                *arguments[0], **arguments[1]
            )
            return "value", list(value) if method == "keys" else value
        except Killed:
            return "die", None
        except DelegationError as error:
            return "raise", error
        finally:
            del _caller.who


def _subject(arguments: tuple[Any, ...]) -> str:
    """What a call is about, without the contents of what it puts."""
    positional, _named = arguments
    parts = [one.uri if isinstance(one, ObjectLocation) else one for one in positional if not isinstance(one, bytes)]
    return " ".join(part if isinstance(part, str) else ",".join(part) for part in parts)


class _Handler(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        while True:
            try:
                request = pickle.load(self.rfile)
            except (EOFError, ConnectionError):
                return
            try:
                pickle.dump(self.server.answer(*request), self.wfile)
            except (BrokenPipeError, ConnectionError):
                return  # whoever asked is gone


@dataclass(frozen=True, slots=True)
class RemoteWorkplace:
    """A workplace.Workplace whose stores are in the test's process."""

    address: str
    number: int
    whole_executors: bool

    def store(self, identifier: TableIdentifier) -> "RemoteStore":
        del identifier
        return RemoteStore(self)

    def plans(self) -> "RemotePlans":
        return RemotePlans(self)

    def checkpoint(self, task_id: str, attempt: int) -> Callable[[], None]:
        del task_id, attempt
        return partial(self.ask, "attempt", "checkpoint", moved=False)

    def ask(self, store: str, method: str, *arguments: Any, **named: Any) -> Any:
        kind, value = _line(self.address).ask((self.number, store, method, (arguments, named)))
        if kind == "die":
            if self.whole_executors:
                os.kill(_executor(), signal.SIGKILL)
            os._exit(1)
        if kind == "raise":
            raise value
        return value


def _executor() -> int:
    """The JVM that this Python worker serves: its nearest ancestor that is an executor."""
    pid = os.getppid()
    while b"CoarseGrainedExecutorBackend" not in Path(f"/proc/{pid}/cmdline").read_bytes():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid


class _Line:
    """One connection, used by one call at a time."""

    def __init__(self, address: str) -> None:
        self._lock = threading.Lock()
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(address)
        self._file = self._socket.makefile("rwb")

    def ask(self, request: Any) -> tuple[str, Any]:
        with self._lock:
            pickle.dump(request, self._file)
            self._file.flush()
            answer: tuple[str, Any] = pickle.load(self._file)
            return answer


_line = cache(_Line)


@dataclass(frozen=True)
class RemoteStore:
    """An executor's ObjectStore."""

    place: RemoteWorkplace

    def read(self, location: ObjectLocation, *, limit: int) -> bytes:
        return bytes(self.place.ask("store", "read", location, limit=limit))

    def exists(self, location: ObjectLocation) -> bool:
        return bool(self.place.ask("store", "exists", location))

    def delete(self, bucket: str, keys: Sequence[str]) -> BatchResult:
        result: BatchResult = self.place.ask("store", "delete", bucket, keys)
        return result

    def probe_delete(self, prefix: str) -> str | None:
        code: str | None = self.place.ask("store", "probe_delete", prefix)
        return code

    def versioned(self, bucket: str) -> bool | None:
        answer: bool | None = self.place.ask("store", "versioned", bucket)
        return answer


@dataclass(frozen=True)
class RemotePlans:
    """An executor's PlanStore."""

    place: RemoteWorkplace

    def put(self, key: str, data: bytes) -> None:
        self.place.ask("plans", "put", key, data)

    def get(self, key: str) -> bytes:
        return bytes(self.place.ask("plans", "get", key))

    def keys(self, prefix: str) -> Iterator[str]:
        return iter(self.place.ask("plans", "keys", prefix))
