"""Files by partition from manifests of versions 1 to 3, with the deletes that apply to each."""

import struct
from typing import Any

import pytest

from delegation.iceberg.errors import ManifestMissing
from delegation.rewrites import bounds
from delegation.rewrites.choose import DataFile, Partition, PartitionFiles
from delegation.rewrites.files import TableFiles, head_of
from tests.unit.rewrites.tables import FIELDS, SPEC, SyntheticTable, data, equality, position, stats, vector


def day(value: str | None) -> Partition:
    return Partition(0, ((1000, value),))


def by_partition(files: TableFiles) -> dict[Partition, PartitionFiles]:
    return {one.partition: one for one in files.partitions}


@pytest.mark.parametrize("version", [1, 2, 3])
def test_files_are_counted_by_partition_and_candidates_are_kept(version: int) -> None:
    table = SyntheticTable(version)
    table.commit(data("1"), data("2", 900), data("3", day="b"), at=5)
    table.commit(data("4", 20, day=None), at=9)
    files = table.files()
    found = by_partition(files)
    assert (files.snapshot_id, files.data_files, files.data_bytes) == (2, 4, 940)
    assert found[day("a")] == PartitionFiles(day("a"), 2, 910, [DataFile(10, 100)], newest_ms=5)
    assert found[day("b")].candidates == [DataFile(10, 100)]
    assert (found[day(None)].bytes, found[day(None)].newest_ms) == (20, 9)


def test_a_removed_file_is_no_file_and_its_partition_had_a_commit() -> None:
    table = SyntheticTable()
    table.commit(data("1"), data("2", day="b"), at=5)
    table.manifests = []
    table.commit(
        data("1", status=0, snapshot_id=1, sequence_number=1),
        data("2", day="b", status=2, snapshot_id=2, sequence_number=1),
        at=7,
        operation="delete",
    )
    found = by_partition(table.files())
    assert found[day("a")].newest_ms == 5
    assert (found[day("b")].files, found[day("b")].newest_ms) == (0, 7)


def test_a_rewrite_is_no_commit_of_a_writer_and_an_expired_snapshot_is_old() -> None:
    table = SyntheticTable()
    table.commit(data("1"), at=5)
    table.commit(data("2", day="b"), at=9, operation="replace")
    table.commit(data("3", day="c"), at=10)
    table.snapshots[0]["snapshot-id"] = 77
    found = by_partition(table.files())
    assert [found[day(one)].newest_ms for one in "abc"] == [None, None, 10]


def test_position_deletes_apply_to_files_of_their_commit_and_before_in_their_partition() -> None:
    table = SyntheticTable()
    table.commit(data("1"), data("b", day="b"))
    table.commit(data("2"), position("d"))
    table.commit(data("3"))
    found = by_partition(table.files())
    assert found[day("a")].candidates == [DataFile(10, 100, 1), DataFile(10, 100, 1), DataFile(10, 100)]
    assert found[day("b")].candidates == [DataFile(10, 100)]
    assert found[day("a")].lasting == 0


def test_a_delete_of_the_current_snapshot_applies_to_what_a_rewrite_writes() -> None:
    table = SyntheticTable()
    table.commit(data("1"))
    table.commit(position("d"), position("e", "1"), equality("f"))
    (found,) = table.files().partitions
    assert found.lasting == 1
    assert found.candidates[0].deletes == 3


def test_deletes_of_one_data_file_count_their_rows() -> None:
    table = SyntheticTable()
    table.commit(data("1", 900), data("2", 900))
    table.commit(position("d", "1", rows=20))
    table.commit(position("e", "1", rows=15))
    (found,) = table.files().partitions
    assert found.candidates == [DataFile(900, 100, 2, 35)]


def test_a_delete_of_a_data_file_that_was_written_later_does_not_apply() -> None:
    table = SyntheticTable()
    table.commit(position("d", "1", rows=50))
    table.commit(data("1"))
    (found,) = table.files().partitions
    assert found.candidates == [DataFile(10, 100)]


def test_equality_deletes_apply_to_older_files_of_their_partition_only() -> None:
    table = SyntheticTable()
    table.commit(data("1"), data("b", day="b"))
    table.commit(data("2"), equality("d"))
    found = by_partition(table.files())
    assert found[day("a")].candidates == [DataFile(10, 100, 1), DataFile(10, 100)]
    assert found[day("b")].candidates == [DataFile(10, 100)]


