"""The fault for which a runtime is refused, on the last runtime that has it and on the pinned one."""

import json
import os
import subprocess
import sys

import pytest

from delegation.rewrites.runtimes import LOST_ROW_IDS, PINNED, version_of
from tests.paths import ROOT

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(1800)]


@pytest.mark.parametrize(("version", "is_kept"), [("1.11.0", False), (PINNED, True)])
def test_row_ids_after_a_rewrite_of_manifests(version: str, is_kept: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.rewrites.old_runtime", version],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'functions'}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=True,
        timeout=1500,
    )
    assert json.loads(done.stdout.splitlines()[-1]) == {"version": version, "done": 1, "is_kept": is_kept}
    numbers = version_of(version)
    assert numbers is not None
    assert LOST_ROW_IDS.is_in(numbers) is not is_kept
