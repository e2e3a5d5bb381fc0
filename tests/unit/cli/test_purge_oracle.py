"""`delegation purge` of tables in S3 (moto) that Spark wrote deletes exactly the files that Iceberg reaches."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from typer.testing import CliRunner

from delegation.cli.main import build
from tests.aws import mock_aws
from tests.unit.removal.purge.oracle.oracle import Purge


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        client = boto3.client("s3")
        client.create_bucket(Bucket="lake")
        yield client


def left(s3: Any) -> set[str]:
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket="lake")
    return {f"s3://lake/{one['Key']}" for page in pages for one in page.get("Contents", [])}


@pytest.mark.parametrize(
    ("scenario", "table"),
    # The other tables differ for the engine alone: tests/unit/removal/purge/oracle purges each of them without S3.
    [
        pytest.param("odd", "spaces", marks=pytest.mark.long),
        pytest.param("odd", "percent", marks=pytest.mark.long),
        ("odd", "unicode"),
        pytest.param("odd", "values_v3", marks=pytest.mark.long),
        ("schemes", "mixed"),
        ("row_deletes", "vectors"),
        ("clone", "original"),
        pytest.param("nested", "outer", marks=pytest.mark.long),
        pytest.param("metadata", "log_gone", marks=pytest.mark.long),
    ],
)
def test_a_purge_deletes_what_iceberg_reaches(s3: Any, tmp_path: Path, scenario: str, table: str) -> None:
    purge = Purge(scenario, table)
    for uri in purge.scenario.objects:
        key = uri.removeprefix("s3://lake/")
        s3.put_object(Bucket="lake", Key=key, Body=purge.bench.lake.objects["lake", key])
    before = left(s3)
    assert before == set(purge.scenario.objects)
    protect = [word for name in purge.table.shares for word in ("--protect", purge.tables[name].metadata_location)]
    arguments = ["purge", purge.table.metadata_location, "--json", "--plan", str(tmp_path / "plan"), *protect]
    result = CliRunner().invoke(build(()), arguments)
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert (report["status"], report["files_deleted"]) == ("PURGED", len(purge.expected()))
    assert report["files_protected"] == len(purge.kept())
    assert before - left(s3) == purge.expected() & before
