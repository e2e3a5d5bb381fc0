"""`delegation purge` of real tables in S3 (moto): what it deletes, reports and returns as exit status."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from delegation.cli.main import build
from delegation.storage.base import BatchResult, KeyFailure
from delegation.storage.locations import parse
from delegation.storage.s3 import S3ObjectStore
from tests.kit.lakes.lake import Lake, busy_table, rows

FIELDS = {
    *("status", "engine", "plan", "seconds", "error_code", "bytes_deleted"),
    *("files_planned", "files_deleted", "files_failed", "files_outside", "files_protected"),
}


class Bucket:
    """Tables in S3, and the command that purges them."""

    def __init__(self, s3: Any, place: Path) -> None:
        self.s3, self.place, self.lake = s3, place, Lake()
        busy_table(self.lake, "t")
        busy_table(self.lake, "neighbour")

    def fill(self) -> "Bucket":
        for (bucket, key), data in self.lake.objects.items():
            self.s3.put_object(Bucket=bucket, Key=key, Body=data)
        return self

    def left(self, prefix: str = "") -> set[str]:
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket="lake", Prefix=prefix)
        return {one["Key"] for page in pages for one in page.get("Contents", [])}

    def call(self, *arguments: str, table: str = "t") -> Result:
        return CliRunner().invoke(
            build(()), ["purge", self.lake.pointers[table], "--plan", str(self.place), *arguments]
        )

    def purge(self, *arguments: str, table: str = "t") -> tuple[int, dict[str, Any]]:
        result = self.call("--json", *arguments, table=table)
        return result.exit_code, json.loads(result.stdout)


@pytest.fixture
def bucket(s3: Any, tmp_path: Path) -> Bucket:
    s3.create_bucket(Bucket="lake")
    s3.create_bucket(Bucket="plans")
    return Bucket(s3, tmp_path / "plan")


def test_a_table_is_purged_and_its_receipt_stored_beside_the_plan(bucket: Bucket) -> None:
    bucket.fill()
    ours, rest = bucket.left("wh/t/"), bucket.left("wh/neighbour/")
    status, report = bucket.purge()
    assert set(report) == FIELDS
    assert (status, report["status"], report["error_code"]) == (0, "PURGED", None)
    assert (report["files_deleted"], report["plan"], report["engine"]) == (len(ours), str(bucket.place), "inline")
    assert bucket.left() == rest
    assert len(list(bucket.place.rglob("receipt.json"))) == 1
    assert bucket.purge()[0] == 0


def test_the_plan_of_a_dry_run_is_executed_unchanged(bucket: Bucket) -> None:
    bucket.fill()
    before = bucket.left()
    planned = bucket.purge("--dry-run")[1]
    assert set(planned) == FIELDS | {"estimate"}
    assert (planned["status"], planned["estimate"]["files"]) == ("PLANNED", planned["files_planned"])
    assert bucket.left() == before
    [index] = bucket.place.rglob("index.json")
    status, report = bucket.purge()
    assert (status, report["files_deleted"]) == (0, len(bucket.lake.below("s3://lake/wh/t/")))
    assert list(bucket.place.rglob("index.json")) == [index]


def test_a_plan_can_be_stored_in_a_bucket(bucket: Bucket) -> None:
    bucket.fill()
    bucket.place = "s3://plans/some/where/"  # type: ignore[assignment]
    assert bucket.purge()[0] == 0
    assert bucket.left("wh/t/") == set()
    keys = [one["Key"] for one in bucket.s3.list_objects_v2(Bucket="plans")["Contents"]]
    assert "some/where/head.json" in keys
    assert all(key.startswith("some/where/") for key in keys)


def test_by_default_the_plan_is_stored_below_the_working_directory(bucket, tmp_path, monkeypatch):
    bucket.fill()
    monkeypatch.chdir(tmp_path)
    called = ["purge", bucket.lake.pointers["t"], "--dry-run", "--json"]
    first, second = (json.loads(CliRunner().invoke(build(()), called).stdout)["plan"] for _ in range(2))
    assert first == second
    assert first.startswith("./delegation-plans/")
    assert (tmp_path / first / "head.json").is_file()


def corrupt(bucket: Bucket) -> None:
    where = next(where for where in bucket.lake.objects if "/t/" in where[1] and where[1].endswith("-m0.avro"))
    bucket.lake.objects[where] = b"x" * len(bucket.lake.objects[where])


def changed(**changes: Any) -> Callable[[Bucket], None]:
    return lambda bucket: bucket.lake.rewrite_metadata("t", changes)


def missing(bucket: Bucket) -> None:
    del bucket.lake.objects["lake", parse(bucket.lake.pointers["t"]).key]


ELSEWHERE = [{"statistics-path": "s3://lake/x/stats.puffin", "file-size-in-bytes": 1}]


@pytest.mark.parametrize(
    ("spoil", "arguments", "status", "code"),
    [
        (changed(properties={"gc.enabled": "false"}), (), 3, "GC_DISABLED"),
        (changed(properties={"delegation.protected": "true"}), ("--dry-run",), 3, "TABLE_PROTECTED"),
        (changed(**{"format-version": 4}), (), 3, "UNSUPPORTED_FORMAT_VERSION"),
        (changed(statistics=ELSEWHERE), ("--outside", "refuse"), 3, "PATHS_OUTSIDE_TABLE"),
        (corrupt, (), 5, "CORRUPT_MANIFEST"),
        (changed(**{"table-uuid": "no"}), (), 5, "CORRUPT_METADATA"),
        (missing, (), 1, "TABLE_METADATA_MISSING"),
    ],
)
def test_a_refused_or_corrupt_table_keeps_its_files(bucket, spoil, arguments, status, code):
    spoil(bucket)
    before = bucket.fill().left()
    exit_status, report = bucket.purge(*arguments)
    assert (exit_status, report["error_code"], report["files_deleted"]) == (status, code, 0)
    assert bucket.left() == before


def test_the_rest_of_a_damaged_table_is_purged_on_request(bucket: Bucket) -> None:
    corrupt(bucket)
    before = bucket.fill().left()
    assert bucket.purge()[1]["error_code"] == "CORRUPT_MANIFEST"
    status, report = bucket.purge("--dry-run", "--keep", "damaged")
    assert (status, report["status"]) == (0, "PLANNED")
    status, refused = bucket.purge()
    assert (status, refused["error_code"]) == (3, "PLAN_NOT_ALLOWED")
    assert bucket.left() == before
    status, done = bucket.purge("--keep", "damaged", "--keep", "ambiguous")
    assert (status, done["files_deleted"]) == (0, report["files_planned"])
    assert len(bucket.left()) == len(before) - done["files_deleted"]


def test_experimental_format_purges_an_unknown_format_version(bucket: Bucket) -> None:
    bucket.lake.rewrite_metadata("t", {"format-version": 4})
    bucket.fill()
    assert bucket.purge("--experimental-format")[0] == 0
    assert bucket.left("wh/t/") == set()


def test_a_plan_that_kept_outside_files_is_refused_with_outside_refuse(bucket: Bucket) -> None:
    changed(statistics=ELSEWHERE)(bucket)
    before = bucket.fill().left()
    assert bucket.purge("--dry-run")[1]["files_outside"] == 1
    status, report = bucket.purge("--outside", "refuse")
    assert (status, report["error_code"], report["files_outside"]) == (3, "PATHS_OUTSIDE_TABLE", 1)
    assert bucket.left() == before
    assert bucket.purge()[0] == 0


def test_a_plan_made_without_the_protected_table_is_refused(bucket: Bucket) -> None:
    bucket.lake.pointers["clone"] = bucket.lake.pointers["t"]
    bucket.lake.table("clone").append(rows(9))
    before = bucket.fill().left()
    planned = bucket.purge("--dry-run")[1]["files_planned"]
    status, report = bucket.purge("--protect", bucket.lake.pointers["clone"])
    assert (status, report["error_code"], report["files_protected"]) == (3, "FILES_SHARED", planned)
    assert bucket.left() == before


def test_a_plan_directory_can_be_a_path_or_a_uri(bucket: Bucket) -> None:
    bucket.fill()
    directory = bucket.place
    assert bucket.purge("--dry-run")[0] == 0
    bucket.place = f"file://{directory}"  # type: ignore[assignment]
    assert bucket.purge()[0] == 0
    assert len(list(directory.rglob("index.json"))) == 1
    assert bucket.left("wh/t/") == set()


def test_a_plan_of_another_table_is_refused(bucket: Bucket) -> None:
    bucket.fill()
    bucket.purge("--dry-run", table="neighbour")
    before = bucket.left()
    status, report = bucket.purge()
    assert (status, report["error_code"]) == (3, "PLAN_OF_ANOTHER_TABLE")
    assert bucket.left() == before


@pytest.mark.parametrize("at", [2, 3, 4])  # after the data files, what they are listed in, and the manifest lists
def test_a_plan_lost_after_the_first_delete_is_made_again(bucket, monkeypatch, at):
    bucket.fill()
    kept, calls, usual = bucket.left("wh/neighbour/"), iter(range(1, 1000)), S3ObjectStore.delete

    def delete(store: S3ObjectStore, name: str, keys: Any) -> BatchResult:
        if next(calls) >= at:
            return BatchResult((), tuple(KeyFailure(key, "AccessDenied") for key in keys))
        return usual(store, name, keys)

    with monkeypatch.context() as denied:
        denied.setattr(S3ObjectStore, "delete", delete)
        assert bucket.purge()[1]["error_code"] == "FILES_NOT_DELETED"
    for file in [file for file in bucket.place.rglob("*") if file.is_file() and file.name != "head.json"]:
        file.unlink()
    status, report = bucket.purge()
    assert (status, report["status"]) == (0, "PURGED")
    assert bucket.left() == kept


def test_an_invalid_plan_head_is_corrupt(bucket: Bucket) -> None:
    bucket.fill()
    bucket.purge("--dry-run")
    (bucket.place / "head.json").write_bytes(b"[]")
    status, report = bucket.purge()
    assert (status, report["error_code"]) == (5, "PLAN_TAMPERED")


@pytest.mark.parametrize(
    ("arguments", "profile"),
    [
        (["--s3-endpoint", "minio:9000"], ""),
        (["--s3-endpoint", "minio:9000", "--plan", "s3://plans/x"], ""),
        (["--plan", "s3://plans/x"], "no-such-profile"),
        ([], "no-such-profile"),
    ],
)
def test_invalid_settings_are_reported_as_json(bucket, monkeypatch, arguments, profile):
    if profile:
        monkeypatch.setenv("AWS_PROFILE", profile)
    status, report = bucket.purge(*arguments)
    assert (status, report["status"], report["error_code"]) == (1, "FAILED", "STORAGE_ERROR")


def test_a_metadata_file_may_have_any_name(bucket: Bucket) -> None:
    bucket.lake.objects["lake", "wh/t/\x1f.json"] = bucket.lake.objects.pop(("lake", bucket.lake.pointers["t"][10:]))
    bucket.lake.pointers["t"] = "s3://lake/wh/t/\x1f.json"
    bucket.fill()
    assert bucket.purge()[0] == 0
    assert bucket.left("wh/t/") == set()


def test_text_output_has_the_result_or_the_next_step(bucket: Bucket) -> None:
    bucket.fill()
    planned = bucket.call("--dry-run").stdout
    assert "nothing was deleted" in planned
    assert "Executing the plan takes about 1 s and less than 0.01 USD" in planned
    refused = bucket.call(table="neighbour")
    assert (refused.exit_code, "--plan" in refused.stderr.partition("Next:")[2]) == (3, True)
    assert bucket.call().stdout.startswith("Deleted ")
