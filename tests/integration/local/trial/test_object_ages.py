"""Objects of the stack's S3, which a person makes older to see files that are days old, and the files themselves."""

from datetime import timedelta
from types import SimpleNamespace

import httpx
import pytest

from delegation.storage.listing.pages import page
from infra.local.aws.server import PATH, MotoAws, ObjectAges
from infra.local.demo.tables import DATA_FILES, AgesFixed, RemoteAges, plant
from infra.local.lambdas.functions import LambdaPool
from tests.integration.local import catalog_world
from tests.integration.local.catalog_world import BUCKET, ORDERS

DAY = 86_400

stack = pytest.fixture(scope="module")(catalog_world.running)
empty = pytest.fixture(catalog_world.emptied)


@pytest.fixture
def aws(tmp_path):
    # No function is called.
    server = MotoAws(LambdaPool(log_folder=tmp_path), ages=ObjectAges()).start()
    yield server
    server.stop()


@pytest.fixture
def s3(aws):
    client = aws.client("s3")
    client.create_bucket(Bucket="ages")
    yield client
    client.delete_objects(Bucket="ages", Delete={"Objects": [{"Key": "old"}, {"Key": "new"}]})
    client.delete_bucket(Bucket="ages")
    client.close()


def ages(s3):
    """Return the seconds since each object was written, as a removal of orphan files counts them."""
    listed = page(s3, "ages", "", "")
    return {one.key: listed.at - one.modified for one in listed.objects}


def test_what_is_there_gets_older_and_what_is_written_later_does_not(aws, s3):
    s3.put_object(Bucket="ages", Key="old", Body=b"1")
    remote = RemoteAges(SimpleNamespace(aws_endpoint=aws.url))
    remote.check()
    assert ages(s3)["old"] < DAY
    assert remote.add(timedelta(days=3)) == timedelta(days=3)
    assert remote.add(timedelta(days=1)) == timedelta(days=4)
    s3.put_object(Bucket="ages", Key="new", Body=b"2")
    assert {key: age // DAY for key, age in ages(s3).items()} == {"old": 4, "new": 0}


@pytest.mark.parametrize(
    "body",
    [b'{"seconds": 0}', b'{"seconds": -1}', b"{}", b"[]", b"no JSON", b'{"seconds": 1e300}', b'{"seconds": 1e9}'],
)
def test_objects_never_get_younger_or_older_by_decades(aws, body):
    answer = httpx.post(f"{aws.url}{PATH}", content=body, trust_env=False)
    assert (answer.status_code, answer.json()) == (400, {"older_seconds": 0.0})


def test_the_objects_of_another_store_are_left_alone(stack, empty):
    """The stand-in of the tests changes no ages, as a stack whose files are in a store of their own."""
    remote = RemoteAges(SimpleNamespace(aws_endpoint=stack.moto.url))
    with pytest.raises(AgesFixed, match="does not run this store"):
        remote.check()
    gone = RemoteAges(SimpleNamespace(aws_endpoint="http://127.0.0.1:1"))
    with pytest.raises(AgesFixed, match="cannot be reached: ConnectError"):
        gone.add(timedelta(days=1))


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
