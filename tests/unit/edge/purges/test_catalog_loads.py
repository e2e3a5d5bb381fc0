"""How often a small purge loads its table from the catalog, with credentials vended as in a deployment."""

from typing import Any

import boto3
import pytest

from delegation.identifiers import TableIdentifier
from delegation.polaris.model import LoadedTable
from delegation.storage.credentials import S3Credential
from delegation.wiring.operations import purge_behavior
from tests.aws import mock_aws
from tests.kit.lakes.lake import busy_table
from tests.kit.worlds.service import TablesOfLake, World


class Vending(TablesOfLake):
    """A catalog that vends credentials which moto accepts."""

    def load_table(self, identifier: TableIdentifier, *, vend: bool = True, snapshots: str = "all") -> LoadedTable:
        table = super().load_table(identifier, vend=vend, snapshots=snapshots)
        credentials = (S3Credential("s3://lake/wh/orders", "key", "secret", "token", None),)
        return LoadedTable(identifier, table.metadata_location, table.metadata, {}, credentials if vend else ())


class Kept(dict[tuple[str, str], bytes]):
    """The lake's objects, kept in a bucket of moto."""

    def __init__(self, s3: Any) -> None:
        super().__init__()
        self._s3 = s3

    def __setitem__(self, where: tuple[str, str], data: bytes) -> None:
        super().__setitem__(where, data)
        self._s3.put_object(Bucket=where[0], Key=where[1], Body=data)

    def __contains__(self, where: object) -> bool:
        return isinstance(where, tuple) and where[1] in self.keys_left()

    def keys_left(self) -> set[str]:
        found = self._s3.list_objects_v2(Bucket="lake").get("Contents", [])
        return {one["Key"] for one in found}


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("DELEGATION_PLAN_BUCKET", "plans")
    monkeypatch.setenv("DELEGATION_PROPERTIES", '{"delegation.purge.references": "namespace"}')
    with mock_aws():
        s3 = boto3.client("s3")
        for bucket in ("lake", "plans"):
            s3.create_bucket(Bucket=bucket)
        world = World()
        world.tables = Vending(world.lake)
        world.lake.objects = world.lake.io.objects = Kept(s3)
        busy_table(world.lake, "orders")
        world.become(purge_behavior(world.tasks, world.tables))
        yield world


def left(world: World) -> set[str]:
    kept = world.lake.objects
    assert isinstance(kept, Kept)
    return kept.keys_left()


@pytest.mark.parametrize("background", [False, True])
def test_a_small_purge_loads_its_table_at_most_five_times(world: World, background: bool) -> None:
    body = world.body("orders")
    if background:
        world.submit(body)
        world.drive()
    else:
        assert world.execute(body).status == 200
    assert left(world) == set()
    assert world.tables.loads <= 5
