"""The path of docs/workers.md from nothing to a recurring task with children, followed as it is written.

Only the port of the emulator is another one, because tests of several checkouts may run at once.
"""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from infra.local.processes.programs import import_path
from tests.paths import DOCS

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PORT = "5555"


def path_as_script() -> str:
    """Return the path's commands, and its files as commands that write them, in the page's order."""
    page = (DOCS / "workers.md").read_text(encoding="utf-8")
    path = page[page.index("## Ten minutes") :]
    path = path[: path.index("\n### ")]
    steps = []
    for language, text in BLOCK.findall(path):
        if language == "sh":
            steps.append(text)
        else:
            name = text.splitlines()[0].removeprefix("# ")
            steps.append(f"cat > {name} <<'END OF FILE'\n{text}END OF FILE\n")
    return "".join(steps)


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


@pytest.mark.long
def test_the_path_of_ten_minutes_can_be_followed(tmp_path: Path) -> None:
    script = path_as_script()
    assert script.count(PORT) == 2
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "DELEGATION_"))}
    env = {
        **kept,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": f"{import_path()}:{os.environ.get('PYTHONPATH', '')}",
    }
    followed = subprocess.Popen(
        ["bash", "-eu", "-o", "pipefail", "-c", script.replace(PORT, free_port())],
        cwd=tmp_path,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        printed, _ = followed.communicate(timeout=280)
    finally:
        if followed.poll() is None:
            os.killpg(followed.pid, signal.SIGKILL)
    logs = "\n".join(file.read_text() for file in (tmp_path / "acme-tasks").glob("*.log"))
    assert followed.returncode == 0, printed + logs
    assert "2 passed" in printed
    assert "\n1010\n" in printed
    assert "acme.nightly" in printed
    assert "acme.count" in printed
    assert "CANCELLED" in printed
