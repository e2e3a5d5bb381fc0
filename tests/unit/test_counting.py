"""Nouns agree with their numbers: in the helper, and wherever a command or an error counts something."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from polaris_common.errors import counted
from tests.kit.sources import tree_of
from tests.paths import ROOT

CLI = ROOT / "functions" / "delegation" / "cli"
NONE_IS_ONE = {"references.py", "connection.py", "screens.py"}
"""Files in which the number before a plural is never 1: refused if it is 1, or tested just before."""
NOUN = re.compile(
    r"^ (?:[a-z-]+ )?(?:tasks|files|tables|records|versions|links|properties|changes|checks|outputs|subscriptions|"
    r"prices|entries|letters|messages|purges|namespaces|views|tombstones|attempts|pauses|grants|rows|objects)\b"
)


@pytest.mark.parametrize(("number", "expected"), [(0, "0 tasks"), (1, "1 task"), (2, "2 tasks"), (1200, "1,200 tasks")])
def test_a_number_has_its_noun(number, expected):
    assert counted(number, "task") == expected


def test_a_noun_may_have_a_plural_of_its_own():
    assert (counted(1, "entry", "entries"), counted(3, "entry", "entries")) == ("1 entry", "3 entries")


def plurals(path: Path) -> Iterator[str]:
    """Yield the places of f-strings that put a bare number before a plural; a text after `of ?` may be unknown."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.JoinedStr):
            for value, text in zip(node.values, node.values[1:], strict=False):
                if (
                    isinstance(value, ast.FormattedValue)
                    and isinstance(text, ast.Constant)
                    and NOUN.match(str(text.value))
                    and re.search(r"len\(|_count|files|tables|number|running|waiting|left", ast.unparse(value.value))
                ):
                    yield f"{path.name}:{node.lineno}"


@pytest.mark.parametrize("path", sorted(CLI.rglob("*.py")), ids=lambda path: path.relative_to(CLI).as_posix())
def test_no_command_counts_1_tasks(path):
    assert [place for place in plurals(path) if place.split(":")[0] not in NONE_IS_ONE] == []
