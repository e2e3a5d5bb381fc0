"""`make help` on a terminal of 80 columns: every target with its purpose, in two columns."""

import os
import re
import subprocess

from tests.paths import ROOT


def test_every_target_is_listed_within_80_columns() -> None:
    env = {"PATH": os.environ["PATH"], "COLUMNS": "80"}
    done = subprocess.run(["make", "help"], cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert [line for line in lines if len(line) > 80] == []
    targets = re.findall(r"^([a-z0-9-]+):.*## (.*)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert {name for name, _ in targets} == {line.split()[1] for line in lines if line.startswith("  make ")}
    assert " ".join(done.stdout.split()) == " ".join(f"make {name} {purpose}" for name, purpose in targets)
    assert {line[:24].strip() for line in lines if not line.startswith("  make ")} == {""}
