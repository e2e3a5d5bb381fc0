"""The gateway knows every path of the catalog's documents: its mutations under a key are honoured, refused, or listed.

`openapi` has the methods and paths of the documents, with their version and date, so that an update shows what is new.
"""

import json
import re
from pathlib import Path

import pytest

from delegation.gateway.keys.rules import RULES
from delegation.gateway.routing import Forwarded, KeyedMutation, Operation, UnknownMutation, route_of
from tests.unit.gateway.keys.mutations import CASES, Case
from tests.unit.gateway.keys.stand_in import KeyedCatalog
from tests.unit.gateway.world import request

DOCUMENTS = [json.loads(file.read_text("utf-8")) for file in sorted(Path(__file__).with_name("openapi").iterdir())]
OPERATIONS = sorted({each for document in DOCUMENTS for each in document["operations"]})
PAGE = Path("docs/gateway.md").read_text("utf-8")


def listed(heading: str) -> set[str]:
    """The operations of a row of the page's table."""
    row = next(line for line in PAGE.splitlines() if line.startswith(f"| {heading}"))
    groups = re.findall(r"`([A-Z]+)` ((?:`/\S+`(?:, )?)+)", row)
    return {f"{method} {path}" for method, paths in groups for path in re.findall(r"`(\S+?)`", paths)}


def short(operation: str) -> str:
    """An operation as the page writes it."""
    method, path = operation.split()
    return f"{method} {path.replace('/v1/{prefix}', '', 1).replace('/v1', '', 1)}"


def routed(operation: str, prefix: str = "lake", **headers: str):
    method, path = operation.split()
    values = {"prefix": prefix, "namespace": "namespaces", "table": "tables", "view": "views"}
    return route_of(request(method, re.sub(r"\{(.+?)\}", lambda name: values.get(name[1], "x"), path[1:]), **headers))


def test_the_documents_are_dated():
    assert [document["document"].split()[0] for document in DOCUMENTS] == ["apache/iceberg", "apache/polaris"]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d", document["date"]) for document in DOCUMENTS)
    assert len(OPERATIONS) > 50


@pytest.mark.parametrize("operation", OPERATIONS)
def test_each_operation_with_a_key_is_honoured_refused_or_listed_as_forwarded(operation: str):
    route = routed(operation, idempotency_key="k")
    if operation.startswith(("GET ", "HEAD ")):
        assert operation == "GET /v1/config" or route == Forwarded()
        return
    match route:
        case KeyedMutation():
            assert short(operation) in listed("honoured")
        case UnknownMutation():
            assert short(operation) in listed("refused") or " /polaris/" in short(operation)
        case _:
            assert route == Forwarded()
            assert short(operation) in listed("forwarded")


@pytest.mark.parametrize("operation", OPERATIONS)
def test_no_operation_without_a_key_is_a_mutation_of_the_gateway(operation: str):
    assert operation == "GET /v1/config" or routed(operation) == Forwarded()


def test_the_page_lists_no_operation_that_the_documents_lack():
    assert "all paths below `/polaris/`" in next(line for line in PAGE.splitlines() if line.startswith("| refused"))
    known = {short(each) for each in OPERATIONS}
    assert listed("honoured") | listed("refused") | listed("forwarded") <= known


def test_each_mutation_that_is_honoured_is_one_of_the_documents_and_has_a_rule_and_a_case_of_its_effects():
    routes = [routed(each, idempotency_key="k") for each in OPERATIONS]
    honoured = {route.target.operation for route in routes if isinstance(route, KeyedMutation)}
    assert honoured == set(Operation) == set(RULES) == {operation_of(case) for case in CASES}


def operation_of(case: Case) -> Operation:
    """The operation of a case, whose request is made of a catalog after its preparation."""
    world = KeyedCatalog()
    case.prepare(world)
    route = route_of(case.request(world))
    world.close()
    assert isinstance(route, KeyedMutation)
    return route.target.operation


def test_names_are_read_by_position():
    """A table `tables` in a namespace `namespaces`, whose path repeats the words of other operations."""
    for operation in OPERATIONS:
        route = routed(operation, idempotency_key="k")
        if isinstance(route, KeyedMutation):
            assert route.target.prefix == "lake"
            assert route.target.namespace == (("namespaces",) if "{namespace}" in operation else ())
            assert route.target.name in {None, "tables", "views"}
    for path in ("tables/tables/metrics", "tables/tables/plan", "tables/tables/tasks", "tables/namespaces/metrics"):
        assert route_of(request("POST", f"v1/lake/namespaces/namespaces/{path}", idempotency_key="k")) == Forwarded()
    for method, path in (("POST", "namespaces/namespaces"), ("DELETE", "namespaces/namespaces/tables")):
        assert route_of(request(method, f"v1/lake/{path}", idempotency_key="k")) == UnknownMutation()
