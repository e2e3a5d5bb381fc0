"""The commands that a page of the documentation has a newcomer run on one machine."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from infra.local.processes.programs import import_path
from tests.integration.local.stack_process import StackProcess
from tests.paths import ROOT

_MAIN = "from delegation.cli.main import main; main()"
_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"


def commands(page: str, heading: str) -> list[list[str]]:
    """Return the words after `delegation` of each command of a section, in their order."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = re.findall(r"^    delegation (.*)$", section.replace("\\\n", " "), re.MULTILINE)
    return [shlex.split(line) for line in lines]


class Newcomer:
    """A person who runs a page's commands one after the other, and copies the ids that they print."""

    def __init__(self, state: Path, up: list[str]) -> None:
        assert up[:2] == ["local", "up"]
        self.process = StackProcess(state, *up[2:])
        self.process.ready()
        self.ids: dict[str, str] = {}

    def run(self, *words: str, seconds: float = 240) -> str:
        """Run a command with the ids that were copied; return what it printed. It has to succeed."""
        done = subprocess.run(
            [sys.executable, "-c", _MAIN, *(self.ids.get(word, word) for word in words)],
            env={**os.environ, "PYTHONPATH": import_path(), "DELEGATION_STACK": str(self.process.path)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        for name, pattern in {"PLAN": f"approve ({_UUID}/[0-9]+/[0-9a-f]+)", "TASK_ID": f"receipt ({_UUID})"}.items():
            for found in re.findall(pattern, done.stdout):
                self.ids[name] = found
        return done.stdout
