"""Run one program, and end its whole process group when the process that started this one ends.

The parent starts `python tether.py PROGRAM ARGUMENT…` in a new session with a pipe as standard input. The parent holds
the pipe's other end, so even `kill -9` of the parent closes it. This works on every POSIX system and for any thread of
the parent; Linux' PR_SET_PDEATHSIG alone fires when the starting *thread* ends. Standard library only.
"""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from types import FrameType

GRACE_SECONDS = 3.0
_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Have Linux kill the calling process when the thread that started it ends; do nothing on other systems."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _end_group_at_end_of_input() -> None:
    while os.read(0, 4096):
        pass
    os.killpg(0, signal.SIGTERM)
    time.sleep(GRACE_SECONDS)
    os.killpg(0, signal.SIGKILL)


def _ignore(signum: int, frame: FrameType | None) -> None:
    """Ignore the signal, because the group's other members get it too and this process waits for them."""


def main(argv: list[str]) -> int:
    """Run `argv` and return its exit status, or 128 + the number of the signal that ended it."""
    signal.signal(signal.SIGTERM, _ignore)
    signal.signal(signal.SIGINT, _ignore)
    # No thread exists yet, so running Python between fork and exec is sound here.
    program = subprocess.Popen(argv, stdin=subprocess.DEVNULL, preexec_fn=die_with_parent)  # noqa: PLW1509
    threading.Thread(target=_end_group_at_end_of_input, daemon=True).start()
    status = program.wait()
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
