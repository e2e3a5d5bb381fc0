"""docs/openapi.yaml admits what the appendix of the Delegation Service proposal admits, but for limits on a page."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
from openapi_schema_validator import OAS31Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from tests.conformance.differences import APPENDIX, Differences, load
from tests.paths import ROOT
from tests.unit.edge.requests import loaded

THEIRS = load(APPENDIX)
OURS = load(ROOT / "docs" / "openapi.yaml")
Change = Callable[[dict[str, Any]], object]


def test_the_copy_of_the_appendix_is_valid_openapi() -> None:
    assert [error.message for error in OpenAPIV31SpecValidator(THEIRS).iter_errors()] == []


def test_every_difference_is_an_addition_or_a_listed_limit() -> None:
    assert Differences(THEIRS, OURS).find().faults == []


def schema(document: dict[str, Any], name: str) -> dict[str, Any]:
    return document["components"]["schemas"][name]


EXECUTE = "/v1/tasks/execute/synchronous"
CHANGES: list[Change] = [
    lambda our: our["paths"].pop(EXECUTE),
    lambda our: our["paths"][EXECUTE]["post"].update(operationId="execute"),
    lambda our: our["paths"][EXECUTE]["post"]["responses"].pop("502"),
    lambda our: our["paths"][EXECUTE]["post"]["responses"].update({"409": {"$ref": "#/components/responses/NotFound"}}),
    lambda our: our["components"]["parameters"]["IdempotencyKey"].update(required=True),
    lambda our: our["components"]["securitySchemes"].pop("BearerAuth"),
    lambda our: our["components"]["securitySchemes"]["OAuth2"]["flows"]["clientCredentials"]["scopes"].pop(
        "execute_tasks"
    ),
    lambda our: our["components"]["responses"].pop("Forbidden") and None,
    lambda our: schema(our, "TableIdentity")["properties"].pop("table_entity_id"),
    lambda our: schema(our, "TableIdentity")["required"].append("owner"),
    lambda our: schema(our, "CommonPayload")["properties"]["operation_type"].update(enum=["TABLE_PURGE"]),
    lambda our: schema(our, "TableMetadata")["properties"]["format-version"].update(type="string"),
    lambda our: schema(our, "TableMetadata")["properties"]["table-uuid"].update(format="uri"),
    lambda our: schema(our, "TableMetadata")["properties"]["format-version"].update(multipleOf=2),
    lambda our: schema(our, "ErrorResponse")["required"].remove("message"),
    lambda our: schema(our, "ErrorResponse")["properties"]["details"].update(type=["string", "null"]),
    lambda our: schema(our, "TaskSuccessResponse")["properties"]["status"]["enum"].append("QUEUED"),
    lambda our: schema(our, "ExecutionResult")["properties"]["bytes_deleted"].pop("format"),
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_breaks_a_caller_of_the_appendix_is_a_fault(change: Change) -> None:
    changed = copy.deepcopy(OURS)
    change(changed)
    try:
        faults = Differences(THEIRS, changed).find().faults
    except KeyError as missing:
        faults = [f"a reference leads nowhere: {missing}"]
    assert faults


def test_a_request_as_the_appendix_describes_it_is_one_of_ours() -> None:
    body = loaded()
    body["common_payload"]["operation_type"] = "SYNCHRONOUS_TABLE_PURGE"
    for document in (THEIRS, OURS):
        whole = {"$ref": "#/components/schemas/TaskPayload", "components": document["components"]}
        assert [error.message for error in OAS31Validator(whole).iter_errors(body)] == []
