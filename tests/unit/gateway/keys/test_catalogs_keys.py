"""A catalog that keeps keys itself decides what a call did whose answer was lost."""

import json
from collections.abc import Iterator
from datetime import timedelta
from uuid import UUID

import pytest

from tests.unit.gateway.keys.mutations import SCHEMA, commit_request, metadata, namespace, table, versions
from tests.unit.gateway.keys.stand_in import AFTER_LEASE, VEND, KeyedCatalog, Life, kill
from tests.unit.gateway.keys.test_service import TABLE, error_of, keyed

CREATE = {"name": "t", "schema": SCHEMA}
PROPERTY = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"a": "b"}}]}


@pytest.fixture
def world() -> Iterator[KeyedCatalog]:
    world = KeyedCatalog(keys_lifetime=timedelta(minutes=5))
    yield world
    world.close()


def lost() -> Life:
    return Life(lambda point, _: point == "after change", kill)


def test_a_lost_commit_that_asserts_no_table_is_decided_by_the_catalog_s_key(world):
    table(world)
    request = keyed(world, path=TABLE, body=PROPERTY)
    assert world.call(request, lost(), catalogs=True) is None
    world.clock.advance(AFTER_LEASE)
    answer = world.call(request, catalogs=True)
    assert (answer.status, versions(world)) == (200, 1)
    assert json.loads(answer.body)["metadata"] == metadata(world)
    assert world.call(request, catalogs=True).header("Idempotency-Replayed") == "true"


def test_a_lost_commit_is_decided_though_others_followed(world):
    table(world)
    request = keyed(world, path=TABLE, body=PROPERTY)
    assert world.call(request, lost(), catalogs=True) is None
    undone = {"requirements": [], "updates": [{"action": "remove-properties", "removals": ["a"]}]}
    assert world.direct("POST", TABLE, undone).is_success
    world.clock.advance(AFTER_LEASE)
    assert (world.call(request, catalogs=True).status, versions(world)) == (200, 2)


def test_a_lost_creation_is_decided_though_the_table_was_changed(world):
    namespace(world)
    request = keyed(world, path="namespaces/ns/tables", body={**CREATE, "properties": {"a": "1"}}, **VEND)
    assert world.call(request, lost(), catalogs=True) is None
    assert world.direct("POST", TABLE, PROPERTY).is_success
    world.clock.advance(AFTER_LEASE)
    answer = world.call(request, catalogs=True)
    assert answer.status == 200
    assert json.loads(answer.body)["storage-credentials"]


@pytest.mark.parametrize("after", [None, "another table", "too late"])
def test_what_the_catalog_has_not_recorded_stays_unknown_and_is_not_sent_again(world, after):
    table(world)
    request = keyed(world, path=TABLE, body=PROPERTY)
    life = Life(lambda point, _: point == ("after change" if after else "before change"), kill)
    assert world.call(request, life, catalogs=True) is None
    if after == "another table":
        assert world.direct("DELETE", TABLE).is_success
        table(world)
    world.clock.advance(timedelta(minutes=6) if after == "too late" else AFTER_LEASE)
    world.tokens["owner"] = world.token("owner")
    answer = world.call(keyed(world, path=TABLE, body=PROPERTY), catalogs=True)
    assert (answer.status, error_of(answer)["type"]) == (500, "CommitStateUnknownException")
    assert versions(world) == (1 if after == "too late" else 0)


def test_the_catalog_gets_a_key_of_its_own_for_each_caller_operation_and_payload(world):
    """Polaris would answer the same key of another request as if that had been done."""
    namespace(world)
    commit = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"c": "d"}}]}
    assert world.call(keyed(world, path="namespaces/ns/tables", body=CREATE), catalogs=True).status == 200
    assert world.call(keyed(world, path=TABLE, body=PROPERTY), catalogs=True).status == 200
    other = world.request("POST", TABLE, commit, who="other", Idempotency_Key="k")
    assert world.call(other, catalogs=True).status == 200
    assert metadata(world)["properties"].items() >= {"a": "b", "c": "d"}.items()
    sent = [each.header("Idempotency-Key") for each in world.sent if each.method == "POST"]
    assert len({str(UUID(each)) for each in sent}) == 3


def test_other_mutations_and_other_catalogs_get_no_key(world):
    namespace(world)
    staged = keyed(world, path="namespaces/ns/tables", body={**CREATE, "stage-create": True})
    assert world.call(staged, catalogs=True).status == 200
    drop = keyed(world, "DELETE", "namespaces/ns", None)
    assert world.call(drop, catalogs=True).status == 204
    assert [each.header("Idempotency-Key") for each in world.sent] == [None] * len(world.sent)
    plain = KeyedCatalog()
    table(plain)
    assert plain.call(keyed(plain, path=TABLE, body=commit_request(plain)), catalogs=True).status == 200
    assert [each.header("Idempotency-Key") for each in plain.sent] == [None] * len(plain.sent)
    plain.close()
