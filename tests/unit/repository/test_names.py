"""Class names are unique across the service, its jobs and its infrastructure."""

import ast
from collections import defaultdict

from tests.paths import ROOT


def test_a_class_name_is_defined_once() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for folder in ("functions", "infra", "spark"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    found[node.name].append(str(path.relative_to(ROOT)))
    assert len(found) > 300
    assert {name: places for name, places in found.items() if len(places) > 1} == {}