def test_equality_deletes_without_a_partition_apply_to_files_of_every_spec() -> None:
    table = SyntheticTable(specs={0: SPEC, 1: ()})
    table.commit(data("1"), data("b", day="b"))
    table.commit(equality("d"), spec=1)
    found = by_partition(table.files())
    assert [found[day(one)].candidates for one in "ab"] == [[DataFile(10, 100, 1)]] * 2


def long(number: int) -> bytes:
    return struct.pack("<q", number)


def applying(files: TableFiles) -> list[int]:
    return [file.deletes for files in files.partitions for file in files.candidates]


def test_an_equality_delete_applies_where_the_bounds_of_its_columns_meet_those_of_a_file() -> None:
    table = SyntheticTable()
    table.commit(*(data(str(low), **stats(2, long(low), long(low + 9))) for low in (0, 10, 20)), data("unknown"))
    table.commit(equality("d", 2, **stats(2, long(9), long(10))), equality("everything", 2))
    assert applying(table.files()) == [2, 2, 1, 2]
    # It is no reason to rewrite the third file, day after day.
    found = table.files(delete_file_threshold=2, target=10, min_input_files=9)
    assert applying(found) == [2, 2, 2]


def test_bounds_are_decoded_once_for_each_file_not_for_each_pair_of_files(monkeypatch: pytest.MonkeyPatch) -> None:
    table, decoded = SyntheticTable(), list[bytes]()
    table.commit(*(data(str(number), **stats(2, long(1), long(2))) for number in range(20)))
    table.commit(*(equality(f"d{number}", 2, **stats(2, long(2), long(3))) for number in range(20)))
    bound = bounds.bound
    monkeypatch.setattr(bounds, "bound", lambda column, raw: decoded.append(raw) or bound(column, raw))
    assert applying(table.files()) == [20] * 20
    assert len(decoded) == 2 * (20 + 20)


def test_an_equality_delete_by_several_columns_applies_where_all_of_them_meet() -> None:
    table = SyntheticTable()
    table.commit(data("1", **stats(2, long(0), long(9)), day="a"))
    table.commit(equality("d", 1, 2, **stats(2, long(50), long(60))), equality("e", 1, 2, **stats(2, long(5), long(6))))
    assert applying(table.files()) == [1]


@pytest.mark.parametrize(
    ("of_file", "of_delete", "applies"),
    [
        (stats(2, nulls=100), stats(2, long(1), long(1)), False),  # only nulls, and no null is deleted
        (stats(2, nulls=100), stats(2, nulls=None), True),
        (stats(2, long(1), long(9)), stats(2, nulls=100), False),  # nulls are deleted, and there are none
        (stats(2, long(1), long(9), nulls=1), stats(2, nulls=100), True),
        (stats(2, long(1), long(9), nulls=1), stats(2, long(50), long(60), nulls=1), True),
        (stats(2, long(1), long(9), nulls=None), stats(2, long(50), long(60), nulls=None), True),
        (stats(2, struct.pack("<i", 1), struct.pack("<i", 9)), stats(2, long(50), long(60)), False),  # promoted
        (stats(2, b"\x01", b"\x09"), stats(2, long(50), long(60)), True),  # no long
    ],
)
def test_nulls_decide_as_in_iceberg(of_file: dict[str, Any], of_delete: dict[str, Any], applies: bool) -> None:
    table = SyntheticTable()
    table.commit(data("1", **of_file))
    table.commit(equality("d", 2, **of_delete))
    assert applying(table.files()) == [int(applies)]


@pytest.mark.parametrize(
    ("kind", "low", "high", "applies"),
    [
        ("string", b"b", b"c", True),
        ("string", b"d", b"e", False),
        ("string", "é".encode(), "é".encode(), False),
        ("binary", b"\xff", b"\xff", False),
        ("double", struct.pack("<d", 1e9), struct.pack("<d", 2e9), True),  # the file's bounds are no doubles
        ("boolean", b"\x01", b"\x01", True),
        ("decimal(4, 2)", b"\x00\x61", b"\x61", True),
        ("decimal(4, 2)", b"\x00\xff", b"\x00\xff", False),
        ("uuid", b"\xff" * 16, b"\xff" * 16, True),  # has no order here
    ],
)
def test_bounds_are_compared_by_their_type(kind: str, low: bytes, high: bytes, applies: bool) -> None:
    column = {"id": 2, "name": "id", "type": kind, "required": False}
    table = SyntheticTable(fields=(FIELDS[0], column))
    table.commit(data("1", **stats(2, b"a", b"c")))
    table.commit(equality("d", 2, **stats(2, low, high)))
    assert applying(table.files()) == [int(applies)]


