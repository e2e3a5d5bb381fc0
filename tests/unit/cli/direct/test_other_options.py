"""`delegation purge` after a dry run, or after an interruption, with other options than the plan was made with."""

import json
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
