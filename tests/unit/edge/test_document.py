"""Request bodies are unambiguous JSON objects or are refused."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegation.edge.errors import BadRequest, EdgeError, InvalidJson
from delegation.edge.requests import MAX_DEPTH, MAX_DIGITS, path_of, read_body
from delegation.idempotency.keys import payload_hash
from tests.kit.errors import coded
from tests.kit.outcomes import outcome
from tests.unit.edge.requests import SECRET, loaded

texts = st.text(st.characters(codec="utf-8"), max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(texts, values, max_size=5), st.booleans(), st.booleans())
def test_any_json_object_is_read_exactly(document: dict[str, Any], escaped: bool, encoded: bool) -> None:
    text = json.dumps(document, ensure_ascii=escaped)
    body = base64.b64encode(text.encode()).decode() if encoded else text
    assert read_body(body, is_base64=encoded) == document


@given(st.text(max_size=60) | st.text(alphabet='{}[]",:0123456789.eE+-tfn\\u ', max_size=60))
def test_any_other_text_raises_only_invalid_json(text: str) -> None:
    document = outcome(lambda: read_body(text), InvalidJson)
    if isinstance(document, InvalidJson):
        assert str(document)  # what the caller reads
    else:
        assert document == json.loads(text)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (None, "is required"),
        ("", "is required"),
        (" \r\n", "is required"),
        ("[]", "must be a JSON object"),
        ('"text"', "must be a JSON object"),
        ("null", "must be a JSON object"),
        ("{", "is not JSON (line 1, column 2)"),
        ("{} {}", "is not JSON (line 1, column 4)"),
        ("\ufeff{}", "is not JSON (line 1, column 1)"),
        ('{"a": 01}', "is not JSON"),
        ('{"a": NaN}', "contains NaN"),
        ('{"a": -Infinity}', "contains -Infinity"),
        ('{"a": 1e999}', "beyond the range"),
        ('{"a": {"b": 1, "c": 2, "b": 1}}', 'member "b" twice'),
        ('{"a": ' + "9" * (MAX_DIGITS + 1) + "}", "digits"),
        ('{"a": "\ud800"}', "is not valid UTF-8"),
    ],
)
def test_a_body_that_is_not_an_unambiguous_object_is_refused(body: str | None, reason: str) -> None:
    with pytest.raises(InvalidJson) as refused:
        read_body(body)
    assert refused.value.field == "body"
    assert reason in refused.value.reason


@pytest.mark.parametrize("body", ["%%%", "e30", "/w==", base64.b64encode(b'{"a": "\xff"}').decode()])
def test_a_body_that_does_not_decode_is_refused(body: str) -> None:
    with pytest.raises(InvalidJson, match=r"base64|UTF-8"):
        read_body(body, is_base64=True)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ('{"a": {"b": ["x", "\\ud800"]}}', "a.b[1]"),
        ('{"a": {"\\uDFFF": 1}}', 'a["\\udfff"]'),
        ('{"a": "\\udc00\\ud800"}', "a"),
    ],
)
def test_half_a_surrogate_pair_is_refused_with_its_path(body: str, field: str) -> None:
    with pytest.raises(InvalidJson) as refused:
        read_body(body)
    assert refused.value.field == field
    str(refused.value).encode()


@pytest.mark.parametrize("opening", ['{"a":', "["])
@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 5_000, 200_000])
def test_deep_nesting_is_refused_before_it_can_exhaust_the_stack(opening: str, depth: int) -> None:
    closing = "}" if opening[0] == "{" else "]"
    with pytest.raises(InvalidJson, match=f"more than {MAX_DEPTH} levels"):
        read_body('{"x":' + opening * (depth - 1) + "1" + closing * (depth - 1) + "}")


def test_the_deepest_accepted_document_can_be_hashed() -> None:
    document = read_body('{"a":' * MAX_DEPTH + "1" + "}" * MAX_DEPTH)
    assert len(payload_hash(document)) == 64


@pytest.mark.parametrize("encoded", [False, True])
def test_the_size_limit_counts_bytes_not_characters(encoded: bool) -> None:
    def body(size: int) -> str:
        text = '{"a":"' + "é" * ((size - 8) // 2) + '"}'
        return base64.b64encode(text.encode()).decode() if encoded else text

    assert read_body(body(1000), is_base64=encoded, limit_bytes=1000)
    with pytest.raises(EdgeError, check=coded("PAYLOAD_TOO_LARGE"), match="1000 bytes"):
        read_body(body(1002), is_base64=encoded, limit_bytes=1000)


def test_a_documents_repr_shows_no_member() -> None:
    document = read_body(json.dumps(loaded()))
    assert SECRET in json.dumps(document)
    assert SECRET not in f"{document!r} {document} {document:}"


@pytest.mark.parametrize(
    "body", ['{"a": "%s", "a": "%s"}', '{"a": "%s"', '{"a": %s}', '["%s"]', '{"config": {"k": "%s\\ud800"}}', "%s"]
)
def test_no_error_quotes_the_body(body: str) -> None:
    with pytest.raises(BadRequest) as refused:
        read_body(body.replace("%s", SECRET))
    assert SECRET not in f"{refused.value} {refused.value!r} {refused.value.others}"


@pytest.mark.parametrize(
    ("location", "path"),
    [
        (("table_identity", "namespace_levels", 1), "table_identity.namespace_levels[1]"),
        (("config", "s3.access-key-id"), 'config["s3.access-key-id"]'),
        (("a\nb",), '["a\\nb"]'),
        (("x" * 100,), f'["{"x" * 64}…"]'),
        ((), ""),
    ],
)
def test_paths_are_readable_and_printable(location: tuple[str | int, ...], path: str) -> None:
    assert path_of(location) == path
