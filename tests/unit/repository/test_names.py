"""A class name has one meaning in its package, and names in URLs are encoded in one place."""

import ast
import re
from collections import defaultdict

from tests.kit.sources import modules, tree_of
from tests.paths import ROOT


def test_a_class_name_is_defined_once_in_its_package() -> None:
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for path in modules("functions", "infra", "spark"):
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef):
                found[str(path.parent.relative_to(ROOT)), node.name].append(path.name)
    assert len(found) > 300
    assert {name: places for name, places in found.items() if len(places) > 1} == {}


ENCODES = {
    "functions/delegation/identifiers.py",
    "functions/polaris_persistence/backends/base.py",  # keys of DynamoDB
    "functions/delegation/tasks/life/lanes.py",  # names of lanes
    "infra/local/front/apigateway.py",  # a certificate in a header
}


def test_one_function_encodes_names_for_paths_and_queries() -> None:
    """No other module uses the library's functions, and none leaves a query to its HTTP client."""
    encoding, named = set(), set()
    for path in modules("functions", "infra"):
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ImportFrom) and node.module == "urllib.parse":
                if {"quote", "quote_plus", "quote_from_bytes", "urlencode"} & {one.name for one in node.names}:
                    encoding.add(str(path.relative_to(ROOT)))
            elif isinstance(node, ast.Attribute) and node.attr in {"quote_plus", "urlencode"}:
                encoding.add(str(path.relative_to(ROOT)))
            elif isinstance(node, ast.Call) and any(one.arg == "params" for one in node.keywords):
                named.add(f"{path.relative_to(ROOT)}: {ast.unparse(node.func)}")
    assert encoding == ENCODES
    assert named == {"functions/delegation/polaris/policies.py: self._send"}


def test_the_packages_name_no_module_of_the_infrastructure() -> None:
    """Import contracts do not see a module that is imported by its name; pyproject.toml names that of a checkout."""
    name = re.compile(r"infra(\.\w+)+(:\w+)?")
    named = [
        f"{path.relative_to(ROOT)}: {node.value}"
        for path in modules("functions")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and name.fullmatch(node.value)
    ]
    assert named == []
