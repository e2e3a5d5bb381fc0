"""A purge's stores for several processes, with a switch that kills the process that makes a given call.

The stores are in the memory of the test's process. The driver, which is in this process, calls them directly; executors
call them through a socket. The switch identifies a call by its side, name, subject and number among equal calls,
because the order of the executors' calls varies.
"""

import os
import pickle
import signal
import socket
import socketserver
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Protocol

from delegation.errors import RunStopped
from delegation.identifiers import TableIdentifier
from delegation.removal.attempt import Attempt
from delegation.storage.base import ObjectStore, PlanStore
from delegation.storage.listing.model import ListedObject
from delegation.storage.locations import ObjectLocation
from delegation.storage.memory import Faults, Killed
from polaris_common.errors import DelegationError

DRIVER, EXECUTOR = "driver", "executor"


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an attempt: the `nth` of this side with this name and subject."""

    side: str
    name: str
    subject: str
    nth: int

    def __str__(self) -> str:
        what = f"{self.name} {self.subject}".strip()
        return f"{self.side}'s {what}" + (f" ({self.nth})" if self.nth > 1 else "")


class Switch(Faults):
    """Kills one call, before or after it has its effect; a killed driver's later calls fail too.

    An executor is killed once: its replacement makes the same call and survives.
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
        side, subject = getattr(_caller, "side_and_subject", (DRIVER, ""))
        with self._lock:
            self._counts[side, name, subject] += 1
            call = Call(side, name, subject, self._counts[side, name, subject])
            self.made.append(call)
            kill = call == self._kill and not self.fired
            self.fired = self.fired or kill
            dead = self._driver_is_dead and side == DRIVER
            self._driver_is_dead = self._driver_is_dead or (kill and side == DRIVER)
        if dead or (kill and not self._kill_after):
            raise Killed(name)
        try:
            yield
        finally:
            if kill:
                raise Killed(name)


_caller = threading.local()


class WithStores(Protocol):
    """The context of an attempt, as far as executors call its stores."""

    @property
    def store(self) -> ObjectStore: ...

    @property
    def plans(self) -> PlanStore: ...

    @property
    def attempt(self) -> Attempt: ...


class StoreServer:
    """Serves the stores of the current context to executors; a context manager."""

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

    def resources(self, ctx: WithStores, *, whole_executors: bool = False) -> "RemoteResources":
        """Return resources that give executors a context's stores; those of a former attempt at the table still work.

        A kill ends a Python worker, or with `whole_executors` the executor's JVM.
        """
        if any(other.plans is not ctx.plans for other in self._server.open.values()):
            self._server.open.clear()
        self._opened += 1
        self._server.open[self._opened] = ctx
        return RemoteResources(str(self._server.server_address), self._opened, whole_executors)


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    block_on_close = False
    open: dict[int, WithStores]

    def answer(self, number: int, store: str, method: str, arguments: tuple[Any, ...]) -> tuple[str, Any]:
        ctx = self.open.get(number)
        if ctx is None:
            return "die", None
        _caller.side_and_subject = (EXECUTOR, _subject(arguments))
        try:
            value = getattr({"store": ctx.store, "plans": ctx.plans, "attempt": ctx.attempt}[store], method)(
                *arguments[0], **arguments[1]
            )
            return "value", list(value) if method == "keys" else value
        except Killed:
            return "die", None
        except (DelegationError, RunStopped) as error:
            return "raise", error
        finally:
            del _caller.side_and_subject


def _subject(arguments: tuple[Any, ...]) -> str:
    """Return the subject of a call, without the bytes that it puts."""
    positional, _named = arguments
    parts = [one.uri if isinstance(one, ObjectLocation) else one for one in positional if not isinstance(one, bytes)]
    return " ".join(part if isinstance(part, str) else ",".join(map(_key, part)) for part in parts)


def _key(one: str | ListedObject) -> str:
    return one if isinstance(one, str) else one.key


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
                return  # the executor is dead


@dataclass(frozen=True, slots=True)
class RemoteResources:
    """ExecutorResources whose stores are in the test's process."""

    address: str
    number: int
    whole_executors: bool

    def store(self, identifier: TableIdentifier) -> Any:
        del identifier
        return Remote(self, "store")

    def plans(self) -> Any:
        return Remote(self, "plans")

    def checkpoint(self, task_id: str, attempt: int) -> Callable[[], None]:
        del task_id, attempt
        return partial(self.request, "attempt", "checkpoint", moved=False)

    def request(self, store: str, method: str, *arguments: Any, **named: Any) -> Any:
        kind, value = _line(self.address).send((self.number, store, method, (arguments, named)))
        if kind == "die":
            if self.whole_executors:
                os.kill(_executor(), signal.SIGKILL)
            os._exit(1)
        if kind == "raise":
            raise value
        return value


def _executor() -> int:
    """Return the process id of this Python worker's executor, its nearest ancestor that is one."""
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

    def send(self, request: Any) -> tuple[str, Any]:
        with self._lock:
            pickle.dump(request, self._file)
            self._file.flush()
            answer: tuple[str, Any] = pickle.load(self._file)
            return answer


_line = cache(_Line)


@dataclass(frozen=True)
class Remote:
    """The ObjectStore or the PlanStore of an executor: every method is a request."""

    resources: RemoteResources
    name: str

    def __getattr__(self, method: str) -> Callable[..., Any]:
        if method.startswith("_"):
            raise AttributeError(method)  # what pickle asks for
        return partial(self.resources.request, self.name, method)
