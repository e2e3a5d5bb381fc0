"""The manifest reader on mutated and random bytes: it decodes them or raises CorruptManifestError, nothing else."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from delegation.iceberg.avro import container as avro_schema
from delegation.iceberg.avro import decoder as avro_decoder
from delegation.iceberg.avro import manifests as avro
from delegation.iceberg.avro import shapes as avro_shapes
from tests.effort import examples
from tests.unit.iceberg.manifest_files import (
    CODECS,
    LISTED,
    ManifestEntry,
    container,
    entry_schema,
    list_schema,
    read_manifest,
    written,
    zigzag,
)
from tests.unit.removal.purge.hostile_files import BLOCKS, FILES, PACKED, VERSIONS, outcome

# Mutations: positions are fractions of the file, so that Hypothesis can shrink them for any file size

ABSURD = [zigzag(value) for value in (-1, -(1 << 63), (1 << 63) - 1, 1 << 31, 1 << 62, 100_000)] + [
    b"\xff" * 11,
    b"\x80" * 9,
]
Mutation = tuple[str, float, Any]
PLACE = st.floats(0, 1, exclude_max=True)
MUTATION = st.one_of(
    st.tuples(st.just("flip"), PLACE, st.integers(0, 7)),
    st.tuples(st.just("set"), PLACE, st.sampled_from([0, 1, 2, 3, 127, 128, 255])),
    st.tuples(st.just("cut"), PLACE, st.integers(1, 40)),
    st.tuples(st.just("truncate"), PLACE, st.just(0)),
    st.tuples(st.just("insert"), PLACE, st.sampled_from(ABSURD)),
    st.tuples(st.just("replace"), PLACE, st.sampled_from(ABSURD)),
    st.tuples(st.just("double"), PLACE, st.integers(1, 200)),
)


def mutated(data: bytes, mutations: list[Mutation]) -> bytes:
    for kind, place, value in mutations:
        at = int(place * len(data))
        head, tail = data[:at], data[at:]
        match kind:
            case "flip":
                data = head + bytes([tail[0] ^ (1 << value)]) + tail[1:] if tail else head
            case "set":
                data = head + bytes([value]) + tail[1:]
            case "cut":
                data = head + tail[value:]
            case "truncate":
                data = head
            case "insert":
                data = head + value + tail
            case "replace":
                data = head + value + tail[len(value) :]
            case "double":
                data = head + tail[:value] + tail
    return data


LISTS = {codec: written(list_schema(2), [LISTED] * 3, codec) for codec in CODECS}


@pytest.fixture(params=["exact", "learned"])
def patience(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro_shapes, "COLD_RECORDS", 0)
    monkeypatch.setattr(avro_shapes, "FIRST_PATIENCE", 2 if request.param == "learned" else 1 << 30)


HARD = settings(max_examples=examples(400), deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.usefixtures("patience")
@HARD
@given(st.sampled_from(sorted(FILES)), st.lists(MUTATION, min_size=1, max_size=3))
def test_mutated_manifests_decode_or_are_corrupt(file: tuple[int, str], mutations: list[Mutation]) -> None:
    data = mutated(FILES[file], mutations)

    entries = outcome(read_manifest, data)

    assert isinstance(entries, tuple) or all(isinstance(each, ManifestEntry) for each in entries)


@pytest.mark.usefixtures("patience")
@HARD
@given(st.sampled_from(CODECS), st.lists(MUTATION, min_size=1, max_size=3))
def test_mutated_manifest_lists_decode_or_are_corrupt(codec: str, mutations: list[Mutation]) -> None:
    manifests = outcome(avro.read_manifest_list, mutated(LISTS[codec], mutations))

    assert isinstance(manifests, tuple) or all(isinstance(each, avro.ManifestFile) for each in manifests)


ORIGINAL = avro.decoder_of


def unlearned(raw: bytes, wanted: tuple[avro_decoder.Wanted, ...]) -> tuple[avro_decoder.DecodeOne, avro_shapes.Shapes]:
    """Return the decoder of a schema without learned shapes."""
    schema = avro_schema.parse_schema(raw)
    return ORIGINAL(raw, wanted)[0], avro_shapes.Shapes(schema, wanted, avro_decoder.locate(schema, wanted))


@HARD
@given(
    st.sampled_from(VERSIONS),
    st.sampled_from(CODECS),
    st.integers(0, 14),
    st.lists(MUTATION, min_size=0, max_size=2),
)
def test_learned_shapes_change_no_outcome(version: int, codec: str, count: int, mutations: list[Mutation]) -> None:
    """For mutated blocks in a valid file, entries or offset and reason are those of the exact decoder."""
    good = BLOCKS[version]
    bad = mutated(good, mutations)
    data = container(entry_schema(version), (12, PACKED[codec](good)), (count, PACKED[codec](bad)), codec=codec)

    outcomes = []
    for patience in (1 << 30, 1, 5):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(avro_shapes, "COLD_RECORDS", 0)
            patched.setattr(avro_shapes, "FIRST_PATIENCE", patience)
            patched.setattr(avro, "decoder_of", unlearned)
            outcomes += [outcome(read_manifest, data), outcome(avro.read_paths, data)]

    assert outcomes[0] == outcomes[2] == outcomes[4]
    assert outcomes[1] == outcomes[3] == outcomes[5]
    if isinstance(outcomes[0], list):  # a field that only full entries have may be corrupt
        assert [tuple(each[:4]) for each in outcomes[0]] == [each for batch in outcomes[1] for each in batch]


@HARD
@given(st.binary(max_size=300))
def test_any_bytes_after_a_valid_header(tail: bytes) -> None:
    outcome(read_manifest, container(entry_schema(2)) + tail)
    outcome(avro.read_manifest_list, container(list_schema(2)) + tail)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["record", "null", "long", "array", "x", ""]),
    lambda below: (
        st.lists(below, max_size=4)
        | st.dictionaries(
            st.sampled_from(["type", "name", "fields", "items", "values", "symbols", "size", "namespace", "field-id"]),
            below,
        )
    ),
    max_leaves=12,
)


@HARD
@given(JSON, st.binary(max_size=60))
def test_any_json_as_schema(schema: Any, body: bytes) -> None:
    wrapped = entry_schema(2)
    wrapped["fields"].insert(1, {"name": "stranger", "type": schema})
    for each in (schema, wrapped):
        outcome(read_manifest, container(each, (1, body)))
