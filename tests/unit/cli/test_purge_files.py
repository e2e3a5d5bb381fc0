"""`delegation purge` of tables on a local disk."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.table import Table
from typer.testing import CliRunner

from delegation.cli.main import build
from delegation.storage.base import ObjectStoreDenied, ObjectStoreError, ObjectStoreUnavailable
from delegation.storage.file_system import FileObjectStore, FilePlanStore
from delegation.storage.locations import LOCAL, ObjectLocation, UnsupportedLocation, parse
from delegation.storage.s3 import S3ObjectStore
from tests.kit.lakes.lake import SCHEMA, SPEC, rows


class Disk:
    """A warehouse on disk, and the command that purges its tables."""

    def __init__(self, place: Path) -> None:
        self.warehouse, self.plan = place / "wh", place / "plan"
        self.catalog = InMemoryCatalog("disk", warehouse=f"file://{self.warehouse}")
        self.catalog.create_namespace("ns")

    def table(self, name: str) -> Table:
        table = self.catalog.create_table(("ns", name), SCHEMA, partition_spec=SPEC)
        table.append(rows(1, 2))
        table.append(rows(3, part="b c"))
        table.delete("id = 1")
        return table

    def files(self, below: str = "") -> set[str]:
        return {path.as_posix() for path in (self.warehouse / below).rglob("*") if path.is_file()}

    def purge(self, table: Table | str, *arguments: str) -> tuple[int, dict[str, Any]]:
        location = table if isinstance(table, str) else table.metadata_location
        result = CliRunner().invoke(build(()), ["purge", location, "--json", "--plan", str(self.plan), *arguments])
        return result.exit_code, json.loads(result.stdout)


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


def test_a_table_on_disk_is_purged_and_its_neighbour_stays(disk: Disk) -> None:
    doomed, stays = disk.table("doomed"), disk.table("stays")
    ours, rest = disk.files("ns/doomed"), disk.files("ns/stays")
    assert len(ours) > 10
    status, report = disk.purge(doomed, "--dry-run")
    assert (status, report["status"], report["files_planned"]) == (0, "PLANNED", len(ours))
    assert disk.files() == ours | rest
    status, report = disk.purge(doomed)
    assert (status, report["status"], report["files_deleted"], report["files_outside"]) == (0, "PURGED", len(ours), 0)
    assert disk.files() == rest
    assert sorted(stays.scan().to_arrow()["id"].to_pylist()) == [2, 3]


@pytest.mark.parametrize("spelling", ["file:/", "/"])
def test_another_spelling_of_the_metadata_file_resumes_the_same_plan(disk: Disk, spelling: str) -> None:
    doomed = disk.table("doomed")
    assert disk.purge(doomed, "--dry-run")[0] == 0
    assert disk.purge(doomed.metadata_location.replace("file:///", spelling))[0] == 0
    assert disk.files() == set()
    assert len(list(disk.plan.rglob("index.json"))) == 1


def test_a_protected_clone_on_disk_keeps_its_files(disk: Disk) -> None:
    doomed = disk.table("doomed")
    clone = disk.catalog.register_table(("ns", "clone"), doomed.metadata_location)
    shared = disk.files()
    doomed.append(rows(9))
    status, report = disk.purge(doomed, "--protect", clone.metadata_location)
    assert (status, report["files_protected"]) == (0, len(shared))
    assert disk.files() == shared


@pytest.mark.parametrize(("number", "code"), [(errno.EACCES, "AccessDenied"), (errno.EBUSY, "EBUSY")])
def test_files_that_cannot_be_deleted_are_reported(disk, monkeypatch, number, code):
    doomed = disk.table("doomed")
    unlink = Path.unlink

    def refuse(self: Path, missing_ok: bool = False) -> None:
        if self.suffix == ".parquet":
            raise OSError(number, os.strerror(number))
        unlink(self, missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse)
    data = {file for file in disk.files() if file.endswith(".parquet")}
    status, report = disk.purge(doomed)
    assert (status, report["status"], report["error_code"]) == (4, "INCOMPLETE", "FILES_NOT_DELETED")
    [receipt] = disk.plan.rglob("receipt.json")
    assert json.loads(receipt.read_text())["files_failed"] == report["files_failed"] == len(data)
    assert code in report["message"]
    assert data < disk.files()


def test_an_unwritable_directory_is_refused_before_the_first_delete(disk, monkeypatch):
    doomed = disk.table("doomed")
    before = disk.files()
    asked: list[str] = []
    monkeypatch.setattr(os, "access", lambda path, _mode: bool(asked.append(str(path))))
    status, report = disk.purge(doomed)
    assert (status, report["error_code"]) == (3, "CREDENTIALS_CANNOT_DELETE")
    assert asked == [f"{disk.warehouse}/ns/doomed"]
    assert disk.files() == before


def test_an_inaccessible_directory_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shut = tmp_path / "shut"
    (shut / "in").mkdir(parents=True)
    stat = os.stat

    def behind_it(path: Any, **options: Any) -> os.stat_result:
        if str(path).startswith(f"{shut}/"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return stat(path, **options)

    monkeypatch.setattr(os, "stat", behind_it)
    monkeypatch.setattr(os, "access", lambda path, _mode: str(path) != str(shut))
    assert FileObjectStore().probe_delete(f"file://{shut}/in/t/") == "AccessDenied"
    with pytest.raises(ObjectStoreError, match="cannot list"):
        list(FilePlanStore(shut / "in").keys(""))


def test_a_plan_outlives_a_power_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """POSIX: a new file's name is durable once its directory is synchronized, and so on up to an existing directory."""
    kept: list[Path] = []
    fsync = os.fsync

    def seen(handle: int) -> None:
        kept.append(Path(f"/proc/self/fd/{handle}").readlink())
        fsync(handle)

    monkeypatch.setattr(os, "fsync", seen)
    plans = FilePlanStore(tmp_path / "plans")
    plans.put("1/0/index.json", b"{}")
    assert kept[1:] == [tmp_path / "plans/1/0", tmp_path / "plans/1", tmp_path / "plans", tmp_path]
    kept.clear()
    plans.put("1/0/done/0", b"")
    assert kept[1:] == [tmp_path / "plans/1/0/done", tmp_path / "plans/1/0"]
    kept.clear()
    plans.put("1/0/done/1", b"")
    assert kept[1:] == [tmp_path / "plans/1/0/done"]
    kept.clear()
    plans.put("1/1/index.json", b"{}")
    assert kept[1:] == [tmp_path / "plans/1/1", tmp_path / "plans/1"]


@pytest.mark.parametrize(("number", "error"), [(errno.EACCES, ObjectStoreDenied), (errno.EIO, ObjectStoreUnavailable)])
def test_denied_and_failed_reads_raise_different_errors(monkeypatch, number, error):
    def refuse(_path: Path, _mode: str) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(error):
        FileObjectStore().read(parse("file:///wh/x"), limit=1)


def test_each_store_refuses_locations_of_the_other_kind() -> None:
    with pytest.raises(UnsupportedLocation):
        FileObjectStore().read(ObjectLocation("etc", "passwd"), limit=1)
    with pytest.raises(UnsupportedLocation):
        FileObjectStore().delete("etc", ["passwd"])
    s3 = S3ObjectStore()
    for ask in (
        lambda: s3.read(parse("file:///etc/passwd"), limit=1),
        lambda: s3.exists(parse("file:///etc/passwd")),
        lambda: s3.probe_delete("file:///etc/"),
        lambda: s3.versioned(LOCAL),
    ):
        with pytest.raises(UnsupportedLocation):
            ask()
    assert [one.code for one in s3.delete(LOCAL, ["etc/passwd"]).failed] == ["UNSUPPORTED_LOCATION"]
