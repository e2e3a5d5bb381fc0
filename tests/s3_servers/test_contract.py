"""The contract of ObjectStore and PlanStore, as it is for moto, against two S3 servers that nobody here wrote."""

import itertools

import pytest

from delegation.storage.s3 import S3ObjectStore
from delegation.storage.s3_plans import S3PlanStore
from delegation.testing.object_stores import UNUSUAL_KEYS, ObjectStoreContract, StoreUnderTest
from tests.contract import test_object_stores as contract
from tests.s3_servers.servers import RealServer

pytestmark = pytest.mark.long
_numbers = itertools.count()


READS = "test_existing_objects_are_read_and_absent_ones_reported"


@pytest.fixture
def opened(request: pytest.FixtureRequest, server: RealServer, monkeypatch: pytest.MonkeyPatch) -> StoreUnderTest:
    if request.function.__name__ == "test_unusual_keys_are_deleted_exactly":
        reason = "an object is a file, so some keys cannot be (docs/s3-servers.md); the test below has those that can"
        request.applymarker(pytest.mark.xfail(strict=True, reason=reason))
    if server.name == "rclone" and request.function.__name__ == READS:
        reason = "rclone reads a/ as the object a (docs/s3-servers.md)"
        request.applymarker(pytest.mark.xfail(strict=True, reason=reason))
    number = next(_numbers)
    client = server.client()
    lake, plans, versions = f"lake-{number}", f"plans-{number}", f"versions-{number}"
    for bucket in (lake, plans, versions):
        client.create_bucket(Bucket=bucket)
    if server.keeps_versions:
        client.put_bucket_versioning(Bucket=versions, VersioningConfiguration={"Status": "Enabled"})
    return StoreUnderTest(
        S3ObjectStore(settings=server.settings),
        S3PlanStore(client, plans, "some/prefix/"),
        lambda bucket, key, data: contract._put(client, bucket, key, data),
        lambda bucket: contract._keys(client, bucket),
        lake=lake,
        versions=versions if server.keeps_versions else None,
        suspend=lambda status: client.put_bucket_versioning(
            Bucket=versions, VersioningConfiguration={"Status": status}
        ),
        deny_versioning=lambda: contract.deny_versioning(monkeypatch),
    )


class TestServer(ObjectStoreContract):
    @pytest.fixture
    def tested(self, opened: StoreUnderTest) -> StoreUnderTest:
        return opened


def test_unusual_keys_that_a_file_can_have_are_deleted_exactly(opened: StoreUnderTest) -> None:
    keys = [key for key in UNUSUAL_KEYS if key not in contract.NO_FILES]
    decoys = {"a/b", "b", "trail", "new", "leading", "x" * 200, "a%252Fb"}
    opened.fill(*keys, *decoys)
    result = opened.delete(*keys)
    assert (set(result.deleted), result.failed) == (set(keys), ())
    assert opened.left() == decoys
