"""Large metadata is read as `json.loads` reads it, but for what is not kept of it."""

import gzip
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from delegation.iceberg import metadata as of_files
from delegation.iceberg.errors import CorruptMetadata
from delegation.iceberg.metadata import decode_metadata, parse_former_metadata, parse_metadata
from delegation.polaris import model
from delegation.polaris.model import read_document, read_large
from delegation.removal.expiry.snapshots import history
from delegation.upkeep.health.reading import history_in
from delegation.wire.requests import files_of
from tests.effort import examples

# Text as documents of strangers have it: all that json.loads accepts beyond JSON, and what it refuses.
NUMBERS = st.one_of(
    st.sampled_from(
        [
            "NaN",
            "Infinity",
            "-Infinity",
            "-0",
            "-0.0",
            "1e400",
            "1.5E+10",
            "0.1",
            "9" * 70,
            "1" * 4301,
            "2" * 5000 + ".5",
        ]
    ),
    st.integers(-(10**60), 10**60).map(str),
    st.floats().map(json.dumps),
)
STRINGS = st.one_of(
    st.sampled_from(
        ['"\\ud800"', '"\\ud83d\\ude00"', '"\\\\\\"\\/\\b\\u0000"', '"' + "é€😀" * 30 + '"', '""', '"a b"']
    ),
    st.text(st.characters(exclude_categories=["Cs"])).map(lambda text: json.dumps(text, ensure_ascii=False)),
)
NAMES = st.sampled_from(
    [
        *model._NOT_KEPT,
        "snapshot-log",
        "metadata",
        "current-snapshot-id",
        "snapshot-id",
        "summary",
        "fields",
        "blob-metadata",
        "total-records",
        "x",
        "",
    ]
).map(json.dumps)
SPACES = st.sampled_from(["", "", " ", "\n\t \r", " " * 90])


def _within(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    members = st.tuples(SPACES, NAMES, SPACES, inner).map(lambda parts: f"{parts[0]}{parts[1]}{parts[2]}:{parts[3]}")
    return st.one_of(
        st.lists(members, max_size=6).map(lambda found: "{" + ",".join(found) + "}"),
        st.tuples(SPACES, st.lists(inner, max_size=5), SPACES).map(
            lambda parts: f"[{parts[0]}{','.join(parts[1])}{parts[2]}]"
        ),
    )


VALUES = st.recursive(st.one_of(NUMBERS, STRINGS, st.sampled_from(["true", "false", "null"])), _within, max_leaves=25)
DOCUMENTS = st.one_of(_within(VALUES), VALUES)


def pieces_of(data: bytes, size: int) -> Iterator[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size))


def without_unkept(found: Any, *, outermost: bool = True) -> Any:
    """Return a document without what is not kept of it, as one sees it who has read the documentation only."""
    if not isinstance(found, dict):
        return found
    kept = dict(found)
    for name, unkept in (("schemas", "fields"), ("statistics", "blob-metadata"), ("snapshots", "summary")):
        if isinstance(kept.get(name), list):
            kept[name] = [
                {key: value for key, value in one.items() if key != unkept} if isinstance(one, dict) else one
                for one in kept[name]
            ]
    if isinstance(kept.get("snapshot-log"), list):
        kept["snapshot-log"] = []
    if outermost and isinstance(kept.get("metadata"), dict):
        kept["metadata"] = without_unkept(kept["metadata"], outermost=False)
    return kept


def outcome(read: Any) -> str:
    """Return what was read, with the types of numbers and the order of names, or that it is none."""
    try:
        return repr(without_unkept(read()))
    except ValueError:
        return "refused"


