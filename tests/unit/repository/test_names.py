"""Class names are unique across the service, its jobs and its infrastructure."""

import ast
from collections import defaultdict

from tests.kit.sources import modules, tree_of
from tests.paths import ROOT


def test_a_class_name_is_defined_once() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for folder in ("functions", "infra", "spark"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(tree_of(path)):
                if isinstance(node, ast.ClassDef):
                    found[node.name].append(str(path.relative_to(ROOT)))
    assert len(found) > 300
    assert {name: places for name, places in found.items() if len(places) > 1} == {}


def test_what_the_tests_share_has_a_name_of_its_own() -> None:
    """A clock of tests/kit is the only class of its name in the tests, and there is one `Site`."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef):
                found[node.name].append(str(path.relative_to(ROOT)))
    shared = {name for name, places in found.items() if any(place.startswith("tests/kit/") for place in places)}
    assert {"Clock", "MicrosecondClock", "SleptSeconds"} <= shared
    assert {name: found[name] for name in shared if len(found[name]) > 1} == {}
    assert len(found["Site"]) <= 1


ENCODES = {
    "functions/delegation/identifiers.py",
    "functions/polaris_persistence/backends/base.py",  # keys of DynamoDB
    "functions/delegation/tasks/life/admission/lanes.py",  # names of lanes
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
