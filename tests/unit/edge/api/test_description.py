"""The API's description is served as OpenAPI and as a page."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from delegation.edge.api.endpoints import ENDPOINTS
from delegation.edge.codes import codes
from infra import api_schemas
from infra.package import description
from tests.paths import ROOT
from tests.unit.edge.conftest import Api, header


def test_the_served_document_is_the_documented_one(api: Api) -> None:
    response = api.call("GET", "/openapi.json", client_id=None)
    assert response["statusCode"] == 200
    assert header(response, "Content-Type") == "application/json"
    assert json.loads(response["body"]) == description.document()


def test_the_schemas_of_the_document_are_those_of_the_models() -> None:
    assert description.document()["components"]["schemas"] == api_schemas.schemas()


def test_both_files_are_built_once_and_again_after_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "openapi.yaml"
    shutil.copyfile(description.SOURCE, source)
    monkeypatch.setattr(description, "ROOT", tmp_path)
    monkeypatch.setattr(description, "SOURCE", source)
    page = tmp_path / "functions" / description.PLACE / "docs.html"
    description.ensure()
    built = page.stat()
    assert page.read_text(encoding="utf-8") == description.files()["docs.html"]
    assert sorted(path.name for path in page.parent.iterdir()) == ["docs.html", "openapi.json"]
    description.ensure()
    assert page.stat().st_ino == built.st_ino
    os.utime(source, ns=(built.st_mtime_ns + 1, built.st_mtime_ns + 1))
    description.ensure()
    assert page.stat().st_ino != built.st_ino


def test_no_commit_has_them() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "functions"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert not {"docs.html", "openapi.json"} & {Path(name).name for name in listed.splitlines()}


def test_the_page_is_html_that_loads_nothing(api: Api) -> None:
    response = api.call("GET", "/docs", client_id=None)
    assert response["statusCode"] == 200
    assert header(response, "Content-Type") == "text/html; charset=utf-8"
    assert header(response, "Content-Security-Policy") == "default-src 'none'; style-src 'unsafe-inline'"
    assert not re.search(r"<script|<link|<img|src=|@import|url\(", response["body"])


def test_every_operation_and_every_code_has_an_anchor() -> None:
    anchors = set(re.findall(r'id="([^"]+)"', description.files()["docs.html"]))
    assert {endpoint.operation for endpoint in ENDPOINTS} <= anchors
    assert {name for chapter in codes().values() for name in chapter} <= anchors


def test_every_link_of_the_page_has_its_target() -> None:
    page = description.files()["docs.html"]
    anchors = set(re.findall(r'id="([^"]+)"', page))
    assert set(re.findall(r'href="#([^"]+)"', page)) <= anchors


def test_text_of_the_document_is_escaped() -> None:
    assert description._text("a <b> `c&d`") == "a &lt;b&gt; <code>c&amp;d</code>"


def test_every_element_and_every_row_has_a_line_of_its_own() -> None:
    """So that two changes of the document merge; a line of 10,000 characters would always conflict."""
    lines = description.files()["docs.html"].splitlines()
    assert max(line.count("<tr>") + line.count("<tr ") for line in lines) == 1
    assert max(line.count("<p>") for line in lines) == 1
    assert max(map(len, lines)) < 2_000
    assert max(map(len, description.files()["openapi.json"].splitlines())) < 2_000


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
    found = dict(integers(description.document()["components"]["schemas"]))
    narrow = [
        place for place, one in found.items() if one.get("format") != "int64" and one.get("maximum", 2**63) >= 2**31
    ]
    assert ".TaskRecord.properties.bytes_deleted" in found
    assert narrow == []
