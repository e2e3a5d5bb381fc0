"""Programs that build clients of other languages; a test is skipped with the reason where one is missing.

`make clients-check` names the missing program and fails before any test runs.
"""

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.paths import ROOT

OPENAPI = ROOT / "docs" / "openapi.yaml"
_LONGEST_SECONDS = 900


def program(name: str) -> str:
    """Return the path of a program; skips the test without it."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed; make clients-check says what to install")
    return found


def run(*words: str | Path, cwd: Path, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, whatever its exit status."""
    return subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=_LONGEST_SECONDS,
    )


def built(*words: str | Path, cwd: Path) -> str:
    """Run a program that has to succeed; return its output."""
    done = run(*words, cwd=cwd)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout


def generated(generator: str, folder: Path) -> Path:
    """Generate a client from docs/openapi.yaml with openapi-generator; return its folder."""
    shutil.copy(Path(__file__).with_name("pom.xml"), folder)
    maven = program("mvn")
    built(maven, "-q", "-B", f"-Ddelegation.api={OPENAPI}", f"-Dgenerator={generator}", "generate-sources", cwd=folder)
    return folder / "generated"
