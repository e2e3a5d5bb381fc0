"""Returns of a test before it has asserted anything: it would pass without having shown what its name says."""

import ast
from collections.abc import Iterator

CHECKS = ("assert", "check", "raises", "fail", "skip")
"""Words in the names of calls that fail or skip a test."""


def silent_returns(function: ast.FunctionDef) -> Iterator[int]:
    """Yield the lines of returns on whose way, in their own block and those around it, nothing was asserted."""
    yield from _silent(function.body, asserted=False)


def _silent(block: list[ast.stmt], *, asserted: bool) -> Iterator[int]:
    for statement in block:
        if isinstance(statement, ast.Return) and not asserted:
            yield statement.lineno
        for inner in _blocks(statement):
            yield from _silent(inner, asserted=asserted)
        asserted = asserted or _asserts(statement)


def _blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return
    for name in ("body", "orelse", "finalbody"):
        yield getattr(statement, name, [])
    for handler in [*getattr(statement, "handlers", []), *getattr(statement, "cases", [])]:
        yield handler.body


def _asserts(statement: ast.stmt) -> bool:
    for node in ast.walk(statement):
        if isinstance(node, ast.Assert):
            return True
        if isinstance(node, ast.Call) and any(word in ast.unparse(node.func) for word in CHECKS):
            return True
    return False
