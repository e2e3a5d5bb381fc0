"""Executors build their stores from the environment, never from values that the driver sends."""

import pickle
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest
from pydantic import ValidationError

from delegation.identifiers import TableIdentifier
from delegation.polaris.model import LoadedTable
from delegation.removal.purge.direct import DirectResources
from delegation.storage.credentials import S3Credential, S3Settings
from delegation.storage.locations import ObjectLocation
from delegation.tasks.errors import LeaseLost
from delegation.tasks.life.outcomes import AttemptError, ErrorClass
from delegation.tasks.life.policy import Lease, LeasePolicy
from delegation.tasks.stores.base import Create
from delegation.wiring import spark as spark_job
from delegation.wiring.spark import JobResources, job_resources
from delegation.wiring.table_access import vended_store
from delegation.wiring.tasks import task_service
from tests.aws import mock_aws
from tests.contract.task_tables import create_task_table
from tests.kit.tasks.builders import submitted

TABLE = TableIdentifier("cat", ("ns",), "t")
NOW = datetime(2026, 11, 21, tzinfo=UTC)


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name, value in {"ACCESS_KEY_ID": "test", "SECRET_ACCESS_KEY": "test", "DEFAULT_REGION": "us-east-1"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    spark_job.service_plans.cache_clear()
    spark_job.service_polaris.cache_clear()
    with mock_aws():
        client = boto3.client("s3")
        client.create_bucket(Bucket="lake")
        client.create_bucket(Bucket="plans")
        yield client
    spark_job.service_plans.cache_clear()
    spark_job.service_polaris.cache_clear()


class Catalog:
    """Vends another key at every load, which expires after ten minutes."""

    def __init__(self) -> None:
        self.loads: list[TableIdentifier] = []

    def load_table(self, identifier: TableIdentifier, *, vend: bool = True, snapshots: str = "all") -> LoadedTable:
        assert vend
        assert snapshots == "all"
        self.loads.append(identifier)
        number = len(self.loads)
        credential = S3Credential(
            "s3://lake/t", f"id-{number}", "secret", "token", NOW + timedelta(minutes=10 * number)
        )
        config = {"client.region": "eu-central-1", "s3.path-style-access": "true"}
        return LoadedTable(
            identifier, "s3://lake/t/m", {"location": "s3://lake/t", "table-uuid": "u"}, config, (credential,)
        )


def test_a_tables_files_are_reached_with_vended_credentials_that_are_renewed(aws: Any) -> None:
    aws.put_object(Bucket="lake", Key="t/a", Body=b"x")
    catalog, now = Catalog(), [NOW]
    store = vended_store(catalog, TABLE, clock=lambda: now[0])
    assert catalog.loads == []
    assert store.read(ObjectLocation("lake", "t/a"), limit=1) == b"x"
    assert store.delete("lake", ["t/b"]).deleted == ("t/b",)
    assert catalog.loads == [TABLE]
    now[0] = NOW + timedelta(minutes=9)
    assert store.delete("lake", ["t/a"]).deleted == ("t/a",)
    assert catalog.loads == [TABLE, TABLE]
    assert {name[0] for name in store._clients} == {"id-1", "id-2"}
    assert {client.meta.region_name for client in store._clients.values()} == {"eu-central-1"}


def test_plans_are_stored_in_the_bucket_that_the_environment_names(aws: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELEGATION_PLAN_BUCKET", "plans")
    resources = JobResources("tasks", LeasePolicy())
    resources.plans().put("a/b", b"x")
    assert aws.get_object(Bucket="plans", Key="a/b")["Body"].read() == b"x"
    assert resources.plans() is JobResources("tasks", LeasePolicy()).plans()


def test_a_missing_setting_is_named(aws: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DELEGATION_PLAN_BUCKET", "DELEGATION_POLARIS_URL", "DELEGATION_POLARIS_SECRET_ARN"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValidationError, match="DELEGATION_PLAN_BUCKET"):
        JobResources("tasks", LeasePolicy()).plans()
    with pytest.raises(ValidationError, match="DELEGATION_POLARIS_URL"):
        JobResources("tasks", LeasePolicy()).store(TABLE)


def test_executors_read_the_task_from_the_table_that_the_driver_names(aws, monkeypatch):
    dynamodb = boto3.client("dynamodb")
    table = create_task_table(dynamodb)
    with monkeypatch.context() as driver:
        driver.setenv("DELEGATION_TASKS_TABLE", table)
        driver.setenv("DELEGATION_PROPERTIES", '{"delegation.task.lease.clock-drift-duration": "2s"}')
        tasks = task_service()
        sent = pickle.dumps(job_resources())
    long_ago = datetime(2020, 1, 1, tzinfo=UTC)
    task_id = tasks.reads.store.apply(Create(submitted(next_scheduled_run_ts=long_ago))).task_id
    attempt = tasks.leases.acquire(
        task_id, "execution", lambda now: Lease.lasting(timedelta(hours=1), now)
    ).attempt_count
    resources = pickle.loads(sent)
    assert resources.lease.clock_drift == timedelta(seconds=2)
    resources.checkpoint(task_id, attempt)()
    tasks.leases.end_attempt(task_id, attempt, AttemptError("JOB_FAILED", "killed", ErrorClass.TRANSIENT))
    with pytest.raises(LeaseLost):
        resources.checkpoint(task_id, attempt)()


def test_a_direct_purge_uses_the_credentials_of_the_environment(aws: Any) -> None:
    aws.put_object(Bucket="lake", Key="t/a", Body=b"x")
    resources = DirectResources("s3://plans/here", S3Settings(region="us-east-1"))
    assert resources.store(TABLE).delete("lake", ["t/a"]).deleted == ("t/a",)
    resources.plans().put("x", b"1")
    assert [one["Key"] for one in aws.list_objects_v2(Bucket="plans")["Contents"]] == ["here/x"]
    resources.checkpoint("task", 1)()


def test_resources_sent_to_executors_contain_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "very-secret")
    for resources in (JobResources("tasks", LeasePolicy()), DirectResources("s3://plans")):
        sent = pickle.dumps(resources)
        assert b"very-secret" not in sent
        assert pickle.loads(sent) == resources
        assert hash(pickle.loads(sent)) == hash(resources)
