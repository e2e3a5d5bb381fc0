"""`delegation purge` with other options than its plan was made with; its figures and warnings."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from delegation.cli.main import build
from delegation.storage.file_system import FileObjectStore
from tests.unit.cli.test_purge_files import Disk, disk

__all__ = ["disk"]


def with_stranger(disk: Disk) -> tuple[str, Path]:
    """Return a table's metadata location, and a file outside its locations that it names."""
    table = disk.table("doomed")
    stranger = disk.warehouse / "elsewhere.puffin"
    stranger.write_bytes(b"x")
    root = Path(table.metadata_location.removeprefix("file://"))
    statistics = [{"statistics-path": f"file://{stranger}", "file-size-in-bytes": 1}]
    root.write_text(json.dumps({**json.loads(root.read_text()), "statistics": statistics}))
    return str(table.metadata_location), stranger


def test_outside_delete_after_a_dry_run_without_it_is_refused(disk: Disk) -> None:
    doomed, _ = with_stranger(disk)
    assert disk.purge(doomed, "--dry-run")[1]["files_outside"] == 1
    before = disk.files()
    status, report = disk.purge(doomed, "--outside", "delete")
    assert (status, report["error_code"]) == (3, "PLAN_NOT_ALLOWED")
    assert disk.files() == before
    assert "--dry-run" in report["message"]


def test_a_dry_run_with_other_options_makes_another_plan(disk: Disk) -> None:
    doomed, stranger = with_stranger(disk)
    disk.purge(doomed, "--dry-run")
    planned = disk.purge(doomed, "--dry-run", "--outside", "delete")[1]
    assert planned["files_outside"] == 0
    assert disk.purge(doomed, "--outside", "delete")[0] == 0
    assert not stranger.exists()
    assert disk.files() == set()


def test_a_table_that_is_no_longer_protected_needs_another_plan(disk: Disk) -> None:
    doomed = disk.table("doomed").metadata_location
    stays = disk.table("stays").metadata_location
    disk.purge(doomed, "--dry-run", "--protect", stays)
    status, report = disk.purge(doomed)
    assert (status, report["error_code"]) == (3, "PLAN_NOT_ALLOWED")
    assert disk.purge(doomed, "--protect", stays)[0] == 0


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_a_purge_that_began_continues_with_its_own_options(disk, monkeypatch, dry):
    doomed, stranger = with_stranger(disk)
    delete = FileObjectStore.delete

    def failing(self: FileObjectStore, bucket: str, keys: Any) -> Any:
        if any(key.endswith(".avro") for key in keys):
            raise KeyboardInterrupt
        return delete(self, bucket, keys)

    monkeypatch.setattr(FileObjectStore, "delete", failing)
    stopped = CliRunner().invoke(build(()), ["purge", doomed, "--yes", "--plan", str(disk.plan)])
    assert stopped.exit_code != 0
    monkeypatch.setattr(FileObjectStore, "delete", delete)
    before = disk.files()
    status, report = disk.purge(doomed, "--outside", "delete", *dry)
    assert (status, report["error_code"]) == (3, "PLAN_NOT_ALLOWED")
    assert disk.files() == before
    assert disk.purge(doomed)[0] == 0
    assert disk.files() == {str(stranger)}


def stop_at_manifests(disk: Disk, monkeypatch: pytest.MonkeyPatch, location: str) -> tuple[int, dict[str, Any]]:
    """Purge until the first manifest cannot be deleted; the data files are deleted then."""
    unlink = Path.unlink

    def refuse(self: Path, missing_ok: bool = False) -> None:
        if self.suffix == ".avro":
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        unlink(self, missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse)
    stopped = disk.purge(location)
    monkeypatch.setattr(Path, "unlink", unlink)
    return stopped


def marked(disk: Disk) -> tuple[int, int]:
    """Return the files and bytes of the chunks that have a mark."""
    [index] = [json.loads(path.read_text()) for path in disk.plan.rglob("index.json")]
    done = {path.name for path in disk.plan.rglob("done/*")}
    chunks = [one for one in index["chunks"] if one["name"] in done]
    return sum(one["count"] for one in chunks), sum(one["bytes"] for one in chunks)


def test_the_figures_after_an_error_are_what_the_marks_say(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    location = disk.table("doomed").metadata_location
    planned = len(disk.files())
    report = stop_at_manifests(disk, monkeypatch, location)[1]
    files, size = marked(disk)
    assert files > 0
    assert (report["files_deleted"], report["bytes_deleted"], report["files_planned"]) == (files, size, planned)


def test_the_figures_of_a_refused_rerun_have_what_earlier_runs_deleted(disk, monkeypatch):
    location = disk.table("doomed").metadata_location
    stop_at_manifests(disk, monkeypatch, location)
    root = Path(location.removeprefix("file://"))
    root.write_text(json.dumps({**json.loads(root.read_text()), "properties": {"gc.enabled": "false"}}))
    status, report = disk.purge(location)
    assert (status, report["error_code"]) == (3, "GC_DISABLED")
    assert (report["files_deleted"], report["bytes_deleted"]) == marked(disk)


@pytest.mark.parametrize("dry", [False, True])
def test_the_bytes_of_a_file_that_was_absent_are_not_counted(disk: Disk, *, dry: bool) -> None:
    location = disk.table("doomed").metadata_location
    absent = Path(next(name for name in sorted(disk.files()) if name.endswith(".parquet")))
    size = absent.stat().st_size
    absent.unlink()
    if dry:
        assert disk.purge(location, "--dry-run")[0] == 0
    report = disk.purge(location)[1]
    [receipt] = disk.plan.rglob("receipt.json")
    by_type = json.loads(receipt.read_text())["by_type"]
    assert report["bytes_deleted"] == sum(total["bytes"] for total in by_type.values()) - size
    assert json.loads(receipt.read_text())["bytes_freed"] == report["bytes_deleted"]
    assert disk.purge(location)[1]["bytes_deleted"] == report["bytes_deleted"]


@pytest.mark.parametrize("arguments", [(), ("--dry-run",)])
def test_a_metadata_file_that_is_not_the_newest_is_warned_about(disk: Disk, arguments: tuple[str, ...]) -> None:
    table = disk.table("doomed")
    older = table.metadata.metadata_log[-1].metadata_file
    report = disk.purge(older, *arguments)[1]
    [warning] = report["warnings"]
    assert table.metadata_location in warning


def test_the_newest_metadata_file_is_not_warned_about(disk: Disk) -> None:
    doomed = disk.table("doomed").metadata_location
    other = Path(doomed.removeprefix("file://")).parent / "00099-of-another-table.metadata.json"
    other.write_text(Path(disk.table("stays").metadata_location.removeprefix("file://")).read_text())
    assert "warnings" not in disk.purge(doomed, "--dry-run")[1]
