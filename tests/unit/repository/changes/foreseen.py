"""Two changes that somebody will make one day: the files that they touch, and what has to hold once they are made.

`python -m tests.unit.repository.changes.foreseen NAME` checks the change of that name in the tree that it is run in.
"""

import filecmp
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any, Final

import pytest
from botocore.exceptions import ClientError
from rich.console import Console

from delegation.cli.tasks.screens import task_screen
from delegation.edge.answers import problem_of
from delegation.edge.codes import by_code
from delegation.tasks.errors import TaskError
from delegation.tasks.life.model import Status
from delegation.tasks.life.policy import Lease
from delegation.tasks.life.transitions import acquire
from delegation.tasks.stores import codec
from delegation.tasks.stores.dynamodb import ConditionalTable, DynamoDbTaskStore
from delegation.wire.tasks import TaskRecord, shown
from infra import api_schemas, error_page
from tests.kit.tasks.builders import in_status
from tests.paths import ROOT

NOW: Final = datetime(2026, 11, 1, tzinfo=UTC)
FIELD: Final = "first_acquired_ts"
CODE: Final = "STORE_BLOCKED"


@dataclass(frozen=True, slots=True)
class ForeseenChange:
    """A change: for each file written by hand texts that are there once and what replaces each, and generators to run.

    It must touch `most` files or fewer, generated ones included. `check` is true of the changed tree.
    """

    edits: Mapping[str, tuple[tuple[str, str], ...]]
    generators: tuple[str, ...]
    most: int
    check: Callable[[], None]


class BlockedClient:
    """A client of DynamoDB whose role may do nothing."""

    def get_item(self, **_: Any) -> Any:
        raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "GetItem")


def error_is_answered() -> None:
    """A store that only an operator can unblock raises the new error; API and page describe it by its code."""
    store = DynamoDbTaskStore(ConditionalTable(BlockedClient(), sleep=lambda _: None), "tasks")
    with pytest.raises(TaskError) as raised:
        store.get("task-1")
    assert type(raised.value).__name__ == "StoreBlocked"
    problem = problem_of(raised.value)
    assert (problem.status, problem.error) == (500, CODE)
    assert f"`{CODE}` 500 | {by_code()[CODE].meaning} |" in error_page.page()


def field_is_stored_and_shown() -> None:
    """The time of the first attempt is set once, stored, read back, answered, described, and on the screen."""
    lease = Lease(NOW, NOW)
    first = acquire(in_status(Status.SUBMITTED), "worker-1", NOW, lease)
    assert getattr(first, FIELD) == NOW
    assert getattr(codec.task_of(codec.head_item(first)), FIELD) == NOW
    answer = shown(first.public())
    record = TaskRecord.of(answer)
    assert answer[FIELD] == "2026-11-01T00:00:00.000000Z"
    assert getattr(record, FIELD) == NOW
    assert FIELD in api_schemas.schemas()["TaskRecord"]["properties"]
    written = StringIO()
    Console(file=written, width=100).print(task_screen(record))
    assert FIELD in written.getvalue()


CHANGES: Final[Mapping[str, ForeseenChange]] = {
    "a new store error": ForeseenChange(
        edits={
            "functions/delegation/tasks/stores/dynamodb.py": (
                (
                    "CallOutcome.INVALID: StoreRefused}",
                    "CallOutcome.INVALID: StoreRefused, CallOutcome.BLOCKED: StoreBlocked}",
                ),
                (
                    "class ConditionalTable(DynamoDbCalls):",
                    (
                        "class StoreBlocked(StoreUnavailable):\n"
                        '    """Until an operator changes a table or a permission, no call can succeed."""\n\n'
                        f'    code = "{CODE}"\n    retryable = False\n\n\n'
                        "class ConditionalTable(DynamoDbCalls):"
                    ),
                ),
            ),
            "functions/delegation/edge/codes.json": (
                (
                    '    "STORE_UNAVAILABLE": {',
                    (
                        f'    "{CODE}": {{\n      "status": 500,\n"meaning": "The role may not use a table.",\n'
                        '      "action": "Compare the role with the deployment."\n    },\n'
                        '    "STORE_UNAVAILABLE": {'
                    ),
                ),
            ),
        },
        generators=("infra.error_page",),
        most=3,
        check=error_is_answered,
    ),
    "a new stored field of the API": ForeseenChange(
        edits={
            "functions/delegation/tasks/life/model.py": (
                (
                    "    eta_ts: Timestamp | None = None\n",
                    f"    eta_ts: Timestamp | None = None\n    {FIELD}: Timestamp | None = None\n",
                ),
            ),
            "functions/delegation/tasks/life/transitions.py": (
                (
                    "        attempt_count=task.attempt_count + 1,\n",
                    f"        attempt_count=task.attempt_count + 1,\n        {FIELD}=task.{FIELD} or now,\n",
                ),
            ),
            "functions/delegation/wire/tasks.py": (
                (
                    "    eta_ts: AwareDatetime | None = None\n    purged_identifier",
                    (
                        f"    eta_ts: AwareDatetime | None = None\n    {FIELD}: AwareDatetime | None = None\n"
                        "    purged_identifier"
                    ),
                ),
            ),
        },
        generators=("infra.api_schemas",),
        most=5,
        check=field_is_stored_and_shown,
    ),
}


def changed(change: ForeseenChange, tree: Path) -> list[str]:
    """Make the change in a copy of the repository, and return the files that it touched.

    Raises CalledProcessError, with the output printed, if what has to hold then does not.
    """
    for top in ("functions", "infra", "docs", "tests"):
        shutil.copytree(ROOT / top, tree / top, ignore=shutil.ignore_patterns("__pycache__"))
    for one in ("cdk.json", "pyproject.toml"):
        shutil.copy(ROOT / one, tree / one)
    for name, pairs in change.edits.items():
        text = (tree / name).read_text(encoding="utf-8")
        for former, new in pairs:
            assert text.count(former) == 1, f"{name}: the text to replace is there {text.count(former)} times: {former}"
            text = text.replace(former, new)
        (tree / name).write_text(text, encoding="utf-8")
    env = {**os.environ, "PYTHONPATH": f"{tree / 'functions'}{os.pathsep}{tree}"}
    (name,) = (name for name, one in CHANGES.items() if one is change)
    for words in (("tests.regenerate", *change.generators), (__name__, name)):
        subprocess.run([sys.executable, "-W", "ignore", "-m", *words], cwd=tree, env=env, check=True)
    return sorted(
        str(path.relative_to(tree))
        for path in tree.rglob("*")
        if path.is_file()
        and path.suffix != ".pyc"
        and not filecmp.cmp(path, ROOT / path.relative_to(tree), shallow=False)
    )


if __name__ == "__main__":
    CHANGES[sys.argv[1]].check()