@settings(max_examples=examples(300))
@given(
    DOCUMENTS, st.integers(1, 200), st.sampled_from(["", "}", "]", ",", " 1", " \n", "\x00", "\ufeff"]), st.booleans()
)
@example('{"snapshots":[1.5e10,-1]}', 1, "", False)
@example('{"snapshots":[{"summary":1,"summary":{}}],"snapshots":1}', 3, "", False)
@example('{"snapshots":[1,]}', 2, "", False)
@example('{"x":1,}', 2, "", False)
@example("", 1, "", False)
@example("﻿{}", 1, "", False)
def test_what_is_kept_is_as_the_standard_parser_reads_it(text: str, size: int, after: str, cut: bool) -> None:
    data = (text + after).encode("utf-8", "surrogatepass")
    if cut:
        data = data[: len(data) * 2 // 3]
    assume(json.detect_encoding(data[:4]) == "utf-8")
    assert outcome(lambda: read_large(pieces_of(data, size))) == outcome(lambda: json.loads(data))


@pytest.mark.parametrize(
    "data",
    [
        b'{"a":"\xff"}',
        b'{"a":"\xed\xa0\x80"}',
        b'{"a":"\xe2\x82',
        b'{"a":"x\ny"}',
        b'{"a":"\\x"}',
        b'{"a":"\\ud8',
        b'{"a" 1}',
        b'{a:1}',
        b'{"snapshots":[{"a":1}',
        b'{"snapshots":[{"a":1} {"a":1}]}',
        b'{"snapshots":{"summary":1}}',
        b'{"metadata":{"metadata":{"snapshots":[{"summary":{}}]}}}',
        b'{"x":' + b"[" * 100_000,
        b'{"snapshots":[' + b'{"a":' * 5_000 + b"1" + b"}" * 5_000 + b"]}",
        b"{",
        b"nul",
        b"[] []",
    ],
)  # fmt: skip
@pytest.mark.parametrize("size", [1, 7, 64, 1 << 20])
def test_documents_that_are_none_are_refused_alike(data: bytes, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for large in (1, 1 << 30):
        monkeypatch.setattr(model, "LARGE", large)
        monkeypatch.setattr(model, "_WINDOW", size)
        try:
            found.append(repr(without_unkept(decode_metadata("p", data))))
        except CorruptMetadata as error:
            found.append(str(error))
    assert found[0] == found[1]


def table(snapshots: int) -> dict[str, Any]:
    """Return metadata with all that is not kept of large metadata."""
    uuid = "6fb0c2b8-9a9a-4f1f-9d1c-0c5a1c6d3b11"
    path = "s3://b/t/metadata"
    column = {"id": 1, "name": "a", "required": False, "type": "long", "doc": "x" * 500}
    return {
        "format-version": 2,
        "table-uuid": uuid,
        "location": "s3://b/t",
        "last-updated-ms": 1_700_000_000_000,
        "last-column-id": 1,
        "current-schema-id": 1,
        "schemas": [{"type": "struct", "schema-id": number, "fields": [column] * 3} for number in range(2)],
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "default-spec-id": 0,
        "properties": {"owner": "é€😀", "n": None},
        "current-snapshot-id": snapshots,
        "refs": {"main": {"snapshot-id": snapshots, "type": "branch"}},
        "snapshots": [
            {
                "snapshot-id": number,
                **({"parent-snapshot-id": number - 1} if number > 1 else {}),
                "sequence-number": number,
                "timestamp-ms": 1_600_000_000_000 + number,
                "manifest-list": f"{path}/snap-{number}.avro",
                "summary": {"operation": "append", "total-data-files": str(number), "engine": "y" * 100},
                "schema-id": 1,
            }
            for number in range(1, snapshots + 1)
        ],
        "statistics": [
            {
                "snapshot-id": 1,
                "statistics-path": f"{path}/s.puffin",
                "file-size-in-bytes": 7,
                "blob-metadata": [{"type": "z", "properties": {"ndv": "1"}}],
            }
        ],
        "snapshot-log": [{"snapshot-id": number, "timestamp-ms": number} for number in range(1, snapshots + 1)],
        "metadata-log": [
            {"metadata-file": f"{path}/v{number}.metadata.json", "timestamp-ms": 1} for number in range(3)
        ],
    }


@pytest.mark.parametrize("compressed", [False, True])
def test_every_reader_finds_the_same_in_a_large_file(monkeypatch: pytest.MonkeyPatch, compressed: bool) -> None:
    data = json.dumps(table(400)).encode()
    stored = gzip.compress(data) if compressed else data
    whole = decode_metadata("p", stored)
    monkeypatch.setattr(model, "LARGE", 1)
    monkeypatch.setattr(model, "_WINDOW", 1000)
    monkeypatch.setattr(of_files, "LARGE", 4096)
    large = decode_metadata("p", stored)
    assert len(repr(large)) < len(repr(whole)) / 2
    for read in (lambda one: parse_metadata("p", one), history, history_in, files_of):
        assert read(large) == read(whole)
    assert parse_former_metadata("p", stored).former == parse_metadata("p", whole).former
    answer = json.dumps({"metadata-location": "p", "metadata": json.loads(data), "config": {"a": "b"}}).encode()
    assert read_document(answer) == {"metadata-location": "p", "metadata": large, "config": {"a": "b"}}


def test_a_large_gzip_file_is_refused_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_files, "LARGE", 4096)
    stored = gzip.compress(json.dumps(table(400)).encode())
    for bad, reason in ((stored[:-9], "cut off"), (stored[:900] + b"\xff" * 50 + stored[950:], "corrupt|not JSON")):
        with pytest.raises(CorruptMetadata, match=reason):
            decode_metadata("p", bad)
    monkeypatch.setattr(of_files, "MAX_METADATA_BYTES", 20_000)
    with pytest.raises(CorruptMetadata, match="too large when decompressed"):
        decode_metadata("p", stored)
