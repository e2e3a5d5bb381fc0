"""The tests themselves: each process of a run collects all files, so that stays cheap; none passes silently."""

import ast

import pytest

from tests.kit.silent import silent_returns
from tests.kit.sources import tree_of
from tests.paths import ROOT
from tests.scheduling import IMPORTED_BY_COLLECTION


@pytest.mark.parametrize("package", ["aws_cdk", "schemathesis"])
def test_collection_imports_no_package_that_starts_a_server_or_takes_seconds(package, pytestconfig):
    """Import it inside the fixture or the test that needs it; the CDK starts Node."""
    assert package not in pytestconfig.stash[IMPORTED_BY_COLLECTION]


def test_no_test_returns_before_it_asserted_anything() -> None:
    found = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if "return\n" not in text:
            continue
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                for line in silent_returns(node):
                    found[f"{path.relative_to(ROOT)}:{line}"] = node.name
    assert found == {}


@pytest.mark.parametrize(
    ("body", "silent"),
    [
        ("if x:\n  return\nassert y", True),
        ("try:\n  f()\nexcept ValueError:\n  return\nassert y", True),
        ("assert y\nif x:\n  return", False),
        ("if x:\n  assert y\n  return\nassert z", False),
        ("with pytest.raises(ValueError):\n  f()\nreturn", False),
        ("def inner():\n  return\nassert y", False),
    ],
)
def test_a_silent_return_is_found(body: str, silent: bool) -> None:
    (function,) = ast.parse("def test_it():\n" + "\n".join(f"  {line}" for line in body.splitlines())).body
    assert isinstance(function, ast.FunctionDef)
    assert bool(list(silent_returns(function))) is silent
