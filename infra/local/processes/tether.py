"""Run one program and end its whole process group as soon as the process that started this one is gone.

Started as `python tether.py PROGRAM ARGUMENT…` in a session of its own with a pipe as standard input: the pipe's other
end lives in the parent, so even `kill -9` of the parent closes it. Works on every POSIX system, whichever thread of the
parent started it (Linux' PR_SET_PDEATHSIG alone fires when the starting *thread* ends). Standard library only.
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
    """Ask Linux to kill the calling process when the thread that started it ends; elsewhere do nothing."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _end_group_at_end_of_input() -> None:
    while os.read(0, 4096):
        pass
    os.killpg(0, signal.SIGTERM)
    time.sleep(GRACE_SECONDS)
    os.killpg(0, signal.SIGKILL)


def _leave_it_to_the_program(signum: int, frame: FrameType | None) -> None:
    """The group's members get the same signal; this process only waits for them."""


def main(argv: list[str]) -> int:
    """Run `argv` and return its exit status, a signal as 128 + its number."""
    signal.signal(signal.SIGTERM, _leave_it_to_the_program)
    signal.signal(signal.SIGINT, _leave_it_to_the_program)
    # No thread exists yet, so running Python between fork and exec is sound here.
    program = subprocess.Popen(argv, stdin=subprocess.DEVNULL, preexec_fn=die_with_parent)  # noqa: PLW1509
    threading.Thread(target=_end_group_at_end_of_input, daemon=True).start()
    status = program.wait()
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
