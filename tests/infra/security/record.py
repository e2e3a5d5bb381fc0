"""`python -m tests.infra.security.record`: runs the tests that show the roles' calls, and writes the recording anew.

The runs bring up the local stack, with and without the gateway, and take ten minutes on two cores.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.infra.security import recording
from tests.infra.security.recorder import plugin_environment
from tests.paths import ROOT

RUNS: Final = (
    "tests/unit/handlers",
    "tests/integration/acceptance",
    "tests/integration/local/test_notifications.py",
    "tests/gateway/test_pyiceberg.py",
)
"""The tests whose functions and Spark jobs make calls with the roles' credentials."""


def main() -> int:
    """Record, and return pytest's status; after a failed test the former recording stays."""
    with tempfile.TemporaryDirectory() as folder:
        recorded = Path(folder)
        environment = {**os.environ, **plugin_environment(recorded), recording.RECORDING_NOW: "1"}
        command = [sys.executable, "-m", "pytest", "-q", "-m", "", *RUNS]
        status = subprocess.run(command, env=environment, cwd=ROOT, check=False).returncode
        if status != 0:
            sys.stderr.write(f"{recording.COMMITTED} is unchanged, because a test failed\n")
            return status
        before, after = recording.committed(), recording.in_folder(recorded)
    recording.COMMITTED.write_text(recording.written(after), encoding="utf-8")
    for sign, calls in (("-", before - after), ("+", after - before)):
        sys.stdout.write("".join(f"{sign} {' '.join(call)}\n" for call in sorted(calls)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
