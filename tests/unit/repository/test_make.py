"""`make help` and `help-all` on a terminal of 80 columns, and the exit code of `make simulate`."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.paths import ROOT

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
TARGETS = re.findall(r"^([a-z0-9-]+):.*## (.*)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)


def listed(target: str) -> str:
    env = {"PATH": os.environ["PATH"], "COLUMNS": "80"}
    done = subprocess.run(["make", target], cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    return done.stdout


def test_every_target_is_listed_within_80_columns() -> None:
    lines = listed("help-all").splitlines()
    assert [line for line in lines if len(line) > 80] == []
    assert {name for name, _ in TARGETS} == {line.split()[1] for line in lines if line.startswith("  make ")}
    assert " ".join(" ".join(lines).split()) == " ".join(f"make {name} {purpose}" for name, purpose in TARGETS)
    assert {line[:24].strip() for line in lines if not line.startswith("  make ")} == {""}


def test_help_lists_the_ten_targets_that_the_page_for_contributors_has() -> None:
    short = re.findall(r"^  make (\S+)", listed("help"), re.MULTILINE)
    assert len(short) == 10
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert set(short) == set(re.findall(r"^\| `make ([a-z-]+)", page, re.MULTILINE))


def make(folder: Path, *arguments: str, ends: int) -> subprocess.CompletedProcess[str]:
    """Run make with a Python that prints its arguments and exits with `ends`."""
    python = folder / "bin" / "python"
    python.parent.mkdir(exist_ok=True)
    python.write_text(f'#!/bin/sh\ntouch "$0.ran"\necho "$@"\nexit {ends}\n')
    python.chmod(0o755)
    (folder / ".installed").touch()
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "ARGS"))}
    command = ["make", *arguments, f"VENV={folder}"]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


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
