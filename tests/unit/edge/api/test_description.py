"""The API's description is served as OpenAPI and as a page."""

import json
import re
from collections.abc import Iterator
from typing import Any

from delegation.edge.api.endpoints import ENDPOINTS
from delegation.edge.codes import codes
from delegation.wire.responses import ERROR_PAGE, ErrorResponse
from infra import api_page, api_schemas
from tests.unit.edge.conftest import Api, header


def test_the_served_document_is_the_documented_one(api: Api) -> None:
    response = api.call("GET", "/openapi.json", client_id=None)
    assert response["statusCode"] == 200
    assert header(response, "Content-Type") == "application/json"
    assert json.loads(response["body"]) == api_page.document()


def test_the_schemas_of_the_document_are_those_of_the_models() -> None:
    assert api_page.document()["components"]["schemas"] == api_schemas.schemas()


def test_the_page_is_html_that_loads_nothing(api: Api) -> None:
    response = api.call("GET", "/docs", client_id=None)
    assert response["statusCode"] == 200
    assert header(response, "Content-Type") == "text/html; charset=utf-8"
    assert header(response, "Content-Security-Policy") == "default-src 'none'; style-src 'unsafe-inline'"
    assert not re.search(r"<script|<link|<img|src=|@import|url\(", response["body"])


def test_every_operation_and_every_code_has_an_anchor() -> None:
    anchors = set(re.findall(r'id="([^"]+)"', api_page.page(api_page.document())))
    assert {endpoint.operation for endpoint in ENDPOINTS} <= anchors
    assert {name for chapter in codes().values() for name in chapter} <= anchors


def test_every_link_of_the_page_has_its_target() -> None:
    page = api_page.page(api_page.document())
    anchors = set(re.findall(r'id="([^"]+)"', page))
    assert set(re.findall(r'href="#([^"]+)"', page)) <= anchors


def test_the_type_of_an_error_is_its_line_on_the_page() -> None:
    error = ErrorResponse(error_code="TASK_NOT_FOUND", message="x")
    assert error.type == f"{ERROR_PAGE}#TASK_NOT_FOUND"
    assert ERROR_PAGE.endswith("/delegation-service/api/docs")


def test_text_of_the_document_is_escaped() -> None:
    assert api_page._text("a <b> `c&d`") == "a &lt;b&gt; <code>c&amp;d</code>"


def test_every_element_and_every_row_has_a_line_of_its_own() -> None:
    """So that two changes of the document merge; a line of 10,000 characters would always conflict."""
    lines = api_page.page(api_page.document()).splitlines()
    assert max(line.count("<tr>") + line.count("<tr ") for line in lines) == 1
    assert max(line.count("<p>") for line in lines) == 1
    assert max(map(len, lines)) < 2_000
    assert max(map(len, api_page.openapi_json(api_page.document()).splitlines())) < 2_000


def integers(schema: Any, place: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every integer within a schema, with its place."""
    match schema:
        case {"type": kind, **rest} if kind == "integer" or "integer" in kind:
            yield place, {"type": kind, **rest}
        case dict():
            for name, value in schema.items():
                yield from integers(value, f"{place}.{name}")
        case list():
            for number, value in enumerate(schema):
                yield from integers(value, f"{place}.{number}")


def test_a_generated_client_has_64_bits_for_every_integer_that_may_need_them():
    """Without a format, generators for Java and Go choose 32 bits, which the bytes of a purge exceed."""
    found = dict(integers(api_page.document()["components"]["schemas"]))
    narrow = [
        place for place, one in found.items() if one.get("format") != "int64" and one.get("maximum", 2**63) >= 2**31
    ]
    assert ".TaskRecord.properties.bytes_deleted" in found
    assert narrow == []
