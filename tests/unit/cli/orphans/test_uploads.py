"""`delegation orphans abort-uploads`: against buckets of moto, with the operator's own credentials."""

import json
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from delegation.cli.connection import Connection
from delegation.storage.s3_plans import S3PlanStore
from delegation.worksets.index import store_index
from tests.aws import mock_aws
from tests.unit.client.service import TASK_ID
from tests.unit.operations.orphans.test_uploads import index_of

PLAN = f"{TASK_ID}/1/ab12"
KEYS = ("t/data/a.parquet", "t/data/b b.parquet")


class Bay:
    """A plan for a table, and unfinished uploads at its location and elsewhere; moto says that all began in 2010."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.denied: set[str] = set()
        for name in ("lake", "my-plans"):
            client.create_bucket(Bucket=name)
        self.plans = S3PlanStore(client, "my-plans")
        self.store()
        for key in (*KEYS, "other/a.parquet"):
            self.begin(key)

    def store(self, **changed: Any) -> None:
        store_index(self.plans, index_of(plan_id=PLAN, **changed))

    def begin(self, key: str) -> None:
        begun = self.client.create_multipart_upload(Bucket="lake", Key=key)["UploadId"]
        self.client.upload_part(Bucket="lake", Key=key, UploadId=begun, PartNumber=1, Body=b"x" * 512)

    def keys(self) -> list[str]:
        return sorted(one["Key"] for one in self.client.list_multipart_uploads(Bucket="lake").get("Uploads", ()))

    def __getattr__(self, name: str) -> Any:
        def call(**named: Any) -> Any:
            if name in self.denied and named.get("Bucket") == "lake":
                raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, name)
            return getattr(self.client, name)(**named)

        return getattr(self.client, name) if name == "get_paginator" else call


@pytest.fixture
def bay(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bay]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    with mock_aws():
        made = Bay(boto3.client("s3", region_name="us-east-1"))
        monkeypatch.setattr(Connection, "s3", lambda _self, _bucket, _endpoint=None: made)
        yield made


def test_it_aborts_the_uploads_at_the_location_of_the_plan(run, bay, stack):
    result = run("orphans", "abort-uploads", PLAN, "--yes", "--stack", str(stack))
    assert result.exit_code == 0, result.stderr
    assert bay.keys() == ["other/a.parquet"]
    assert "Aborted 2 unfinished uploads, 1.0 KiB, at s3://lake/t/" in result.stdout
    assert "s3://lake/t/data/b b.parquet" in result.stdout
    again = run("orphans", "abort-uploads", f"s3://my-plans/{PLAN}/receipt.json", "--stack", str(stack), "--json", "-y")
    assert again.exit_code == 0
    assert json.loads(again.stdout)["aborted"] == {"uploads": 0, "bytes": 0}


def test_a_dry_run_shows_what_would_be_aborted(run, bay, stack):
    result = run("orphans", "abort-uploads", PLAN, "--dry-run", "--json", "--stack", str(stack))
    document = json.loads(result.stdout)
    assert (result.exit_code, document["dry_run"]) == (0, True)
    assert document["aborted"] == {"uploads": 2, "bytes": 1024}
    assert document["began_before"] == "2027-01-12T08:00:00.000000Z"
    began = "2010-11-10T20:48:33.000000Z"
    assert document["sample"][0] == {"path": f"s3://lake/{KEYS[0]}", "began": began, "bytes": 512}
    assert len(bay.keys()) == 3
    shown = run("orphans", "abort-uploads", PLAN, "--dry-run", "--stack", str(stack)).stdout
    assert "Would abort 2 unfinished uploads" in shown


def test_younger_uploads_stay(run, bay, stack):
    bay.store(age=1_800_000_000 - 1_000_000_000)
    result = run("orphans", "abort-uploads", PLAN, "--yes", "--stack", str(stack))
    assert result.exit_code == 0, result.stderr
    assert len(bay.keys()) == 3
    assert "younger" in result.stdout


@pytest.mark.parametrize("right", ["list_multipart_uploads", "list_parts", "abort_multipart_upload"])
def test_credentials_that_lack_a_right_are_refused_with_the_reason(run, bay, stack, right):
    bay.denied.add(right)
    result = run("orphans", "abort-uploads", PLAN, "--yes", "--json", "--stack", str(stack))
    document = json.loads(result.stderr)
    assert (result.exit_code, document["error_code"]) == (1, "OPERATOR_ROLE_REQUIRED")
    assert "s3:AbortMultipartUpload" in document["message"]


def test_a_plan_that_is_gone_and_a_listing_permit_nothing(run, bay, stack):
    missing = run("orphans", "abort-uploads", f"{TASK_ID}/1/ff", "--yes", "--json", "--stack", str(stack))
    bay.store(stage="listed")
    listing = run("orphans", "abort-uploads", PLAN, "--yes", "--json", "--stack", str(stack))
    for result in (missing, listing):
        assert (result.exit_code, json.loads(result.stderr)["error_code"]) == (1, "PLAN_NOT_FOUND")
    assert len(bay.keys()) == 3


def test_what_is_no_plan_is_a_misuse(run, bay, stack):
    assert run("orphans", "abort-uploads", "lake.sales.orders", "--yes", "--stack", str(stack)).exit_code == 2
    assert len(bay.keys()) == 3
