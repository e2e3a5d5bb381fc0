"""What tests ask of an error that has a code of its own and no class."""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import delegation
from polaris_common.errors import DelegationError
from tests.kit.sources import tree_of

_SOURCES = Path(delegation.__file__).parents[1]


def coded(code: str) -> Callable[[DelegationError], bool]:
    """Return what `pytest.raises(…, check=…)` asks: whether the error has this code."""
    return lambda error: error.code == code


@dataclass(frozen=True, slots=True)
class MadeWithCode:
    """A call in the package that makes an error with a code; `retryable` is None where its class decides that."""

    module: str
    kind: str
    code: str
    retryable: bool | None


@cache
def made_with_code() -> tuple[MadeWithCode, ...]:
    """Return the calls with a `code` that is written out."""
    return tuple(_made())


def _made() -> Iterator[MadeWithCode]:
    for path in sorted(_SOURCES.rglob("*.py")):
        module = ".".join(path.relative_to(_SOURCES).with_suffix("").parts)
        for call in ast.walk(tree_of(path)):
            if isinstance(call, ast.Call):
                given = {one.arg: one.value.value for one in call.keywords if isinstance(one.value, ast.Constant)}
                code, retryable = given.get("code"), given.get("retryable")
                if isinstance(code, str):
                    kind = ast.unparse(call.func).rpartition(".")[2]
                    yield MadeWithCode(module, kind, code, retryable if isinstance(retryable, bool) else None)
