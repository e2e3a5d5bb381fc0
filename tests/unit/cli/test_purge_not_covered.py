"""`delegation purge …/index.json --not-covered`: the operator deletes what a purge's credentials did not cover."""

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from delegation.cli.main import build
from tests.kit.lakes.lake import Lake, rows
from tests.unit.removal.purge.planning.test_taken_over import Purges


@dataclass
class Left:
    """What two purges left in S3 of tables that share files, and the index of the second one's plan."""

    s3: Any
    lake: Lake
    index: Path

    def run(self, *arguments: str) -> tuple[int, dict[str, Any]]:
        command = ["purge", str(self.index), "--not-covered", "--json", "--yes", *arguments]
        result = CliRunner().invoke(build(()), command)
        return result.exit_code, json.loads(result.stdout)

    def keys(self) -> set[str]:
        return {one["Key"] for one in self.s3.list_objects_v2(Bucket="lake").get("Contents", [])}


@pytest.fixture
def left(s3: Any, tmp_path: Path) -> Left:
    lake = Lake()
    for name in ("a", "b", "other"):
        lake.create(name).append(rows(1, 2))
    lent = sorted(uri for uri in lake.below("s3://lake/wh/a/") if uri.endswith(".parquet"))
    lake.table("b").add_files(lent)
    purges = Purges(lake)
    purges.purge("inline", "a")
    second = purges.purge("inline", "b")
    assert {finding.code for finding in second.findings} == {"NOT_COVERED"}
    for key, data in purges.plans.objects.items():
        (tmp_path / key).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / key).write_bytes(data)
    s3.create_bucket(Bucket="lake")
    for (bucket, key), data in purges.lake.objects.items():
        s3.put_object(Bucket=bucket, Key=key, Body=data)
    return Left(s3, purges.lake, tmp_path / second.plan_ids[0] / "index.json")


def test_a_dry_run_counts_and_the_command_deletes_exactly_these_files(left: Left) -> None:
    before = left.keys()
    lent = {key for key in before if key.startswith("wh/a/")}
    status, planned = left.run("--dry-run")
    assert (status, planned["status"], planned["files_planned"]) == (0, "PLANNED", len(lent))
    assert left.keys() == before
    status, done = left.run()
    assert (status, done["status"], done["files_deleted"]) == (0, "PURGED", len(lent))
    assert left.keys() == before - lent
    assert left.run()[0] == 0


def test_what_a_named_table_borrowed_since_stays(left: Left) -> None:
    lent = sorted(uri for uri in left.lake.below("s3://lake/wh/a/") if uri.endswith(".parquet"))
    left.lake.table("other").add_files(lent)
    for (bucket, key), data in left.lake.objects.items():
        left.s3.put_object(Bucket=bucket, Key=key, Body=data)
    before = left.keys()
    status, done = left.run("--protect", left.lake.pointers["other"])
    assert (status, done["files_deleted"], done["files_protected"]) == (0, 0, len(lent))
    assert left.keys() == before


def test_a_path_that_the_plan_did_not_take_over_is_refused(left: Left) -> None:
    before = left.keys()
    [kept] = left.index.parent.glob("KEPT-*")
    kept.write_bytes(gzip.compress(gzip.decompress(kept.read_bytes()).replace(b"wh/a/", b"wh/other/")))
    status, report = left.run()
    assert (status, report["error_code"]) == (5, "PLAN_TAMPERED")
    left.index = left.index.parent / "receipt.json"
    assert left.run()[0] == 5
    assert left.keys() == before
