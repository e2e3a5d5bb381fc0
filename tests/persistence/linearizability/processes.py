"""Processes that say in JSON lines what they do, and that can be killed."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from tests.paths import ROOT


class Process:
    """One process of a module below this package, and what it said so far.

    With `former`, a folder, it runs the package in it instead of this release.
    """

    def __init__(self, module: str, argument: BaseModel, *, number: int = 0, former: Path | None = None) -> None:
        self.number = number
        self.former = former
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"tests.persistence.linearizability.{module}", argument.model_dump_json()],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{former or ROOT / 'functions'}{os.pathsep}{ROOT}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.said: list[dict[str, Any]] = []
        self._reported = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def ready(self) -> "Process":
        self.wait_for("ready", 1)
        return self

    def begin(self, until: float = float("inf")) -> "Process":
        """Let it work until this time of the monotonic clock."""
        assert self._process.stdin
        self._process.stdin.write(f"{until}\n")
        self._process.stdin.flush()
        return self

    def wait_for(self, what: str, times: int) -> None:
        """Wait until it said this so many times, or ended."""
        with self._reported:
            assert self._reported.wait_for(lambda: self.count(what) >= times or self.ended(), timeout=300)

    def kill(self) -> None:
        """End it at once; raise AssertionError if it had ended before."""
        self._process.kill()
        self.wait()
        assert self._process.returncode != 0, "it was faster than the kill"

    def suspend(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def wait(self) -> None:
        self._process.wait(timeout=300)
        self._reader.join()
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.stdout.close()

    def finished(self) -> None:
        self.wait()
        assert self._process.returncode == 0

    def count(self, what: str) -> int:
        return sum(one["what"] == what for one in self.said)

    def end(self) -> None:
        if not self.ended():
            self._process.kill()
            self.wait()

    def ended(self) -> bool:
        return self._process.poll() is not None

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            with self._reported:
                self.said.append(json.loads(line))
                self._reported.notify_all()
        with self._reported:
            self._reported.notify_all()
