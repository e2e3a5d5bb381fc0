"""Large results in the service's own bucket."""

import boto3
import pytest

from delegation.storage.base import ObjectNotFound
from delegation.tasks.work.reads import kept_result, read_result, result_fields
from delegation.wiring.tasks import record_bucket
from tests.aws import mock_aws
from tests.kit.tasks.builders import acquired, submitted


def test_a_large_result_is_kept_in_the_bucket_that_the_environment_names(monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("DELEGATION_PLAN_BUCKET", "records")
    with mock_aws():
        boto3.client("s3").create_bucket(Bucket="records")
        bucket = record_bucket()
        task = acquired(submitted())
        ended = task.evolve(**result_fields(kept_result(bucket, task, '"' + "é" * 50_000 + '"')))
        assert ended.result_location.startswith(f"results/{task.task_id}/1-")
        assert read_result(bucket, ended) == '"' + "é" * 50_000 + '"'
        with pytest.raises(ObjectNotFound):
            read_result(bucket, ended.evolve(result_location="results/none"))


def test_a_process_without_a_bucket_has_none(monkeypatch):
    monkeypatch.setenv("DELEGATION_PLAN_BUCKET", "")
    assert record_bucket() is None
