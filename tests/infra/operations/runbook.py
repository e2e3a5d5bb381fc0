"""docs/runbook and docs/operations.md as data: their commands, and the names of things that they look up."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final
from uuid import UUID

from infra.operations.alarms import RUNBOOK
from tests.deployment.shell import simple_commands
from tests.paths import DOCS, ROOT

FOLDER: Final = ROOT / RUNBOOK
PAGES: Final = sorted(FOLDER.glob("*.md"))
WATCHED: Final = [*PAGES, DOCS / "operations.md"]
"""The pages whose commands an operator pastes."""
_FENCE: Final = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_QUOTED: Final = re.compile(r"`((?:aws|delegation|kubectl) [^`]+)`")
_GIVEN: Final = {"TASK_ID": str(UUID(int=7)), "TOMBSTONE_ID": str(UUID(int=8))}
"""Words in capitals that stand for something that a command parses."""


@cache
def text_of(page: Path) -> str:
    """Return a page."""
    return page.read_text(encoding="utf-8")


def blocks(page: Path) -> list[str]:
    """Return the commands of a page that are there to paste."""
    return [re.sub(rf"^{space}", "", body, flags=re.MULTILINE) for space, of, body in _found(page) if of == "sh"]


def _found(page: Path) -> list[tuple[str, str, str]]:
    return _FENCE.findall(text_of(page))


def outside_blocks(page: Path) -> str:
    """Return a page without what is in blocks."""
    return _FENCE.sub("", text_of(page))


def pasted(page: Path) -> Iterator[list[str]]:
    """Yield the words of every command of the page's blocks, those within others too."""
    for block in blocks(page):
        for words in simple_commands(block):
            yield [_GIVEN.get(word, word) for word in words]


def quoted(page: Path) -> Iterator[str]:
    """Yield the commands that the text names outside its blocks."""
    for text in _QUOTED.findall(outside_blocks(page)):
        yield " ".join(_GIVEN.get(word, word) for word in text.split())
