"""`delegation local up` as a separate process, and the processes that it starts."""

import json
import os
import select
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx

from infra.local.processes.programs import import_path

# The command group as the console script loads it, also if the package is not installed.
_COMMAND = """
from importlib.metadata import EntryPoint
from delegation.cli.main import ENTRY_POINTS, build
build([EntryPoint("local", "infra.local.command:app", ENTRY_POINTS)])()
"""
_LONGEST_STOP_SECONDS = 90
_READY = ("Ready after ", '{"stack_json"')


class StackProcess:
    """A stack in a process; `ready` waits until the stack has reported that it is ready."""

    def __init__(
        self,
        state_dir: Path,
        *options: str,
        env: dict[str, str] | None = None,
        program: tuple[str, ...] | None = None,
        in_background: bool = False,
    ) -> None:
        """Start it, `in_background` with SIGINT ignored as a shell's `&` does.

        `program` holds interpreter arguments that replace the `delegation` command.
        """
        self.state_dir = state_dir
        self.path = state_dir / "stack.json"
        self.output = ""
        launcher = ("sh", "-c", "trap '' INT; exec \"$@\"", "sh") if in_background else ()
        self._popen = subprocess.Popen(
            [
                *launcher,
                sys.executable,
                *(program or ("-c", _COMMAND)),
                "local",
                "up",
                "--state-dir",
                str(state_dir),
                *options,
            ],
            env={**os.environ, "PYTHONPATH": import_path(), "COLUMNS": "200", **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    @property
    def pid(self) -> int:
        return self._popen.pid

    def ready(self) -> dict[str, str]:
        """Wait until the stack is ready and return stack.json."""
        while not any(line.startswith(_READY) for line in self.output.splitlines()):
            line = self._popen.stdout.readline()
            assert line, f"the stack has ended: {self.output}"
            self.output += line
        stack: dict[str, str] = json.loads(self.path.read_text())
        return stack

    def end(self, signal_number: int) -> int:
        """Send a signal, if it has not ended, and wait for the exit status."""
        self._popen.send_signal(signal_number)
        return self.wait()

    def wait(self) -> int:
        """Wait until it has ended and return the exit status; one that does not end in time is killed (-9)."""
        if self._popen.stdout.closed:
            return self._popen.wait()
        late = threading.Timer(_LONGEST_STOP_SECONDS, self._popen.kill)
        late.start()
        with self._popen:
            self.output += self._popen.stdout.read()
        late.cancel()
        return self._popen.returncode


def token(stack: dict[str, str]) -> str:
    """Return an access token of the stack's client."""
    form = {name: stack[name] for name in ("client_id", "client_secret", "scope")}
    answer = httpx.post(stack["token_url"], data={"grant_type": "client_credentials", **form})
    found: str = answer.raise_for_status().json()["access_token"]
    return found


def edge_of(stack: dict[str, str]) -> httpx.Client:
    """Return a client of the stack's API with its certificate."""
    context = ssl.create_default_context(cafile=stack["ca_cert"])
    context.load_cert_chain(stack["client_cert"], stack["client_key"])
    return httpx.Client(base_url=stack["edge_url"], verify=context, timeout=60)


def descendants(pid: int) -> set[int]:
    """Return all descendants of `pid`, in any process group or session (Linux)."""
    children: dict[int, set[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        children.setdefault(parent, set()).add(int(stat.parent.name))
    found: set[int] = set()
    new = children.get(pid, set())
    while new:
        found |= new
        new = set().union(*(children.get(each, set()) for each in new)) - found
    return found


def watch(pids: set[int]) -> list[int]:
    """Return descriptors of processes (Linux), which a reuse of the pid does not affect."""
    opened = []
    for pid in pids:
        try:
            opened.append(os.pidfd_open(pid))
        except ProcessLookupError:
            continue
    return opened


def all_ended(watched: list[int], *, within_seconds: float) -> bool:
    """Return whether all processes ended in time; close the descriptors."""
    poll = select.poll()
    left = set(watched)
    for descriptor in watched:
        poll.register(descriptor, select.POLLIN)
    deadline = time.monotonic() + within_seconds
    while left and (remaining := deadline - time.monotonic()) > 0:
        for descriptor, _ in poll.poll(remaining * 1000):
            poll.unregister(descriptor)
            left.discard(descriptor)
    for descriptor in watched:
        os.close(descriptor)
    return not left
