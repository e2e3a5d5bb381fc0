"""Finding the processes that a run of faults may end, and ending one: only descendants of this process, by pid."""

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.integration.local.stack_process import descendants

FUNCTION = b"AWS_LAMBDA_FUNCTION_NAME="


class Kills(Counter[str]):
    """The number of kills by kind."""

    def __str__(self) -> str:
        what = ", ".join(f"{count} {name}" for name, count in sorted(self.items()))
        return f"{self.total()} kills ({what})"


def functions_among(pids: set[int]) -> Iterator[tuple[int, str]]:
    """Yield the pids that are workers of functions, with the function's name."""
    for pid in sorted(pids):
        for each in variables_of(pid):
            if each.startswith(FUNCTION):
                yield pid, each.removeprefix(FUNCTION).decode()


def variables_of(pid: int) -> list[bytes]:
    """Return a process' variables as `NAME=value`, none if it has ended."""
    try:
        return (Path("/proc") / str(pid) / "environ").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return []


def command_of(pid: int) -> str:
    """Return a process' command line, empty if it has ended."""
    try:
        return (Path("/proc") / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ""


def kill_descendant(pid: int) -> bool:
    """Send SIGKILL to a descendant of this process; return False if it has ended already."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if pid not in descendants(os.getpid()):
            return False
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    finally:
        os.close(descriptor)
    return True
