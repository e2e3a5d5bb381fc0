"""The repository's own Python files and their syntax trees, each parsed once per process."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.paths import ROOT


def modules(*folders: str) -> Iterator[Path]:
    """Yield the modules below folders of the repository, in their order."""
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


@cache
def tree_of(path: Path) -> ast.Module:
    """Return the syntax tree of a module; it is shared, so leave it as it is."""
    return ast.parse(path.read_text(encoding="utf-8"))
