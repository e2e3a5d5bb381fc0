"""Issue 5, "Must show" 7 and 8, from outside the running system: what properties do, and a plan run by its id."""

import gzip
import json

import pytest

from tests.integration.acceptance.world import EXECUTE, SUBMIT

pytestmark = pytest.mark.stack


@pytest.mark.parametrize(
    ("properties", "status", "code"),
    [
        ({"skipTrash": "false"}, 400, "INVALID_REQUEST"),
        ({"outside": "somewhere"}, 400, "INVALID_REQUEST"),
        ({"outside": "delete"}, 403, "PROPERTY_NOT_ALLOWED"),
        ({"uncovered": "keep"}, 403, "PROPERTY_NOT_ALLOWED"),
    ],
)
def test_a_property_that_cannot_be_is_told_on_both_endpoints(world, properties, status, code):
    made = world.made(world.table().name)
    for path in (EXECUTE, SUBMIT):
        answer = world.post(path, world.request(made, properties=properties))
        assert (answer.status_code, answer.json()["error_code"]) == (status, code)
        assert next(iter(properties)) in answer.json()["message"]
    assert world.left(made) == made.objects


def test_a_dry_run_and_then_just_that_plan(world):
    made = world.table()
    planned = world.post(EXECUTE, world.request(made, properties={"dry-run": "true", "deleteMarkerFiles": "true"}))
    assert planned.status_code == 200, planned.text
    assert planned.json()["execution_result"] == {"files_deleted": 0, "bytes_deleted": 0}
    assert world.left(made) == made.objects
    dry = world.task(planned.json()["delegation_task_id"])
    assert (dry["task_type"], dry["status"], dry["files_planned"]) == ("TABLE_PURGE_PLAN", "SUCCESS", len(made.objects))
    estimate = json.loads(dry["result_extended"])
    assert sum(one["files"] for one in estimate["by_type"].values()) == len(made.objects)
    assert (estimate["currency"], estimate["prices_region"]) == ("USD", "us-east-1")

    (segment,) = dry["plan_segments"]
    properties = {"plan": segment["id"], "colour": "blue"}
    accepted = world.post(SUBMIT, world.request(made, properties=properties))
    assert accepted.status_code == 202, accepted.text
    task = world.outcome(accepted.json()["delegation_task_id"])
    assert (task["status"], task["plan_segments"]) == ("SUCCESS", [segment])
    assert world.left(made) == frozenset()

    s3, bucket = world.aws("s3"), world.variable("run_inline", "DELEGATION_PLAN_BUCKET")

    def stored(name):
        return s3.get_object(Bucket=bucket, Key=f"{segment['id']}/{name}")["Body"].read()

    receipt = json.loads(stored("receipt.json"))
    assert receipt["request"]["operation_parameters"]["properties"] == properties
    assert (receipt["files_deleted"], receipt["files_failed"]) == (len(made.objects), 0)
    lines = [line for one in receipt_chunks(stored) for line in gzip.decompress(stored(one)).splitlines()]
    assert {json.loads(line)["path"].partition("://")[2].partition("/")[2] for line in lines} == made.objects


def receipt_chunks(stored):
    return [chunk["name"] for chunk in json.loads(stored("index.json"))["chunks"]]
