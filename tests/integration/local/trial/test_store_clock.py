"""The clock of the stack's S3, which a person moves ahead to see files that are days old, and the files themselves."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import httpx
import pytest
from moto.s3 import models

from delegation.storage.listing.pages import page
from infra.local.aws.server import MotoAws
from infra.local.aws.store_clock import PATH, StoreClock
from infra.local.demo.orphans import DATA_FILES, RemoteClock, StoreClockFixed, plant
from infra.local.lambdas.functions import LambdaPool
from tests.integration.local import catalog_world
from tests.integration.local.catalog_world import BUCKET, ORDERS

DAY = 86_400
MACHINE = datetime(2026, 11, 28, 12, tzinfo=UTC)

stack = pytest.fixture(scope="module")(catalog_world.running)
empty = pytest.fixture(catalog_world.emptied)


@pytest.fixture
def aws(tmp_path):
    # No function is called.
    server = MotoAws(LambdaPool(log_folder=tmp_path), store_clock=StoreClock(MACHINE.timestamp)).start()
    yield server
    server.stop()


@pytest.fixture
def s3(aws):
    client = aws.client("s3")
    client.create_bucket(Bucket="clock")
    yield client
    client.delete_objects(Bucket="clock", Delete={"Objects": [{"Key": "old"}, {"Key": "new"}]})
    client.delete_bucket(Bucket="clock")
    client.close()


def ages(s3):
    """Return the seconds since each object was written, as a removal of orphan files counts them."""
    listed = page(s3, "clock", "", "")
    return {one.key: listed.at - one.modified for one in listed.objects}


def test_what_was_written_before_the_clock_moved_is_older_by_as_much(aws, s3):
    s3.put_object(Bucket="clock", Key="old", Body=b"1")
    assert ages(s3) == {"old": 0}
    remote = RemoteClock(SimpleNamespace(aws_endpoint=aws.url))
    assert remote.ahead() == timedelta(0)
    assert remote.advance(timedelta(days=3)) == timedelta(days=3)
    assert remote.advance(timedelta(days=1)) == remote.ahead() == timedelta(days=4)
    s3.put_object(Bucket="clock", Key="new", Body=b"2")
    assert ages(s3) == {"old": 4 * DAY, "new": 0}
    assert s3.head_object(Bucket="clock", Key="new")["LastModified"] == MACHINE + timedelta(days=4)


@pytest.mark.parametrize(
    "body", [b'{"seconds": 0}', b'{"seconds": -1}', b"{}", b"[]", b"no JSON", b'{"seconds": 1e300}']
)
def test_the_clock_never_moves_back(aws, body):
    answer = httpx.post(f"{aws.url}{PATH}", content=body, trust_env=False)
    assert (answer.status_code, answer.json()) == (400, {"ahead_seconds": 0.0})


def test_a_server_that_stops_leaves_moto_its_own_clock(tmp_path):
    before = models.utcnow
    server = MotoAws(LambdaPool(log_folder=tmp_path), store_clock=StoreClock()).start()
    assert models.utcnow is not before
    server.stop()
    assert models.utcnow is before


def test_the_clock_of_another_store_is_not_moved(stack, empty):
    """The stand-in of the tests has no such clock, as a stack whose files are in a store of their own."""
    remote = RemoteClock(SimpleNamespace(aws_endpoint=stack.moto.url))
    with pytest.raises(StoreClockFixed, match="store of its own"):
        remote.ahead()
    gone = RemoteClock(SimpleNamespace(aws_endpoint="http://127.0.0.1:1"))
    with pytest.raises(StoreClockFixed, match="cannot be reached: ConnectError"):
        gone.advance(timedelta(days=1))


def test_planted_files_are_copies_of_live_ones_that_no_metadata_names(stack, empty):
    owner = catalog_world.connect(stack, "owner")
    table = catalog_world.orders(stack)
    assert plant(owner, ORDERS) == []
    table.append(catalog_world.rows((1, "eu"), (2, "us"), (3, "ap"), (4, "af")))
    before = contents(stack)
    planted = {one.uri: one.size for one in plant(owner, ORDERS)}
    added = {key: body for key, body in contents(stack).items() if key not in before}
    assert planted == {f"s3://{BUCKET}/{key}": len(body) for key, body in added.items()}
    assert set(added.values()) <= set(before.values())
    assert sorted(uri.rpartition(".")[2] for uri in planted) == ["avro", "avro", *["parquet"] * DATA_FILES]
    assert table.refresh().scan().count() == 4


def contents(stack):
    return {key: stack.admin.get_object(Bucket=BUCKET, Key=key)["Body"].read() for key in catalog_world.objects(stack)}