def test_a_filter_leaves_files_out_by_bounds_and_by_partition() -> None:
    table = SyntheticTable()
    table.commit(
        *(data(f"{day}{low}", day=day, **stats(2, long(low), long(low + 9))) for day in "ab" for low in (0, 10)),
        data("unknown", day="b"),
    )
    assert len(applying(table.files(filter="id < 5"))) == 3
    assert len(applying(table.files(filter="day = 'b' AND id BETWEEN 12 AND 14"))) == 2
    assert applying(table.files(filter="day > 'b'")) == []
    files = table.files(filter="id < 5")
    assert (files.data_files, sum(partition.files for partition in files.partitions)) == (5, 5)


def test_a_vector_replaces_the_position_deletes_of_its_file() -> None:
    table = SyntheticTable(3)
    table.commit(data("1"), data("2"))
    table.commit(position("d"), position("e", "1", rows=10))
    table.commit(vector("v", "1", rows=30, content_size_in_bytes=40), equality("f"))
    files = table.files()
    assert files.partitions[0].candidates == [DataFile(10, 100, 2, 30), DataFile(10, 100, 2)]
    assert (files.delete_files, files.delete_bytes) == (4, 70)


def test_files_of_former_specs_are_grouped_with_the_partition_of_nulls() -> None:
    bucket = {"name": "id_bucket", "transform": "bucket[4]", "source-id": 2, "field-id": 1001}
    table = SyntheticTable(specs={0: SPEC, 1: (bucket,)}, current_spec=1)
    table.commit(data("1"), data("2", day="b"))
    table.commit(data("3") | {"partition": {"id_bucket": None}}, data("4") | {"partition": {"id_bucket": 3}}, spec=1)
    found = by_partition(table.files())
    nulls, third = Partition(1, ((1001, None),)), Partition(1, ((1001, 3),))
    assert (found[nulls].files, found[nulls].former) == (3, 2)
    assert (found[third].files, found[third].former) == (1, 0)


def test_a_table_without_a_partition_spec_is_one_partition() -> None:
    table = SyntheticTable(specs={0: ()})
    table.commit(data("1"), data("2"))
    (found,) = table.files().partitions
    assert (found.partition, found.files) == (Partition(0, ()), 2)


def test_another_branch_has_other_files() -> None:
    table = SyntheticTable()
    table.commit(data("1"))
    table.refs["audit"] = dict(table.refs["main"])
    table.commit(data("2"))
    assert table.files().data_files == 2
    assert table.files(branch="audit").data_files == 1
    assert table.files(branch="none") == TableFiles(None)


def test_a_tag_is_no_branch() -> None:
    table = SyntheticTable()
    table.commit(data("1"))
    table.refs["v1"] = {"snapshot-id": 1, "type": "tag"}
    assert head_of(table.document, "v1") is None
    assert head_of({**table.document, "refs": {}}) == table.snapshots[0]
    assert head_of({}) is None


def test_manifests_listed_inline_in_version_1() -> None:
    table = SyntheticTable(1)
    table.commit(data("1"))
    snapshot: dict[str, Any] = table.snapshots[0]
    del snapshot["manifest-list"]
    snapshot["manifests"] = [one["manifest_path"] for one in table.manifests]
    assert table.files().data_files == 1


def test_a_manifest_that_is_missing_is_an_error() -> None:
    table = SyntheticTable()
    table.commit(data("1"))
    del table.store.objects["lake", "t/metadata/1-0.avro"]
    with pytest.raises(ManifestMissing):
        table.files()


def test_the_threshold_of_deletes_keeps_large_files_too() -> None:
    table = SyntheticTable(fields=FIELDS)
    table.commit(data("1", 900))
    table.commit(position("d"))
    assert table.files().partitions[0].candidates == []
    assert table.files(delete_file_threshold=1).partitions[0].candidates == [DataFile(900, 100, 1)]
