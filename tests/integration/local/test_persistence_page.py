"""The first ten minutes of docs/persistence.md, as a user types them: a stack, a table, and its catalog in DynamoDB."""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.local.stack_process import StackProcess
from tests.paths import DOCS, ROOT

pytestmark = [pytest.mark.stack, pytest.mark.dynamodb_local, pytest.mark.timeout(300)]
CHAPTER = re.split(r"^## ", (DOCS / "persistence.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("checkout")
    [up] = re.findall(r"^    \.venv/bin/delegation local up (.*)$", CHAPTER, re.MULTILINE)
    stack = StackProcess(folder / ".local", *shlex.split(up))
    try:
        stack.ready()
        assert "catalog in persistence" in stack.output
        yield folder
    finally:
        stack.end(signal.SIGTERM)


def run(folder: Path, name: str) -> list[str]:
    """Save the block of a file, and run it as the page says."""
    [text] = re.findall(rf"^```python\n# {name}\n(.*?)^```$", CHAPTER, re.MULTILINE | re.DOTALL)
    (folder / "acme").mkdir(exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, name], cwd=folder, env=environment, check=False, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


@pytest.mark.long
def test_a_table_of_the_page_is_in_dynamodb(folder: Path) -> None:
    assert run(folder, "acme/table.py") == ["3"]
    assert run(folder, "acme/look.py") == [
        "3 swap_all",
        "2 add",
        "1 create_namespace",
        "('namespace', '0', 'ten') local-namespace",
        "('table', '1', 'ten', 'minutes') local-table",
    ]
