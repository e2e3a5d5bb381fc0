"""A purge by the id of a dry run's plan, with properties in its requests."""

import gzip
import json

import pytest

from tests.integration.acceptance.world import EXECUTE, SUBMIT

pytestmark = pytest.mark.stack


def test_a_purge_runs_exactly_the_plan_of_a_dry_run(world):
    table = world.table()
    request = world.request(table, properties={"dry-run": "true", "deleteMarkerFiles": "true"})
    refused = world.post(EXECUTE, request)
    assert (refused.status_code, refused.json()["error_code"]) == (400, "INVALID_REQUEST")
    planned = world.post(SUBMIT, request)
    assert planned.status_code == 202, planned.text
    dry = world.outcome(planned.json()["delegation_task_id"])
    assert world.left(table) == table.objects
    assert (dry["task_type"], dry["status"], dry["files_planned"]) == (
        "TABLE_PURGE_PLAN",
        "SUCCESS",
        len(table.objects),
    )
    estimate = json.loads(dry["result_extended"])
    assert sum(one["files"] for one in estimate["by_type"].values()) == len(table.objects)
    assert (estimate["currency"], estimate["prices_region"]) == ("USD", "us-east-1")

    (segment,) = dry["plan_segments"]
    properties = {"plan": segment["id"], "deleteMarkerFiles": "true"}
    accepted = world.post(SUBMIT, world.request(table, properties=properties))
    assert accepted.status_code == 202, accepted.text
    task = world.outcome(accepted.json()["delegation_task_id"])
    assert (task["status"], task["plan_segments"]) == ("SUCCESS", [segment])
    assert world.left(table) == frozenset()

    s3, bucket = world.aws("s3"), world.variable("run_inline", "DELEGATION_PLAN_BUCKET")

    def stored(name):
        return s3.get_object(Bucket=bucket, Key=f"{segment['id']}/{name}")["Body"].read()

    receipt = json.loads(stored("receipt.json"))
    assert receipt["request"]["operation_parameters"]["properties"] == properties
    assert (receipt["files_deleted"], receipt["files_failed"]) == (len(table.objects), 0)
    lines = [line for one in receipt_chunks(stored) for line in gzip.decompress(stored(one)).splitlines()]
    assert {json.loads(line)["path"].partition("://")[2].partition("/")[2] for line in lines} == table.objects


def receipt_chunks(stored):
    return [chunk["name"] for chunk in json.loads(stored("index.json"))["chunks"]]
