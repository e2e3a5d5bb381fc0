"""The known faults of runtimes, on the last runtime that has them and on the pinned one."""

import json
import os
import subprocess
import sys

import pytest

from delegation.rewrites.runtimes import FAULTS, PINNED, version_of
from tests.paths import ROOT

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(1800)]


@pytest.mark.parametrize(("version", "has_faults"), [("1.11.0", True), (PINNED, False)])
def test_a_runtime_shows_the_faults_that_are_stated_of_it(version: str, has_faults: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.rewrites.faults", version],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'functions'}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=True,
        timeout=1500,
    )
    shown = [fault.fixed_by for fault in FAULTS] if has_faults else []
    assert json.loads(done.stdout.splitlines()[-1]) == {"version": version, "faults": shown}
    numbers = version_of(version)
    assert numbers is not None
    assert [fault.fixed_by for fault in FAULTS if fault.is_in(numbers)] == shown
