"""Answers that differ between Polaris 1.7 and its successor, or that one of them gives by mistake."""

from typing import Any

import boto3
import pytest

from delegation.identifiers import TableIdentifier
from delegation.polaris import answers
from delegation.polaris.client import PolarisClient
from infra.local.catalog.server import LocalCatalog
from tests.contract.polaris.test_policies import DISABLED, ENABLED, EXPIRY, administrator, applied, made, place
from tests.contract.polaris.test_upkeep import client_of
from tests.contract.polaris.world import PolarisView
from tests.kit.errors import coded


@pytest.fixture
def local(world: PolarisView) -> LocalCatalog:
    if world.polaris.local is None:
        pytest.skip("a real Polaris gives these answers when it likes")
    return world.polaris.local


@pytest.fixture
def client(world: PolarisView) -> PolarisClient:
    world.namespace()
    world.create("t")
    return client_of(world)


def table_of(world: PolarisView) -> TableIdentifier:
    return TableIdentifier(world.polaris.warehouse, (world.name,), "t")


def snapshot(location: str, number: int, parent: int | None = None) -> dict[str, Any]:
    more = {} if parent is None else {"parent-snapshot-id": parent}
    summary = {"operation": "append"}
    found = {"snapshot-id": number, "sequence-number": 1, "timestamp-ms": 4_102_444_800_000, "summary": summary, **more}
    return {
        "action": "add-snapshot",
        "snapshot": {**found, "manifest-list": f"{location}/metadata/{number}.avro", "schema-id": 0},
    }


def test_a_commit_with_a_stale_sequence_number_is_refused_and_nothing_changed(
    world: PolarisView, client: PolarisClient
) -> None:
    """409 since 1.7, 400 before: either is a refusal."""
    location = client.load_table(table_of(world), vend=False).location
    client.commit_table(table_of(world), [], [snapshot(location, 10**15)])
    before = client.load_table(table_of(world), vend=False).metadata_location
    with pytest.raises(answers.PolarisError) as raised:
        client.commit_table(table_of(world), [], [snapshot(location, 10**15 + 1, 10**15)])
    assert not isinstance(raised.value, answers.PolarisOutcomeUnknown)
    local = world.polaris.local
    if local is not None:
        assert raised.value.status == (409 if local.warehouse.newer else 400)
    assert client.load_table(table_of(world), vend=False).metadata_location == before


def test_a_commit_whose_outcome_the_catalog_does_not_know_is_no_refusal(
    world: PolarisView, client: PolarisClient, local: LocalCatalog
) -> None:
    """500 since 1.7, 400 before, which is a refusal by its status alone."""
    local.tables.unknown_commits = 1
    with pytest.raises(answers.PolarisOutcomeUnknown) as raised:
        client.commit_table(table_of(world), [], [{"action": "set-properties", "updates": {"a": "b"}}])
    assert raised.value.status == (500 if local.warehouse.newer else 400)
    assert client.load_table(table_of(world), vend=False).properties["a"] == "b"


def test_the_loser_of_a_race_of_updates_changes_nothing(world: PolarisView, local: LocalCatalog) -> None:
    world.namespace()
    owner = administrator(world)
    identifier = made(world, owner, "keep")
    local.policies.raced_updates = 1
    with pytest.raises(answers.PolarisError) as raised:
        owner.update(identifier, DISABLED, version=0)
    # Before, the answer is a 500, which states nothing of the change.
    assert raised.value.code == ("POLICY_CHANGED" if local.warehouse.newer else answers.PolarisOutcomeUnknown.code)
    assert owner.load(identifier).content == ENABLED
    assert owner.update(identifier, DISABLED, version=0).version == 1


def test_a_detachment_that_succeeded_without_an_effect_is_made_again(world: PolarisView, local: LocalCatalog) -> None:
    world.namespace()
    owner = administrator(world)
    identifier = made(world, owner, "keep")
    owner.attach(identifier, place(world))
    local.policies.kept_detaches = 1
    owner.detach(identifier, place(world))
    assert applied(owner, place(world)) == []
    owner.attach(identifier, place(world))
    local.policies.kept_detaches = 2
    with pytest.raises(answers.PolarisError, check=coded("POLICY_STILL_ATTACHED")):
        owner.detach(identifier, place(world))
    assert applied(owner, place(world)) == [("keep", False)]
    owner.detach(identifier, place(world))
    assert owner.applicable(place(world), EXPIRY) == []


def test_a_table_whose_metadata_is_damaged_has_no_answer_and_is_not_gone(
    world: PolarisView, client: PolarisClient, local: LocalCatalog
) -> None:
    location = client.load_table(table_of(world), vend=False).metadata_location
    bucket, _, key = location.removeprefix("s3://").partition("/")
    s3 = boto3.client("s3", region_name="us-east-1", aws_access_key_id="admin", aws_secret_access_key="admin")
    whole = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
    s3.put_object(Bucket=bucket, Key=key, Body=whole[: len(whole) // 2])
    try:
        answer = world.catalog("GET", f"namespaces/{world.name}/tables/t")
        assert (answer.status_code, answer.json()["error"]["type"]) == (503, "RuntimeIOException")
    finally:
        s3.put_object(Bucket=bucket, Key=key, Body=whole)


def test_a_catalog_of_another_storage_is_known_by_its_own_description(
    world: PolarisView, client: PolarisClient, local: LocalCatalog
) -> None:
    path, storage = f"catalogs/{world.polaris.warehouse}", local.warehouse.body()["storageConfigInfo"]

    def put(kind: str) -> None:
        version = world.manage("GET", path).json()["entityVersion"]
        body = {"currentEntityVersion": version, "storageConfigInfo": {**storage, "storageType": kind}}
        assert world.manage("PUT", path, body).status_code == 200

    put("GCS")
    try:
        with pytest.raises(answers.PolarisError, check=coded("CATALOG_UNSUPPORTED"), match="storage type is GCS"):
            client.check_catalog(world.polaris.warehouse)
    finally:
        put("S3")
