"""No file imports another one that imports it, over any number of others; imports for annotations count."""

import ast
import subprocess
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from tests.kit.sources import tree_of
from tests.paths import ROOT

FUNCTIONS = ROOT / "functions"
LEFT = {"delegation.tasks.stores.persistence_records"}
"""The store names what is in it, and its classes' constructors name the store."""


def modules() -> dict[str, Path]:
    found = {}
    for path in FUNCTIONS.rglob("*.py"):
        name = ".".join(path.relative_to(FUNCTIONS).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = path
    return found


def tracked() -> list[str]:
    """Return the modules that git knows: the reading must not pass because it found none."""
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=FUNCTIONS, capture_output=True, text=True, check=True)
    return listed.stdout.splitlines()


def imported(path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    """Yield the modules that a file imports outside of its functions, for types alone too."""
    tree = tree_of(path)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    late = {id(node) for function in functions for node in ast.walk(function)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and id(node) not in late:
            for one in node.names:
                whole = f"{node.module}.{one.name}"
                if whole in known:
                    yield whole
                elif node.module in known:
                    yield node.module


def circle_of(graph: Mapping[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_file_is_in_a_circle_of_imports() -> None:
    known = modules()
    graph = {
        name: {one for one in imported(path, known) if one != name} for name, path in known.items() if name not in LEFT
    }
    assert len(graph) > 0.95 * len(tracked())
    assert circle_of(graph) == []


def test_a_circle_is_found() -> None:
    assert set(circle_of({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": set()})) == {"a", "b", "c"}
