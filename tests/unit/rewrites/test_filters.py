"""Expressions that select partitions, as Iceberg's ExpressionParser reads them."""

import json
import math
from collections.abc import Sequence
from typing import Any

import pytest

from delegation.rewrites.choose import Partition
from delegation.rewrites.filters import PartitionFilter

UUID = "f79c3e09-677c-4bbd-a479-3f349cb785e7"


def filter_of(transform: str, kind: Any) -> PartitionFilter:
    schema = {"schema-id": 3, "fields": [{"id": 7, "name": "c", "type": kind}]}
    spec = {"spec-id": 2, "fields": [{"name": "p", "transform": transform, "source-id": 7, "field-id": 1000}]}
    return PartitionFilter.of(
        {"schemas": [schema], "current-schema-id": 3, "partition-specs": [spec], "default-spec-id": 2}
    )


def expression(transform: str, kind: Any, value: Any) -> Any:
    return filter_of(transform, kind).of_partition(Partition(2, ((1000, value),)))


@pytest.mark.parametrize(
    ("kind", "value", "literal"),
    [
        ("boolean", True, True),
        ("int", 7, 7),
        ("long", -1 << 40, -1 << 40),
        ("float", 1.5, 1.5),
        ("double", 0.1, 0.1),
        ("string", "ü'", "ü'"),
        ("date", 20_786, "2026-11-29"),
        ("date", -1, "1969-12-31"),
        ("time", 3_723_000_004, "01:02:03.000004"),
        ("timestamp", 1, "1970-01-01T00:00:00.000001"),
        ("timestamptz", -1, "1969-12-31T23:59:59.999999+00:00"),
        ("uuid", bytes.fromhex(UUID.replace("-", "")), UUID),
        ("binary", b"\x00\xff", "00FF"),
        ("fixed[2]", b"\xab\xcd", "ABCD"),
        ("decimal(9, 2)", (1420).to_bytes(2), "14.20"),
        ("decimal(9,2)", (-5).to_bytes(1, signed=True), "-0.05"),
        ("decimal(38, 0)", (10**37).to_bytes(16), "1" + "0" * 37),
    ],
)
def test_an_identity_partition_of_every_type(kind: str, value: Any, literal: Any) -> None:
    assert expression("identity", kind, value) == {"type": "eq", "term": "c", "value": literal}


@pytest.mark.parametrize(
    ("transform", "kind", "value", "literal"),
    [
        ("bucket[4]", "long", 3, 3),
        ("truncate[2]", "string", "ab", "ab"),
        ("truncate[10]", "long", 20, 20),
        ("year", "date", 56, 56),
        ("month", "timestamp", 682, 682),
        ("day", "timestamptz", 20_786, "2026-11-29"),
        ("hour", "timestamp", 498_864, 498_864),
    ],
)
def test_a_transform_is_compared_with_its_own_value(transform: str, kind: str, value: Any, literal: Any) -> None:
    term = {"type": "transform", "transform": transform, "term": "c"}
    assert expression(transform, kind, value) == {"type": "eq", "term": term, "value": literal}


@pytest.mark.parametrize("transform", ["identity", "bucket[4]", "day"])
def test_the_partition_of_null_is_that_of_a_null_column(transform: str) -> None:
    assert expression(transform, "date", None) == {"type": "is-null", "term": "c"}


def test_the_partition_of_nan() -> None:
    assert expression("identity", "double", math.nan) == {"type": "is-nan", "term": "c"}


@pytest.mark.parametrize(
    ("transform", "kind", "value"),
    [
        ("identity", "double", math.inf),
        ("identity", "date", 10**9),
        ("identity", "int", "seven"),
        ("identity", "timestamp_ns", 5),
        ("identity", {"type": "list", "element": "int"}, 5),
        ("zorder", "int", 5),
    ],
)
def test_what_no_expression_states_has_none(transform: str, kind: Any, value: Any) -> None:
    assert expression(transform, kind, value) is None
    assert not filter_of(transform, kind).has(Partition(2, ((1000, value),)))


def test_a_source_that_was_dropped_has_no_expression() -> None:
    spec = {"spec-id": 0, "fields": [{"name": "p", "transform": "identity", "source-id": 9, "field-id": 1000}]}
    found = PartitionFilter.of({"schemas": [], "partition-specs": [spec], "default-spec-id": 0})
    assert found.of_partition(Partition(0, ((1000, 5),))) is None


def test_nested_columns_void_fields_and_tables_of_version_1() -> None:
    schema = {
        "fields": [
            {"id": 1, "name": "a", "type": {"type": "struct", "fields": [{"id": 2, "name": "b", "type": "int"}]}},
            {"id": 3, "name": "c", "type": "int"},
        ]
    }
    spec = [{"name": "b", "transform": "identity", "source-id": 2}, {"name": "c", "transform": "void", "source-id": 3}]
    found = PartitionFilter.of({"schema": schema, "partition-spec": spec})
    partition = Partition(0, ((1000, 5), (1001, None)))
    assert found.of_partition(partition) == {"type": "eq", "term": "a.b", "value": 5}


def depth(one: Any) -> int:
    return 1 + max((depth(one[side]) for side in ("left", "right")), default=0) if "left" in one else 1


def values(one: Any) -> Sequence[Any]:
    return [*values(one["left"]), *values(one["right"])] if "left" in one else [one["value"]]


def test_a_thousand_partitions_are_a_balanced_expression() -> None:
    found = filter_of("identity", "int").of_partitions(Partition(2, ((1000, number),)) for number in range(1_000))
    assert values(found) == list(range(1_000))
    assert depth(found) == 11
    assert len(json.dumps(found)) < 100_000


def test_a_table_without_partitions_is_selected_whole() -> None:
    assert PartitionFilter().of_partition(Partition(0, ())) is True
    assert PartitionFilter().of_partitions([]) is None
