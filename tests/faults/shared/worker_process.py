"""A `delegation worker` as a separate process, which a run of faults kills and starts again."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_COMMAND = (
    "from infra.local.processes.tether import die_with_parent; die_with_parent()\n"
    "from delegation.cli.main import build; build([])()"
)


class WorkerProcess:
    """A `delegation worker`; `kill` sends SIGKILL."""

    def __init__(self, variables: Mapping[str, str], log: Path, *arguments: str) -> None:
        self.log = log
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                [sys.executable, "-c", _COMMAND, "worker", "--poll", "100ms", *arguments],
                env=dict(variables),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    @property
    def pid(self) -> int:
        return self._popen.pid

    def kill(self) -> None:
        self._popen.kill()
        self._popen.wait()

    def signal(self, number: int) -> None:
        self._popen.send_signal(number)

    def wait(self, timeout_seconds: float = 60) -> int:
        """Wait until it has ended and return the exit status."""
        return self._popen.wait(timeout_seconds)

    def log_entries(self) -> list[dict[str, Any]]:
        """Return the entries of its log."""
        lines = self.log.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
