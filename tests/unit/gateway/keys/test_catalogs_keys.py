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


@pytest.fixture(params=["1.7", "newer"])
def world(request: pytest.FixtureRequest) -> Iterator[KeyedCatalog]:
    world = KeyedCatalog(keys_lifetime=timedelta(minutes=5), newer=request.param == "newer")
    yield world
    world.close()


def test_a_lost_commit_that_asserts_no_table_is_decided_by_the_catalog_s_key(world):
    table(world)
    request = keyed(world, path=TABLE, body=PROPERTY)
    world.lost(request, catalogs=True)
    answer = world.call(request, catalogs=True)
    assert (answer.status, versions(world)) == (200, 1)
    assert json.loads(answer.body)["metadata"] == metadata(world)
    assert world.call(request, catalogs=True).header("Idempotency-Replayed") == "true"


def test_a_lost_commit_is_decided_though_others_followed(world):
    table(world)
    request = keyed(world, path=TABLE, body=PROPERTY)
    world.lost(request, catalogs=True)
    undone = {"requirements": [], "updates": [{"action": "remove-properties", "removals": ["a"]}]}
    assert world.direct("POST", TABLE, undone).is_success
    assert (world.call(request, catalogs=True).status, versions(world)) == (200, 2)


def test_a_lost_creation_is_decided_though_the_table_was_changed(world):
    namespace(world)
    request = keyed(world, path="namespaces/ns/tables", body={**CREATE, "properties": {"a": "1"}}, **VEND)
    world.lost(request, catalogs=True)
    assert world.direct("POST", TABLE, PROPERTY).is_success
    answer = world.call(request, catalogs=True)
    assert answer.status == 200
    assert json.loads(answer.body)["storage-credentials"]


def test_a_lost_commit_that_arrives_after_its_repeat_is_not_performed_again(world):
    """The first call's request waited somewhere; it has the same key as that of the second."""
    table(world)
    request = keyed(world, path=TABLE, body=PROPERTY)
    world.never_sent(request, catalogs=True)
    assert (world.call(request, catalogs=True).status, versions(world)) == (200, 1)
    assert world.call(request, catalogs=True).header("Idempotency-Replayed") == "true"
    [late] = [one for one in world.sent if one.method == "POST" and b"set-properties" in one.body]
    assert world.upstream.send(late, timeout=1).status == 200
    assert versions(world) == 1


@pytest.mark.parametrize("after", ["another's commit", "another table", "too late"])
def test_what_the_catalog_has_not_recorded_stays_unknown_and_is_not_sent_again(world, after):
    table(world)
    request = keyed(world, path=TABLE, body=PROPERTY)
    point_of = "before change" if after == "another's commit" else "after change"
    assert world.call(request, Life(lambda point, _: point == point_of, kill), catalogs=True) is None
    number = versions(world)
    if after == "another's commit":
        other = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"c": "d"}}]}
        assert world.direct("POST", TABLE, other).is_success
        number += 1
    if after == "another table":
        assert world.direct("DELETE", TABLE).is_success
        table(world)
        number = 0
    world.clock.advance(timedelta(minutes=6) if after == "too late" else AFTER_LEASE)
    world.tokens["owner"] = world.token("owner")
    answer = world.call(keyed(world, path=TABLE, body=PROPERTY), catalogs=True)
    assert (answer.status, error_of(answer)["type"]) == (500, "CommitStateUnknownException")
    assert versions(world) == number


def test_a_table_made_between_the_look_at_the_key_and_the_look_at_the_table_is_not_answered(world):
    """The catalog has recorded the key on the table that was dropped meanwhile."""
    table(world)
    request = keyed(world, path=TABLE, body=PROPERTY)
    world.lost(request, catalogs=True)

    def replaced() -> None:
        assert world.direct("DELETE", TABLE).is_success
        table(world)

    life = Life(lambda point, _: point == "after change", replaced)
    answer = world.call(request, life, catalogs=True)
    assert life.points.count("after change") == 1
    assert (answer.status, error_of(answer)["type"]) == (500, "CommitStateUnknownException")
    assert "a" not in metadata(world)["properties"]


def test_only_where_the_catalog_keeps_keys_a_commit_without_a_uuid_costs_a_read(world):
    table(world)
    reads = {}
    for catalogs in (True, False):
        world.sent.clear()
        assert world.call(keyed(world, path=TABLE, body=PROPERTY, key=f"k{catalogs}"), catalogs=catalogs).status == 200
        reads[catalogs] = [one.path for one in world.sent if one.method == "GET" and one.path.endswith("/t")]
    assert (len(reads[True]), reads[False]) == (1, [])


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
