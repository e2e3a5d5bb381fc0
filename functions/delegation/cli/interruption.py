"""Ctrl-C in a command that deletes: it stops at the next batch, or the process ends if the object store hangs."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from delegation.cli.errors import INTERRUPTED
from polaris_common.errors import DelegationError

PATIENCE_SECONDS: Final = 1.2
TIME_TO_REPORT: Final = 0.4


class Interrupted(DelegationError):
    """Ctrl-C ended the command; files that are marked as deleted stay marked."""

    code = "INTERRUPTED"
    retryable = True


class Interruption:
    """SIGINT while a purge runs in this process; `checkpoint` raises after it."""

    def __init__(self, text: str, report: Callable[[DelegationError], None]) -> None:
        self.error = Interrupted(text)
        self._report = report
        self._pressed = False
        self._lock = threading.Lock()
        self._reported = False

    def checkpoint(self) -> None:
        if self._pressed:
            raise self.error

    def claim(self) -> None:
        """Make this thread report how the command ended; if another thread does, wait for the end of the process."""
        if not self._claimed():
            threading.Event().wait()

    def _claimed(self) -> bool:
        with self._lock:
            first, self._reported = not self._reported, True
        return first

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Handle SIGINT. Only the main thread of a process may, so elsewhere nothing changes."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGINT, self._on_signal)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if not self._pressed:
            self._pressed = True
            threading.Thread(target=self._end_soon, daemon=True).start()
        raise self.error

    def _end_soon(self) -> None:
        """End the process even if a call to the store hangs; deletes that were sent are in the plan."""
        threading.Event().wait(PATIENCE_SECONDS)
        if self._claimed():
            reporting = threading.Thread(target=self._report, args=(self.error,), daemon=True)
            reporting.start()
            reporting.join(TIME_TO_REPORT)
            if reporting.is_alive():  # the plan's store does not answer either
                sys.stderr.write(f"{self.error}\n")
        else:
            threading.Event().wait(TIME_TO_REPORT)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(INTERRUPTED)
