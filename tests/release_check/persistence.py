"""Whether the persistence's tests passed with what they read now, which spares a landing these tests.

The persistence and its tests import nothing of the service, so what decides their outcome is below `INPUTS`. A record
in bench/long.json has the digest of the contents with which they passed; it says nothing about a commit, so a clone
without history knows it too. `test-persistence` of the long targets runs them whatever changed.
"""

import hashlib
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from tests.bench.records.results import commit
from tests.paths import ROOT

GROUP: Final = "persistence-tests"
INPUTS: Final = (
    "functions/polaris_common",
    "functions/polaris_persistence",
    "tests/persistence",
    *(f"tests/kit/{name}.py" for name in ("clocks", "errors", "outcomes", "printing", "running", "sources")),
    *(f"tests/{name}.py" for name in ("aws", "conftest", "effort", "paths", "scheduling", "spark_sessions")),
    "tests/bench/bench_commits.py",
    "tests/bench/bench_persistence.py",
    "tests/bench/frame.py",
    "tests/contract/where.py",
    "tests/fixtures/persistence",
    "tests/fixtures/tables",
    "infra/environment/context.py",
    "infra/local/aws",
    "infra/local/errors.py",
    "infra/local/processes",
    "constraints.txt",
    "pyproject.toml",
)


def digest(root: Path = ROOT, inputs: tuple[str, ...] = INPUTS) -> str | None:
    """Return what identifies the committed contents of the inputs; None if a file of them is not as committed."""
    if _git(root, "status", "--porcelain", "--", *inputs):
        return None
    listed = _git(root, "ls-tree", "HEAD", "--", *inputs)
    return hashlib.sha256(listed.encode()).hexdigest()[:20]


def passed_before(known: dict[str, dict[str, Any]], now: str | None) -> bool:
    """Return whether a record says that the tests passed with these contents."""
    return now is not None and known.get(GROUP, {}).get("inputs") == now


def record(now: str) -> dict[str, Any]:
    """Return the record of tests that passed."""
    at = datetime.now(UTC).isoformat(timespec="seconds")
    return {"target": GROUP, "result": "ok", "commit": commit(), "at": at, "inputs": now}


def _git(root: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True).stdout.strip()
