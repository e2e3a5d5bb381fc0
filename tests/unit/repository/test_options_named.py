"""What an option with a setting touches: the files that name one, without tests and what a program writes."""

import ast
import re
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from delegation.tasks.options import Option, SetBy
from delegation.wiring.types import TYPES
from tests.kit.sources import modules, tree_of
from tests.paths import ROOT
from tests.regenerate.generators import GENERATORS

MOST: Final = 8
GENERATED: Final = frozenset(pattern for one in GENERATORS for pattern in one.writes)
OPTIONS: Final = [(form.options.prefix, one) for form in TYPES.forms for one in form.options.by(SetBy.BOTH)]


@cache
def texts() -> dict[Path, frozenset[str]]:
    """Return the strings of each module, with those that it imports as a constant of another module of the service."""
    trees = {path: tree_of(path) for path in modules("functions", "infra", "spark")}
    constants = {
        (".".join(path.relative_to(ROOT / "functions").with_suffix("").parts), node.target.id): node.value.value
        for path, tree in trees.items()
        if path.is_relative_to(ROOT / "functions")
        for node in tree.body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and isinstance(node.value, ast.Constant)
    }
    found = {}
    for path, tree in trees.items():
        nodes = list(ast.walk(tree))
        own = {one.value for one in nodes if isinstance(one, ast.Constant) and isinstance(one.value, str)}
        imported = (
            constants.get((str(one.module), name.name))
            for one in nodes
            if isinstance(one, ast.ImportFrom)
            for name in one.names
        )
        found[path] = frozenset(own | {text for text in imported if isinstance(text, str)})
    return found


@pytest.mark.parametrize(("prefix", "option"), OPTIONS, ids=[prefix + one.name for prefix, one in OPTIONS])
def test_an_option_with_its_setting_is_named_in_few_files(prefix: str, option: Option) -> None:
    full = prefix + option.property_name
    by_code = {path for path, found in texts().items() if not found.isdisjoint({option.name, full})}
    in_text = re.compile(rf"`({option.name}|{full})[`=]")
    pages = {path for path in (ROOT / "docs").rglob("*.md") if in_text.search(path.read_text(encoding="utf-8"))}
    named = sorted({str(path.relative_to(ROOT)) for path in by_code | pages} - GENERATED)
    assert any(path.startswith("functions/delegation/removal/") for path in named)
    assert len(named) <= MOST, named
