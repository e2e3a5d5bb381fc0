"""External sort, intersection and subtraction, compared with sets and sorted(), and a full disk under them."""

import errno
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegation.iceberg.paths import TableFile
from delegation.removal import index
from delegation.removal.index import Sorter, common, without
from delegation.storage.file_system import FilePlanStore
from polaris_common.errors import DelegationError

PATHS = st.text(alphabet="ab/\n\x00é😀", min_size=1, max_size=4)
RECORDS = st.lists(st.builds(TableFile, PATHS, st.integers(0, 8), st.integers(0, 3)))


@given(RECORDS, st.integers(1, 7))
def test_rows_are_sorted_and_distinct_for_any_run_size(records: list[TableFile], run: int) -> None:
    with Sorter(run_records=run) as sorter:
        sorter.extend(records)
        found = list(sorter.sorted())
    first: dict[str, TableFile] = {}
    for record in sorted(records):
        first.setdefault(record.path, record)
    assert found == [first[path] for path in sorted(first)]


@given(RECORDS, st.lists(PATHS), st.integers(1, 4))
def test_common_returns_exactly_the_common_paths_and_without_the_others(
    records: list[TableFile], others: list[str], size: int
) -> None:
    ours = [tuple(record) for record in sorted({record.path: record for record in records}.values())]
    batches = [ours[at : at + size] for at in range(0, len(ours), size)]
    found = list(common(batches, sorted(others)))
    assert [rows for rows, _ in found] == batches
    for rows, both in found:
        assert both == {path for path, _, _ in rows} & set(others)
    left = [row for rows in without(batches, sorted(others)) for row in rows]
    assert left == [row for row in ours if row[0] not in others]


def test_many_runs_are_merged_in_passes_and_no_file_remains(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(index, "_FAN_IN", 3)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with Sorter(run_records=2) as sorter:
        sorter.extend(_backwards(41))
        assert [record.path for record in sorter.sorted()] == [f"{n:03d}" for n in range(41)]
        assert len(list(tmp_path.iterdir())) == 1
    assert list(tmp_path.iterdir()) == []


def _backwards(count: int) -> Iterable[TableFile]:
    return (TableFile(f"{n:03d}", 8, n) for n in reversed(range(count)))


FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
ROWS = [(f"s3://lake/wh/t/{number}", 8, 1) for number in range(6)]


def sort(sorter: Sorter) -> None:
    sorter.extend(ROWS)
    list(sorter.batches())


@pytest.mark.parametrize("call", ["directory", "write", "read"])
def test_a_full_disk_while_sorting_is_a_typed_error(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_arguments: object, **_options: object) -> None:
        raise FULL

    with Sorter(run_records=2) as sorter:
        if call == "read":
            sorter.extend(ROWS)
        monkeypatch.setattr(tempfile, "TemporaryDirectory", full) if call == "directory" else monkeypatch.setattr(
            Path, "open", full
        )
        with pytest.raises(DelegationError) as raised:
            sort(sorter)
        monkeypatch.undo()
    assert (raised.value.code, raised.value.retryable) == ("SORTING_FAILED", True)
    assert "No space left on device" in str(raised.value)
    assert "TMPDIR" in str(raised.value)


def test_a_full_disk_under_the_plan_is_a_typed_error_and_leaves_no_half_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_handle: int) -> None:
        raise FULL

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DelegationError) as raised:
        FilePlanStore(tmp_path).put("task/1/a", b"x")
    assert (raised.value.code, raised.value.retryable) == ("STORAGE_FULL", True)
    assert str(tmp_path) in str(raised.value)
    assert "Free space" in str(raised.value)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
