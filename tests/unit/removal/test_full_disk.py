"""A full disk while a plan is sorted or stored ends in an error that names the place and the next step."""

import errno
import os
import tempfile
from pathlib import Path

import pytest

from delegation.removal.index import Sorter
from delegation.storage.file_system import FilePlanStore
from polaris_common.errors import DelegationError

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
