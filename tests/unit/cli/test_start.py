"""The help of the command imports typer and little else: a person waits for it, and shells ask for it."""

import subprocess
import sys

import pytest

# Each takes longer to import than the help may take.
HEAVY = {"boto3", "botocore", "cryptography", "httpx", "pydantic", "rich"}
_PRINT = """
import sys
sys.argv = ["delegation", *{words!r}]
from delegation.cli import start
try:
    start()
finally:
    print("imported", *sorted({{name.partition(".")[0] for name in sys.modules}}))
"""


@pytest.mark.parametrize("words", [["--help"], ["tasks", "--help"], ["tasks", "list", "--help"]])
def test_help_imports_nothing_heavy(words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PRINT.format(words=words)], capture_output=True, text=True, check=True, timeout=60
    )
    help_text, _, imported = done.stdout.rpartition("imported ")
    assert "Usage: delegation" in help_text
    assert HEAVY & set(imported.split()) == set()
