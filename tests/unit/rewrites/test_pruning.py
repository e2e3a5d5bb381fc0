"""Which files a filter leaves out, by bounds and partitions; what is not understood leaves none out."""

import struct
from typing import Any

import pytest

from delegation.iceberg.avro.entries import ColumnStats
from delegation.rewrites.pruning import FileFilter

FIELDS = [
    {"id": 1, "name": "id", "type": "long", "required": True},
    {"id": 2, "name": "name", "type": "string"},
    {"id": 3, "name": "price", "type": "decimal(9, 2)"},
    {"id": 4, "name": "day", "type": "date"},
    {"id": 5, "name": "at", "type": "timestamptz"},
    {"id": 6, "name": "ratio", "type": "double"},
    {"id": 7, "name": "done", "type": "boolean"},
    {"id": 8, "name": "place", "type": {"type": "struct", "fields": [{"id": 9, "name": "city", "type": "string"}]}},
    {"id": 10, "name": "local", "type": "timestamp"},
    {"id": 11, "name": "small", "type": "float"},
    {"id": 12, "name": "exact", "type": "double"},
    {"id": 13, "name": "wide", "type": "decimal(38, 2)"},
]
DOCUMENT = {
    "schemas": [{"schema-id": 0, "fields": FIELDS}],
    "current-schema-id": 0,
    "partition-specs": [
        {"spec-id": 0, "fields": []},
        {"spec-id": 1, "fields": [{"field-id": 1000, "transform": "identity", "source-id": 2}]},
        {"spec-id": 2, "fields": [{"field-id": 1001, "transform": "bucket[4]", "source-id": 1}]},
        {"spec-id": 3, "fields": [{"field-id": 1002, "transform": "identity", "source-id": 3}]},
    ],
}
HOUR = 3_600_000_000
NOON = 1_780_000_000_000_000 // HOUR * HOUR
"""2026-05-28 20:00 in UTC."""


def between(lower: bytes, upper: bytes, nulls: int = 0) -> ColumnStats:
    return ColumnStats(100, nulls, lower, upper)


FILE = {
    1: between(struct.pack("<q", 10), struct.pack("<q", 20)),
    2: between(b"berlin", b"bonn", 5),
    3: between((150).to_bytes(2), (999).to_bytes(2)),
    4: between(struct.pack("<i", 20_000), struct.pack("<i", 20_010)),  # 2024-10-04 to 2024-10-14
    5: between(struct.pack("<q", NOON), struct.pack("<q", NOON + HOUR)),
    6: between(struct.pack("<d", 0.5), struct.pack("<d", 1.5)),
    7: between(b"\x00", b"\x00"),
    9: ColumnStats(100, 100),
    11: between(struct.pack("<f", 0.1), struct.pack("<f", 0.1)),
    12: between(struct.pack("<d", 0.1), struct.pack("<d", 0.1)),
    10: between(struct.pack("<q", NOON), struct.pack("<q", NOON + HOUR)),
}


def matches(text: str, stats: Any = FILE, spec_id: int = 0, *partition: tuple[int, Any]) -> bool:
    return FileFilter.of(text, DOCUMENT).may_match(spec_id, partition, stats)


@pytest.mark.parametrize(
    "text",
    [
        "id = 10",
        "ID >= 20",
        "id < 11 AND name IS NULL",
        "id = 5 OR name = 'berlin'",
        "(id = 5 OR (id = 12))",
        "NOT id = 5",
        "id <> 12",
        "id NOT IN (12, 13)",
        "id IN (1, 15L)",
        "15 = id",
        "5 < id",
        "id BETWEEN 1 AND 10",
        "id BETWEEN 1 AND 10 AND name > 'a'",
        "id NOT BETWEEN 11 AND 30",
        "NOT (id < 10 OR id > 30)",
        "name LIKE 'ber%'",
        "name LIKE 'b_n'",
        "name LIKE 'bonnie%'",  # as in Iceberg, which compares as much as both have
        "name LIKE '%x'",
        "name NOT LIKE 'b%'",
        "price = 1.50",
        "price > 9.98",
        "day = DATE '2024-10-04'",
        "day >= '2024-10-14'",
        "at > TIMESTAMP '2026-05-28 12:00:00'",
        "local = TIMESTAMP '2026-05-28 20:30:00'",
        "local > TIMESTAMP '2026-05-28 21:00:00'",
        "small = 0.1",
        "exact = 0.1",
        "ratio < 5e-1 OR ratio <= 0.5D",
        "done = false",
        "NOT (done = true AND id = 5)",
        "place.city IS NULL",
        "`place`.`city` IS NULL",
        "id + 1 = 5",
        "date_sub(day, 7) < DATE '2000-01-01'",
        "id = price",
        "unknown = 5",
        "name = 5",
        "id = 'x'",
        "day = TIMESTAMP '2000-01-01'",
        "day = '2000-99-01'",
        "id IN (price, 5)",
        "id IN (5",
        "name IS NOT DISTINCT FROM 'x'",
        "NOT true = id",
        "id =",
        "",
        "true",
        "NOT false",
    ],
)
def test_a_file_that_may_have_rows_stays(text: str) -> None:
    assert matches(text)


