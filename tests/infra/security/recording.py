"""The committed recording of AWS calls: which calls each role's code made in the test runs of `record.py`."""

import json
import os
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Final

from tests.infra.security.recorder import Call
from tests.paths import ROOT

COMMITTED: Final = ROOT / "tests" / "infra" / "security" / "recorded" / "calls.json"
COMMAND: Final = "python -m tests.infra.security.record"
RECORDING_NOW: Final = "RECORDING_NOW"
"""Set while `record.py` runs the tests, whose calls are then the new recording and are compared with nothing."""


def committed() -> frozenset[Call]:
    """Return the committed calls."""
    document: dict[str, list[list[str]]] = json.loads(COMMITTED.read_text(encoding="utf-8"))
    return frozenset((role, *_three(call)) for role, calls in document.items() for call in calls)


def in_folder(folder: Path) -> frozenset[Call]:
    """Return the calls that processes recorded in a folder."""
    found: set[Call] = set()
    for file in folder.glob("*.jsonl"):
        for line in file.read_text(encoding="utf-8").splitlines():
            role, *call = json.loads(line)
            found.add((role, *_three(call)))
    return frozenset(found)


def written(calls: Iterable[Call]) -> str:
    """Return the text of a recording: for each role its calls, sorted, one a line."""
    roles = {
        role: ",\n".join(f"    {json.dumps(call[1:])}" for call in group)
        for role, group in groupby(sorted(set(calls)), key=lambda call: call[0])
    }
    return "{\n" + ",\n".join(f"  {json.dumps(role)}: [\n{lines}\n  ]" for role, lines in roles.items()) + "\n}\n"


def require_known(folder: Path) -> None:
    """Raise AssertionError for calls in a folder that are not in the committed recording: it is out of date."""
    if RECORDING_NOW in os.environ:
        return
    unknown = sorted(in_folder(folder) - committed())
    assert not unknown, (
        f"calls that {COMMITTED.relative_to(ROOT)} does not have: {unknown}. Its roles may lack the permission: "
        f"run `{COMMAND}`, then the tests of tests/infra/security"
    )


def _three(call: list[str]) -> tuple[str, str, str]:
    service, operation, resource = call
    return service, operation, resource
