"""An executor's function called without Spark, with vended credentials that expire."""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import botocore.client
import pytest
from botocore.exceptions import ClientError

from delegation.iceberg.paths import FIRST_DATA
from delegation.identifiers import TableIdentifier
from delegation.polaris.model import LoadedTable
from delegation.removal.index import PlanWriter
from delegation.removal.marks import Marks
from delegation.removal.spark_executors import DeleteChunks, no_checkpoint, pack
from delegation.storage.base import ObjectStore, PlanStore
from delegation.storage.credentials import S3Credential
from delegation.storage.deleter import DeletePolicy
from delegation.storage.memory import MemoryPlanStore
from delegation.wiring.table_access import vended_store
from tests.aws import mock_aws
from tests.faults.hostile.runs import AWS
from tests.kit.plans import plan_index

TABLE = TableIdentifier("cat", ("ns",), "t")
NOW = datetime(2026, 11, 21, tzinfo=UTC)
LIFE, CALL = timedelta(seconds=60), timedelta(seconds=7)
FILES, BATCH = 120, 4


@dataclass
class Storage:
    """Tokens that last a minute, and a store whose calls take seven seconds and refuse expired tokens."""

    now: datetime = NOW
    expiries: list[datetime] = field(default_factory=list)
    revoked: set[str] = field(default_factory=set)
    refused: int = 0

    def load_table(self, identifier: TableIdentifier, *, vend: bool = True, snapshots: str = "all") -> LoadedTable:
        number = len(self.expiries)
        self.expiries.append(self.now + LIFE)
        credential = S3Credential("s3://lake/t", f"id-{number}", "secret", str(number), self.expiries[-1])
        config = {"client.region": "us-east-1"}
        return LoadedTable(identifier, "s3://lake/t/m", {"location": "s3://lake/t"}, config, (credential,))

    def check(self, token: str, code: str) -> None:
        self.now += CALL
        if self.now >= self.expiries[int(token)] + CALL or token in self.revoked:
            self.refused += 1
            raise ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": 400}}, "DeleteObjects")


@dataclass(eq=False)
class Resources:
    storage: Storage
    own_plans: MemoryPlanStore

    def store(self, identifier: TableIdentifier) -> ObjectStore:
        return vended_store(self.storage, identifier, clock=lambda: self.storage.now)

    def plans(self) -> PlanStore:
        return self.own_plans

    def checkpoint(self, task_id: str, attempt: int) -> Callable[[], None]:
        return no_checkpoint


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name, value in AWS.items():
        monkeypatch.setenv(name, value)
    with mock_aws():
        client = boto3.client("s3")
        client.create_bucket(Bucket="lake")
        for number in range(FILES):
            client.put_object(Bucket="lake", Key=f"t/data/{number:04d}", Body=b"x")
        yield client


def refuse_expired_tokens(monkeypatch: pytest.MonkeyPatch, storage: Storage, code: str = "ExpiredToken") -> None:
    """Have the store check the token of each DeleteObjects call."""
    call = botocore.client.BaseClient._make_api_call

    @functools.wraps(call)
    def checked(self: Any, operation: str, arguments: Any) -> Any:
        if operation == "DeleteObjects":
            storage.check(self._request_signer._credentials.token, code)
        return call(self, operation, arguments)

    monkeypatch.setattr(botocore.client.BaseClient, "_make_api_call", checked)


def delete_all(storage: Storage) -> dict[str, Any]:
    """Delete one chunk of all files as an executor does; return its result for the driver."""
    resources = Resources(storage, MemoryPlanStore())
    writer = PlanWriter(resources.plans(), "task/1/a", chunk_paths=FILES)
    writer.write([(f"s3://lake/t/data/{number:04d}", FIRST_DATA, 1) for number in range(FILES)], "")
    (chunk,), _totals = writer.close()
    index = plan_index(roots=("s3://lake/t",), covered=("s3://lake/t",), chunks=(chunk,))
    policy = DeletePolicy(batch=BATCH, threads=1, pause=0.0, longest_pause=0.0)
    plans = {"task/1/a": index.model_dump_json()}
    chunks = (pack([("task/1/a", chunk.model_dump_json())]),)
    (summary,) = DeleteChunks(resources, TABLE, policy, plans, chunks, task_id="task", attempt=1)([0])
    assert chunk.name in Marks(resources.plans(), "task/1/a").done()
    return summary


def check_all_deleted(summary: dict[str, Any], s3: Any) -> None:
    left = s3.list_objects_v2(Bucket="lake")["KeyCount"]
    assert (summary["tally"]["files"], summary["tally"]["failed"], left) == (FILES, 0, 0)


def test_an_executor_refreshes_its_credentials_before_they_expire(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = Storage()
    refuse_expired_tokens(monkeypatch, storage)
    check_all_deleted(delete_all(storage), s3)
    assert storage.now - NOW >= 3 * LIFE
    assert len(storage.expiries) > 3
    assert storage.refused == 0


@pytest.mark.parametrize("code", ["ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired"])
def test_a_batch_with_an_expired_token_is_repeated_with_a_new_one(
    s3: Any, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    storage = Storage(revoked={"0"})
    refuse_expired_tokens(monkeypatch, storage, code)
    check_all_deleted(delete_all(storage), s3)
    assert storage.refused == 1