@pytest.mark.parametrize(
    "text",
    [
        "id = 9",
        "id < 10",
        "id > 20",
        "21 <= id",
        "id <=> 30",
        "id = -15",
        "id IS NULL",
        "id IN (1, 2, 30)",
        "id BETWEEN 21 AND 30",
        "id = 15 AND name = 'paris'",
        "(id = 15) AND NOT (name >= 'a')",
        "NOT (id >= 10)",
        "NOT (id = 15 OR id < 100) AND id > 0 AND NOT id <= 20",
        "id NOT BETWEEN 5 AND 25",
        "NOT (id > 5 OR name = 'paris')",
        "id < 5 OR (id > 50 AND name LIKE 'b%')",
        "name LIKE 'c%'",
        "name = 'a'",
        "price < 1.5",
        "price >= 10",
        "day < DATE '2024-10-04'",
        "day > '2024-10-14'",
        "at > TIMESTAMP '2026-05-29 12:00:00'",
        "at < TIMESTAMP '2026-05-28 05:00:00Z'",
        "local > TIMESTAMP '2026-05-29 12:00:00'",
        "exact > 0.1",
        "ratio > 1.5",
        "done = true",
        "place.city IS NOT NULL",
        "place.city = 'x'",
        "place.city LIKE 'x%'",
        "NOT (place.city IS NULL)",
        "false",
        "NOT true",
    ],
)
def test_a_file_that_cannot_have_rows_is_left_out(text: str) -> None:
    assert not matches(text)


def test_a_file_without_stats_stays() -> None:
    assert matches("id = 9 AND name = 'x' AND price > 4 AND name LIKE 'x%'", {})
    assert not matches("id IS NULL", {}), "the column is required"


def test_the_value_of_an_identity_partition_decides() -> None:
    assert not matches("name = 'b'", {}, 1, (1000, "a"))
    assert matches("name = 'a'", {}, 1, (1000, "a"))
    assert not matches("name = 'a'", {}, 1, (1000, None))
    assert matches("name IS NULL", {}, 1, (1000, None))
    assert not matches("name IS NULL", {}, 1, (1000, "a"))
    assert matches("id = 9", {}, 2, (1001, 3)), "a bucket is not computed here"
    assert not matches("price = 4.00", {}, 3, (1002, (300).to_bytes(2)))


def test_a_decimal_partition_has_a_sign() -> None:
    loss = (1002, (-300).to_bytes(2, signed=True))
    assert matches("price = -3.00", {}, 3, loss)
    assert not matches("price > 0", {}, 3, loss)


def test_without_a_filter_no_column_is_read() -> None:
    everything = FileFilter.of(None, DOCUMENT)
    assert (everything.ids, everything.may_match(0, (), {})) == (frozenset(), True)
    assert FileFilter.of("id > 5 AND unknown = 4 OR name = 'x'", DOCUMENT).ids == {1, 2}


def test_columns_of_version_1_are_those_of_its_schema() -> None:
    document = {"schema": {"fields": FIELDS}}
    assert not FileFilter.of("id > 50", document).may_match(0, (), FILE)


def test_bounds_of_four_bytes_have_a_sign() -> None:
    days = {4: between(struct.pack("<i", -20), struct.pack("<i", -10))}  # 1969-12-12 to 1969-12-22
    assert matches("day = DATE '1969-12-15'", days)
    assert not matches("day > DATE '1969-12-31'", days)


def test_a_decimal_of_38_digits_is_not_rounded() -> None:
    digits = "123456789012345678901234567890123456"
    raw = int(f"{digits}78").to_bytes(16)
    assert matches(f"wide = {digits}.78", {13: between(raw, raw)})
    assert not matches(f"wide > {digits}.78", {13: between(raw, raw)})
