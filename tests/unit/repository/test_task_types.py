"""Code that serves tasks of every type names none: no string, name or import of the purge outside its rooms."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.kit.sources import tree_of
from tests.paths import ROOT

CODE = ROOT / "functions" / "delegation"
GENERIC = ("tasks", "edge", "orchestration", "idempotency", "notifications", "wire", "wiring", "handlers", "cli/tasks")
"""What serves every type; the operations, the gateway and the client are rooms of their own."""
ROOMS = {
    "wire/tables.py": "the body of a purge",
    "wire/operators.py": "what an operator does with a dropped table",
    "wire/responses.py": "the answers of the proposal, whose totals are those of a purge",
    "edge/api/tombstones.py": "what an operator does with a dropped table",
    "edge/api/endpoints.py": "the path of an operation on a tombstone",
    "edge/api/app.py": "the route of that path",
    "wire/tasks.py": "the members that a purge adds to a record",
    "cli/tasks/screens.py": "the members that a purge adds to a record",
    "cli/tasks/filters.py": "the words of the commands that submit tasks",
    "wiring/settings.py": "the variables of processes that purge",
    "wiring/types.py": "the list",
    "wiring/operations.py": "what makes the behaviors of purges and of the rest",
    "wiring/removals.py": "what runs expiries and removals finds other tables' references as purges do",
    "wiring/rewrites.py": "what runs rewrites has the plan store and the engine's setting that purges have",
    "wiring/gateway.py": "whether drops with purge are taken over",
    "wiring/drops.py": "what drops tables with their files",
    "wiring/spark.py": "the Spark engine of purges",
    "wiring/upkeep.py": "the access to tables that purges have",
}


def words_of(path: Path) -> Iterator[str]:
    """Yield the names, imported modules and strings of a module, without its docstrings."""
    tree = tree_of(path)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docs = {id(node.body[0].value) for node in ast.walk(tree) if isinstance(node, documented) and is_doc(node.body)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            docs.add(id(node.value))
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in docs:
                yield text
            case ast.Name(id=name) | ast.arg(arg=name) | ast.Attribute(attr=name):
                yield name
            case ast.ImportFrom(module=str(module), names=names):
                yield from (module, *(one.name for one in names))
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case _:
                pass


def is_doc(body: list[ast.stmt]) -> bool:
    return bool(body) and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)


def naming(folder: str) -> dict[str, list[str]]:
    found = {}
    for path in sorted((CODE / folder).rglob("*.py")):
        name = path.relative_to(CODE).as_posix()
        words = sorted({word for word in words_of(path) if "purge" in word.lower()})
        if words and not any(name == room or name.startswith(f"{room}/") for room in ROOMS):
            found[name] = words
    return found


def test_what_serves_every_task_type_names_no_purge() -> None:
    assert {folder: found for folder in GENERIC if (found := naming(folder))} == {}


def test_every_room_is_needed() -> None:
    for room in ROOMS:
        paths = [CODE / room] if room.endswith(".py") else list((CODE / room).rglob("*.py"))
        assert any("purge" in word.lower() for path in paths for word in words_of(path)), room
