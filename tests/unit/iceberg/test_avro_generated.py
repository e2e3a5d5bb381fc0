"""Generated source and learned shapes: no text of a file enters source, shapes are learned and replaced."""

import json
import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from delegation.iceberg.avro import container as avro_schema
from delegation.iceberg.avro import decoder as avro_decoder
from delegation.iceberg.avro import manifests as avro
from delegation.iceberg.avro import shapes as avro_shapes
from delegation.iceberg.errors import CorruptManifestError, ManifestMismatchError
from tests.unit.iceberg.manifest_files import (
    container,
    encoded,
    entry,
    entry_schema,
    read_manifest,
    text,
    written,
    zigzag,
)
from tests.unit.removal.purge.hostile_files import ENTRY, PATH, corrupt, stranger

LONGS = {"type": "array", "items": "long"}

# Injection: names in files are not trusted

HOSTILE = [
    "x'\"\\\n\r\u2028\x00){}%s{0}",
    "'''\nimport os\nos._exit(3)\n'''",
    '"""); raise SystemExit(3)  #',
    "status') or __import__('os')._exit(3) #",
    "ünïcödé \U0001f600 \ud800",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_no_text_of_a_schema_enters_generated_source(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sources: list[str] = []

    def spying(source: str, *args: Any) -> Any:
        sources.append(source)
        return compile(source, *args)

    monkeypatch.setattr(avro_decoder, "compile", spying, raising=False)
    monkeypatch.setattr(avro_shapes, "compile", spying, raising=False)
    kinds = [
        {"type": "record", "name": name + "r", "doc": name, "fields": [{"name": name, "type": "int", "doc": name}]},
        {"type": "enum", "name": name + "e", "symbols": [name]},
        {"type": "fixed", "name": name + "f", "size": 0, "logicalType": name},
        ["null", {"type": "map", "values": name + "r"}],
    ]
    hostile = stranger(*kinds)
    plain = stranger(
        {"type": "record", "name": "r", "fields": [{"name": "f", "type": "int"}]},
        {"type": "enum", "name": "e", "symbols": ["s"]},
        {"type": "fixed", "name": "f", "size": 0},
        ["null", {"type": "map", "values": "r"}],
    )
    for at, field in enumerate(hostile["fields"][:4]):
        field |= {"name": f"{name}{at}", "doc": name, "default": name, "aliases": [name]}
    block = zigzag(5) + zigzag(0) + zigzag(0) + ENTRY

    for schema in (hostile, plain):
        avro.decoder_of.cache_clear()
        assert len(list(read_manifest(container(schema, (50, block * 50)), PATH))) == 50

    assert sources[:2] == sources[2:]
    assert all(source.isascii() for source in sources)


def test_hostile_names_are_harmless_in_error_messages() -> None:
    for name in HOSTILE:
        message = str(corrupt(container(stranger(name)), "no type"))
        assert message.isascii()
        assert message.isprintable()


# Learned shapes


@pytest.fixture
def missed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Positions of the records that reach the exact decoder; the reader starts without learned shapes."""
    positions: list[int] = []
    original = avro_shapes.Shapes.missed

    def counting(self: avro_shapes.Shapes, buf: bytes, start: int, stop: int) -> None:
        positions.append(start)
        original(self, buf, start, stop)

    monkeypatch.setattr(avro_shapes.Shapes, "missed", counting)
    monkeypatch.setattr(avro_shapes, "COLD_RECORDS", 0)
    monkeypatch.setattr(avro_shapes, "FIRST_PATIENCE", 32)
    avro.decoder_of.cache_clear()
    return positions


@pytest.mark.parametrize(("records", "learns"), [(4096, False), (4096 + 127, False), (4096 + 128, True)])
def test_a_fresh_process_learns_nothing_from_a_small_table(
    records: int, learns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    observed: list[int] = []
    original = avro_shapes.Shapes._compile

    def counting(self: avro_shapes.Shapes) -> None:
        observed.append(1)
        original(self)

    monkeypatch.setattr(avro_shapes.Shapes, "_compile", counting)
    avro.decoder_of.cache_clear()
    data = written(entry_schema(2), [entry(100 + n % 7) for n in range(records)])

    assert sum(map(len, avro.read_paths(data, PATH))) == records
    assert bool(observed) == learns


def test_records_of_a_learned_shape_no_longer_reach_the_exact_decoder(missed: list[int]) -> None:
    data = written(entry_schema(2), [entry(100 + n % 7) for n in range(3000)])

    assert sum(map(len, avro.read_paths(data, PATH))) == 3000
    assert avro_shapes.FIRST_PATIENCE <= len(missed) < 2 * avro_shapes.FIRST_PATIENCE


def test_shapes_of_another_table_replace_the_former_ones(missed: list[int]) -> None:
    for table in range(4):
        missed.clear()
        records = [entry(n, file_path="p" * (1 + 60 * table + n % 60)) for n in range(3000)]
        data = written(entry_schema(2), records)

        assert [each.file_path for each in read_manifest(data, PATH)] == [
            each["data_file"]["file_path"] for each in records
        ]
        assert len(missed) < 2000


PAIR = {"type": "record", "name": "pair", "fields": [{"name": "k", "type": "int"}, {"name": "v", "type": "bytes"}]}


@pytest.mark.parametrize(
    "kind",
    [LONGS, {"type": "array", "items": "float"}, {"type": "array", "items": PAIR}, {"type": "map", "values": "long"}],
)
def test_other_block_structures_of_arrays_and_maps_are_left_to_the_exact_decoder(kind: Any, missed: list[int]) -> None:
    value: Any = {f"k{n}": n for n in range(4)}
    if kind["type"] == "array":
        value = [{"k": n, "v": b"v" * n} for n in range(4)] if kind["items"] is PAIR else [1, 2, 3, 4]
    schema = stranger(kind)
    splits = [0, 0, 1, -1, 2, -3]
    block = b"".join(encoded(kind, value, iter([split])) + ENTRY for split in splits)

    assert len(list(read_manifest(container(schema, (6 * 200, block * 200)), PATH))) == 1200
    assert avro_shapes.FIRST_PATIENCE + 4 * 150 <= len(missed) <= avro_shapes.FIRST_PATIENCE + 4 * 200


@pytest.mark.parametrize(
    ("size", "reason"),
    [
        (b"\xfe" * 9 + b"\x7f", "a varint of more than 64 bits"),
        (b"\x80" * 10 + b"\x00", "a varint of more than ten bytes"),
    ],
)
def test_a_wrong_size_after_many_records_of_a_learned_shape(size: bytes, reason: str, missed: list[int]) -> None:
    good = zigzag(1) + text("s3://b/k") + zigzag(9)
    block = good * 200 + zigzag(1) + text("s3://b/k") + size

    error = corrupt(container(stranger(), (201, block)), reason)

    assert len(missed) == avro_shapes.FIRST_PATIENCE
    assert error.offset >= len(container(stranger())) + 200 * len(good)


@pytest.mark.parametrize("size", [b"\x01", b"\x81\x80\x02", b"\x81\x80\x80\x02", b"\xff" * 9 + b"\x01"])
def test_a_negative_size_after_many_records_of_a_learned_shape_counts_nothing(size: bytes, missed: list[int]) -> None:
    good = zigzag(1) + text("s3://b/k") + zigzag(9)
    block = good * 200 + zigzag(1) + text("s3://b/k") + size + good

    entries = list(read_manifest(container(stranger(), (202, block)), PATH))

    assert [one.file_size_in_bytes for one in entries[199:]] == [9, 0, 9]
    assert len(missed) == avro_shapes.FIRST_PATIENCE + 1


def test_threads_share_learned_shapes() -> None:
    avro.decoder_of.cache_clear()
    files = [written(entry_schema(2), [entry(n * (each + 1)) for n in range(2000)]) for each in range(4)]
    expected = [[number * (each + 1) for number in range(2000)] for each in range(4)]

    def sizes(data: bytes) -> list[int]:
        return [(each.file_size_in_bytes - 1000) // 1_000_000 for each in read_manifest(data, PATH)]

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(sizes, files)) == expected


def test_generated_source_is_bounded() -> None:
    record = {"type": "record", "name": "r", "fields": [{"name": f"f{n}", "type": ["null", LONGS]} for n in range(30)]}
    uses = [record, *({"type": "map", "values": "r"} for _ in range(900))]
    schema = avro_schema.parse_schema(json.dumps(stranger(*uses)).encode())
    wanted = avro._PATH_FIELDS

    source = avro_decoder._Source(schema, wanted).module(avro_decoder.locate(schema, wanted))

    assert source.count("\n") < 64 * avro_schema.MAX_NODES


def test_errors_survive_pickling() -> None:
    """Executors send them to the driver pickled."""
    for error in (CorruptManifestError(PATH, 7, "why"), ManifestMismatchError(PATH, "bytes", 1, 2)):
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), copy.args, str(copy)) == (type(error), error.args, str(error))
        assert not copy.retryable
        assert copy.code in {"CORRUPT_MANIFEST", "MANIFEST_MISMATCH"}
