"""`make help-all` on a terminal of 80 columns: every target with its purpose; `make help`: the ten of every day."""

import os
import re
import subprocess

from tests.paths import ROOT

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
