"""`make simulate` has the exit code of the simulator, although make itself ends with 0 or 2."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.paths import ROOT

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def make(folder: Path, *arguments: str, ends: int) -> subprocess.CompletedProcess[str]:
    """Run make with a Python that prints its arguments and exits with `ends`."""
    python = folder / "bin" / "python"
    python.parent.mkdir(exist_ok=True)
    python.write_text(f'#!/bin/sh\ntouch "$0.ran"\necho "$@"\nexit {ends}\n')
    python.chmod(0o755)
    (folder / ".installed").touch()
    return subprocess.run(
        ["make", *arguments, f"VENV={folder}"],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "ARGS"))},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(("ends", "status"), [(0, 0), (1, 1), (2, 2), (137, 2)])
def test_make_has_the_exit_code_of_the_simulator(tmp_path: Path, ends: int, status: int) -> None:
    done = make(tmp_path, "simulate", "SEEDS=7", "MUTATION=drift", ends=ends)
    assert done.returncode == status
    assert done.stdout.splitlines()[-1] == "-m tests.faults.simulator.simulate --seeds 7 --mutation drift"


def test_the_store_can_be_chosen(tmp_path: Path) -> None:
    done = make(tmp_path, "simulate", "SEEDS=7", "STORE=persistence", ends=0)
    assert done.stdout.splitlines()[-1] == "-m tests.faults.simulator.persistence --seeds 7 --mutation none"


def test_a_dry_run_runs_nothing(tmp_path: Path) -> None:
    done = make(tmp_path, "-n", "simulate", ends=3)
    assert done.returncode == 0
    assert not (tmp_path / "bin" / "python.ran").exists()
