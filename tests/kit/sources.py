"""The repository's own Python files and their syntax trees, each parsed once per process."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.paths import ROOT


def modules(*folders: str) -> Iterator[Path]:
    """Yield the modules below folders of the repository, in their order. Raises FileNotFoundError for none."""
    for folder in folders:
        if not (ROOT / folder).is_dir():
            raise FileNotFoundError(f"{folder} is no folder of the repository")
        yield from sorted((ROOT / folder).rglob("*.py"))


@cache
def tree_of(path: Path) -> ast.Module:
    """Return the syntax tree of a module; it is shared, so leave it as it is."""
    return ast.parse(path.read_text(encoding="utf-8"))
