"""A class of errors is there for somebody who catches it; any other error is its parent with a code of its own."""

import ast
from functools import cache
from pathlib import Path

from tests.kit.errors import made_with_code
from tests.kit.sources import modules, tree_of
from tests.paths import ROOT

# Callers of the client's errors, and authors of behaviors, are elsewhere.
PUBLISHED = "functions/delegation/client/"
KEPT = {
    "CatalogNotReached": "caught as its other base, NothingDone",
    "ChildFailed": "exported to authors of behaviors",
    "CommitRefused": "caught as its base RewriteError; the fence alone raises it",
    "SessionLost": "caught as its base RewriteEngineFailed; the worker ends with it",
    "FilesAtAnotherTable": "its family has count and sample, and others of it are caught",
    "StoredSettingsError": "no DelegationError: pydantic takes a ValueError for a setting that is not valid",
    "WorkCancelledItself": "its name is in the text that is recorded on a task",
}


def name_of(node: ast.AST | None) -> str:
    """The last part of a dotted name; "" for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def classes() -> dict[str, tuple[Path, list[str]]]:
    """The classes of the deployed code, with their files and the names of their bases."""
    return {
        node.name: (path, [name_of(base) for base in node.bases])
        for path in modules("functions", "spark")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ClassDef)
    }


@cache
def errors() -> dict[str, tuple[Path, list[str]]]:
    every, found = classes(), {"Exception", "BaseException", "RuntimeError", "ValueError"}
    before = 0
    while before < len(found):
        before = len(found)
        found |= {name for name, (_, bases) in every.items() if found.intersection(bases)}
    return {name: every[name] for name in found if name in every}


def used_as_class(path: Path) -> set[str]:
    """The names that a file has in an `except`, a table or an `isinstance`: all but those of calls and raises."""
    found: set[str] = set()
    made: set[ast.AST] = set()
    for node in ast.walk(tree_of(path)):
        match node:
            case ast.Call():
                made.add(node.func)
            case ast.Raise() if node.exc is not None:
                made.add(node.exc)
            case ast.ClassDef():
                made.update(inner for base in node.bases for inner in ast.walk(base))
            case ast.FunctionDef() if node.returns is not None:
                made.update(ast.walk(node.returns))
        if node not in made:  # breadth first: what is made is known before it is met
            found.add(name_of(node))
    return found


def caught_by_tests(names: set[str]) -> set[str]:
    """Those of the names that a test catches as a caller does; what it only expects is no catch."""
    found: set[str] = set()
    for path in modules("tests"):
        text = path.read_text(encoding="utf-8")
        if not any(name in text for name in names):
            continue
        for node in ast.walk(tree_of(path)):
            match node:
                case ast.ExceptHandler() if node.type is not None:
                    found.update(map(name_of, ast.walk(node.type)))
                case ast.Call() if name_of(node.func) in {"isinstance", "suppress"}:
                    found.update(name_of(inner) for one in node.args for inner in ast.walk(one))
    return found & names


def uncaught() -> set[str]:
    """The errors that nobody catches or has in a table of classes, and that are no parent of others."""
    found = errors()
    used = {name for path in modules("functions", "infra", "spark") for name in used_as_class(path)}
    parents = {base for _, names in found.values() for base in names} | {made.kind for made in made_with_code()}
    unused = {
        name
        for name, (path, _) in found.items()
        if name not in used | parents and not path.is_relative_to(ROOT / PUBLISHED)
    }
    return unused - caught_by_tests(unused)


def test_a_class_of_errors_is_caught_by_somebody() -> None:
    assert {"TaskNotFound", "LeaseLost", *KEPT} <= errors().keys()
    assert uncaught() == KEPT.keys()
