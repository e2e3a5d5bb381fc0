"""`delegation orphans restore`: against versioned buckets of moto, with the operator's own credentials."""

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from delegation.cli.connection import Connection
from delegation.removal.index import store_index
from delegation.removal.orphans.index import Candidate, CandidateWriter, record_markers
from delegation.removal.orphans.released import remember_tagged
from delegation.storage.credentials import S3Settings
from delegation.storage.listing.tags_s3 import S3Tags
from delegation.storage.s3 import S3ObjectStore
from delegation.storage.s3_plans import S3PlanStore
from tests.unit.cli.orphans.plans import orphan_index
from tests.unit.client.service import TASK_ID, TASKS, json_answer

PLAN = f"{TASK_ID}/1/ab12"
HERE = "s3://lake/orders/"
NAMES = ("orders/data/a.parquet", "orders/data/b b.parquet", "orders/data/c.parquet")


class Bay:
    """A removal of three files from a bucket with versions, its receipt and its records."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.denied: set[str] = set()
        self.buckets: list[str | None] = []
        client.create_bucket(Bucket="lake")
        client.create_bucket(Bucket="my-plans")
        client.put_bucket_versioning(Bucket="lake", VersioningConfiguration={"Status": "Enabled"})
        self.plans = S3PlanStore(client, "my-plans")
        for name in NAMES:
            client.put_object(Bucket="lake", Key=name, Body=name.encode())
        store = S3ObjectStore(settings=S3Settings(region="us-east-1"))
        listed = store.page("lake", "orders/").objects
        done = store.delete_unchanged("lake", listed)
        record_markers(self.plans, PLAN, "n", [(f"s3://lake/{one.key}", one) for one in listed], done.markers)
        self.receipt()

    def receipt(self, **changed: Any) -> dict[str, Any]:
        document = {
            "format": 1,
            "task_id": TASK_ID,
            "status": "SWEPT",
            "plan": [PLAN],
            "location": HERE,
            "files_listed": 9,
            "files_deleted": 3,
            "files_absent": 0,
            "bytes_freed": None,
            **changed,
        }
        self.plans.put(f"{PLAN}/receipt.json", json.dumps(document).encode())
        return document

    def keys(self) -> list[str]:
        return [one["Key"] for one in self.client.list_objects_v2(Bucket="lake").get("Contents", ())]

    def s3(self, bucket: str | None, endpoint: str | None = None) -> Any:
        self.buckets.append(bucket)
        assert endpoint is None
        return _Limited(self)


class _Limited:
    """A client that refuses some calls."""

    def __init__(self, bay: Bay) -> None:
        self._bay = bay

    def __getattr__(self, name: str) -> Any:
        def call(**named: Any) -> Any:
            if name in self._bay.denied and named.get("Bucket") == "lake":
                raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, name)
            return getattr(self._bay.client, name)(**named)

        return getattr(self._bay.client, name) if name == "get_paginator" else call


@pytest.fixture
def bay(s3: Any, monkeypatch: pytest.MonkeyPatch) -> Bay:
    made = Bay(s3)
    monkeypatch.setattr(Connection, "s3", lambda _self, bucket, endpoint=None: made.s3(bucket, endpoint))
    return made


def test_it_brings_back_what_the_removal_deleted(run, bay, stack):
    result = run("orphans", "restore", PLAN, "--stack", str(stack))
    assert result.exit_code == 0, result.stderr
    assert bay.keys() == list(NAMES)
    assert "Restored 3 files" in result.stdout
    assert "delegation.protected" in result.stdout
    again = run("orphans", "restore", f"s3://my-plans/{PLAN}/receipt.json", "--stack", str(stack), "--json")
    assert again.exit_code == 0
    assert json.loads(again.stdout)["present"]["files"] == 3
    assert bay.buckets == [None, None, "my-plans", "my-plans"]


def test_a_dry_run_shows_what_would_come_back(run, bay, stack):
    result = run("orphans", "restore", PLAN, "--dry-run", "--json", "--stack", str(stack))
    document = json.loads(result.stdout)
    assert (result.exit_code, document["dry_run"], document["restored"]["files"]) == (0, True, 3)
    assert bay.keys() == []


def test_a_task_is_named_by_its_id(run, bay, stack, service):
    service.answer("GET", f"{TASKS}/{TASK_ID}/receipt", json_answer(200, bay.receipt()))
    assert run("orphans", "restore", TASK_ID, "--stack", str(stack)).exit_code == 0
    assert bay.keys() == list(NAMES)


def test_what_is_not_back_is_named_and_the_exit_status_says_so(run, bay, stack):
    bay.client.put_object(Bucket="lake", Key=NAMES[0], Body=b"new")
    bay.receipt(files_deleted=5, files_absent=2)
    result = run("orphans", "restore", PLAN, "--stack", str(stack))
    assert result.exit_code == 4
    assert "Restored 2 files" in result.stdout
    assert "newer object" in result.stdout
    assert "s3://lake/orders/data/a.parquet" in result.stdout
    assert "not recorded" in result.stdout
    assert bay.client.get_object(Bucket="lake", Key=NAMES[0])["Body"].read() == b"new"


@pytest.mark.parametrize("right", ["list_object_versions", "delete_object"])
def test_credentials_that_lack_a_right_are_refused_with_the_reason(run, bay, stack, right):
    bay.denied.add(right)
    result = run("orphans", "restore", PLAN, "--json", "--stack", str(stack))
    document = json.loads(result.stderr)
    assert (result.exit_code, document["error_code"]) == (1, "OPERATOR_ROLE_REQUIRED")
    assert "s3:DeleteObjectVersion" in document["message"]
    bay.denied.clear()
    assert run("orphans", "restore", PLAN, "--stack", str(stack)).exit_code == 0


def test_files_of_a_bucket_without_versions_or_without_records_are_gone(run, bay, stack):
    bay.receipt(bytes_freed=12)
    result = run("orphans", "restore", PLAN, "--json", "--stack", str(stack))
    assert (result.exit_code, json.loads(result.stderr)["error_code"]) == (1, "NOT_RESTORABLE")
    bay.receipt()
    bay.client.delete_object(Bucket="my-plans", Key=f"{PLAN}/markers/n.jsonl.gz")
    result = run("orphans", "restore", PLAN, "--json", "--stack", str(stack))
    assert (result.exit_code, json.loads(result.stderr)["error_code"]) == (1, "NOT_RESTORABLE")


@pytest.mark.parametrize(
    ("words", "status", "code"),
    [
        (("nothing",), 2, None),
        ((f"{TASK_ID}/2/ab",), 1, "RECEIPT_NOT_FOUND"),
        ((f"{TASK_ID}/3/ab",), 1, "RECEIPT_NOT_FOUND"),
    ],
)
def test_what_is_no_receipt_of_a_removal_is_refused(run, bay, stack, words, status, code):
    bay.plans.put(f"{TASK_ID}/3/ab/receipt.json", b'{"format": 1, "plan": [], "files_deleted": 1}')
    result = run("orphans", "restore", *words, "--stack", str(stack), "--json")
    assert result.exit_code == status
    assert code is None or json.loads(result.stderr)["error_code"] == code


def test_it_asks_first_at_a_terminal(run, bay, stack, monkeypatch):
    monkeypatch.setattr("delegation.cli.calls.at_a_terminal", lambda: True)
    assert run("orphans", "restore", PLAN, "--stack", str(stack), given="n\n").exit_code == 1
    assert bay.keys() == []
    assert run("orphans", "restore", PLAN, "--stack", str(stack), "--yes").exit_code == 0


def test_a_stack_with_no_bucket_for_plans_needs_its_name(run, bay, stack):
    bay.client.create_bucket(Bucket="other-plans")
    result = run("orphans", "restore", PLAN, "--json", "--stack", str(stack))
    assert json.loads(result.stderr)["error_code"] == "PLAN_BUCKET_UNKNOWN"
    named = ("--plan-bucket", "my-plans")
    assert run("orphans", "restore", PLAN, *named, "--stack", str(stack)).exit_code == 0


def quarantined(bay: Bay) -> None:
    """Let the removal have tagged its files instead, in a bucket without versions."""
    bay.client.create_bucket(Bucket="plain")
    for name in NAMES:
        bay.client.put_object(Bucket="plain", Key=name, Body=name.encode())
    listed = S3ObjectStore(settings=S3Settings(region="us-east-1")).page("plain", "orders/").objects
    tags = S3Tags(lambda: bay.client)
    assert [tags.tag("plain", one) for one in listed] == [None] * 3
    writer = CandidateWriter(bay.plans, PLAN, "", chunk_paths=2)
    writer.extend([Candidate(f"s3://plain/{one.key}", one.size, one.etag, one.modified) for one in listed])
    writer.flush()
    about = {"roots": ("s3://plain/orders/",), "chunks": tuple(writer.chunks), "stage": "tagging"}
    index = orphan_index(plan_id=PLAN, task_id=TASK_ID, **about)
    remember_tagged(bay.plans, index, store_index(bay.plans, index))
    bay.receipt(
        location="s3://plain/orders/", files_deleted=0, bytes_freed=0, quarantine="delegation-quarantine=orphan"
    )


def tagged_keys(bay: Bay) -> list[str]:
    return [name for name in NAMES if bay.client.get_object_tagging(Bucket="plain", Key=name)["TagSet"]]


def test_of_a_quarantine_it_takes_the_tags_away_and_says_so(run, bay, stack):
    quarantined(bay)
    assert tagged_keys(bay) == list(NAMES)
    looked = run("orphans", "restore", PLAN, "--dry-run", "--stack", str(stack))
    assert (looked.exit_code, tagged_keys(bay)) == (0, list(NAMES)), looked.stderr
    assert "Would remove the tag from 3 files" in looked.stdout
    result = run("orphans", "restore", PLAN, "--stack", str(stack))
    assert (result.exit_code, tagged_keys(bay)) == (0, []), result.stderr
    assert "Removed the tag from 3 files" in result.stdout
    again = json.loads(run("orphans", "restore", PLAN, "--json", "--stack", str(stack)).stdout)
    assert (again["quarantine"], again["present"]["files"], again["files_without_record"]) == (True, 3, 0)


def test_by_location_it_takes_the_tags_of_all_quarantines_away_without_a_receipt(run, bay, stack):
    quarantined(bay)
    for place in ("s3://plain/orders/data", "s3://plain/"):
        looked = run("orphans", "restore", place, "--dry-run", "--json", "--stack", str(stack))
        assert (looked.exit_code, json.loads(looked.stdout)["restored"]["files"]) == (0, 3), looked.stderr
    result = run("orphans", "restore", "s3a://plain/orders/data/a.parquet", "--yes", "--stack", str(stack))
    assert result.exit_code == 0, result.stderr
    result = run("orphans", "restore", "s3a://plain/orders", "--yes", "--stack", str(stack))
    assert (result.exit_code, tagged_keys(bay)) == (0, []), result.stderr
    assert "Removed the tag from 3 files" in result.stdout


@pytest.mark.parametrize(
    ("place", "code", "status"),
    [("s3://plain/others", "NOT_RESTORABLE", 1), ("s3://plain/a/../b", "MISUSE", 2), ("ftp://x/y", "MISUSE", 2)],
)
def test_a_location_without_a_quarantine_or_that_is_none_is_refused(run, bay, stack, place, code, status):
    quarantined(bay)
    result = run("orphans", "restore", place, "--yes", "--json", "--stack", str(stack))
    error = json.loads(result.stderr)
    assert (result.exit_code, error["error_code"]) == (status, code)
    assert code == "MISUSE" or "receipt" in error["next_step"]
    assert tagged_keys(bay) == list(NAMES)


def test_of_a_quarantine_what_the_rule_deleted_meanwhile_is_named(run, bay, stack):
    quarantined(bay)
    bay.client.delete_object(Bucket="plain", Key=NAMES[0])
    result = run("orphans", "restore", PLAN, "--stack", str(stack))
    assert result.exit_code == 4
    assert "gone: " in result.stdout
    assert NAMES[0] in result.stdout


def test_credentials_that_may_not_tag_are_refused_with_the_rights_that_they_lack(run, bay, stack):
    quarantined(bay)
    client = bay.client

    def denied(**_named: Any) -> Any:
        raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "GetObjectTagging")

    client.get_object_tagging = denied
    result = run("orphans", "restore", PLAN, "--json", "--stack", str(stack))
    document = json.loads(result.stderr)
    assert (result.exit_code, document["error_code"]) == (1, "OPERATOR_ROLE_REQUIRED")
    assert "s3:PutObjectTagging" in document["message"]
