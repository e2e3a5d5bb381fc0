"""Measured processes: each is started anew, watched with all its children, and prints its figures at the end."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from tests.bench.loads.big_table import BigTable
from tests.bench.servers.s3_server import S3Server
from tests.paths import ROOT

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "bench",
    "AWS_SECRET_ACCESS_KEY": "bench",
    "AWS_DEFAULT_REGION": "us-east-1",
    "PYSPARK_PYTHON": sys.executable,
}
CONTENDERS = Path(__file__).parents[1] / "contenders" / "purge.py"
_EVERY = 0.25


def run(
    name: str, server: S3Server, table: BigTable, *options: str, whole: bool = True, script: Path = CONTENDERS
) -> dict[str, float]:
    """Run one contender on the complete table, check that it deleted the table if `whole`, and return its figures.

    `tree_mb` is the peak memory of the process and all its descendants, with shared pages counted once (PSS), `java_mb`
    the part of Java; `tree_cpu` is their CPU time in seconds. `disk_mb` is the peak of the temporary files of Python.
    """
    server.reset()
    found = measured(name, sys.executable, str(script), name, server.url, table.metadata_location, *options)
    left, others, calls = server.state()
    if whole and "--dry-run" not in options and (left or others > (name != "ours")):
        raise SystemExit(f"{name} left {left} objects and deleted {others} others")
    return found | {"left": left, "others": others, "calls": calls}


def measured(name: str, *command: str) -> dict[str, float]:
    """Run a command, and return the figures that it prints as its last line with those of `run`."""
    path = os.pathsep.join([str(ROOT / "functions"), str(ROOT)])
    with (
        tempfile.TemporaryDirectory() as scratch,
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as err,
    ):
        environment = {**os.environ, **ENVIRONMENT, "PYTHONPATH": path, "TMPDIR": scratch}
        process = subprocess.Popen(command, stdout=out, stderr=err, env=environment)
        watch = _Watch(process.pid, Path(scratch))
        watch.start()
        code = process.wait()
        seen = watch.finish()
        if code:
            err.seek(0)
            raise SystemExit(f"{name} ended with {code}:\n{err.read()[-4_000:]}")
        out.seek(0)
        figures: dict[str, float] = json.loads(out.read().splitlines()[-1])
    return figures | seen


class _Watch(threading.Thread):
    """Measures a process and all its descendants until `finish` is called."""

    def __init__(self, pid: int, scratch: Path) -> None:
        super().__init__(daemon=True)
        self._pid, self._scratch = pid, scratch
        self._finished = threading.Event()
        self._peak = (0.0, 0.0)
        self._disk = 0.0
        self._cpu: dict[int, float] = {}
        self._java: set[int] = set()

    def run(self) -> None:
        while not self._finished.wait(_EVERY):
            java = python = 0.0
            for pid in list(_tree(self._pid)):
                name, cpu = _process(pid)
                self._cpu[pid] = max(cpu, self._cpu.get(pid, 0.0))
                if name == "java":
                    self._java.add(pid)
                if name == "java":
                    java += _megabytes(pid)
                else:
                    python += _megabytes(pid)
            self._peak = max(self._peak, (java, python), key=sum)
            self._disk = max(self._disk, _space(self._scratch))

    def finish(self) -> dict[str, float]:
        self._finished.set()
        self.join()
        java, python = self._peak
        java_cpu = sum(self._cpu[pid] for pid in self._java)
        whole = sum(self._cpu.values())
        return {
            "tree_mb": java + python,
            "java_mb": java,
            "tree_cpu": whole,
            "java_cpu": java_cpu,
            "disk_mb": self._disk,
        }


def _space(folder: Path) -> float:
    """Return the megabytes of all files below a folder, while others write and delete there."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += Path(path, name).stat().st_size
    return total / 2**20


def _tree(pid: int) -> Iterator[int]:
    yield pid
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        children = [child for thread in threads for child in (thread / "children").read_text().split()]
    except OSError:
        return
    for child in children:
        yield from _tree(int(child))


def _process(pid: int) -> tuple[str, float]:
    """Return a process's program and its CPU seconds."""
    try:
        _, _, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")
    except OSError:  # it ended meanwhile
        return "", 0.0
    name, _, fields = rest.rpartition(") ")
    user, system = fields.split()[11:13]
    return name, (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _megabytes(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:")), 0.0)
