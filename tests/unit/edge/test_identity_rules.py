"""A deployment that changes how payloads are compared answers the repeats of earlier requests as before."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegation.edge.answers import problem_of
from delegation.idempotency.keys import KeyConflict, NotCanonicalizable, payload_hash
from delegation.idempotency.store import Record, RecordWrite
from tests.kit.worlds.service import World

BIG = 2**60


def body_with_a_big_integer(world: World) -> dict[str, Any]:
    world.lake.create("t")
    body = world.body("t")
    body["operation_parameters"]["metadata"]["snapshots"] = [{"snapshot-id": BIG}]
    return body


def the_record(world: World) -> Record:
    [record] = world.records._records.values()
    return record


def stored_by_an_older_release(world: World, body: dict[str, Any]) -> None:
    """Make the only record one of the release that knew no rule numbers: its hash is that of rule 1."""
    record = the_record(world)
    older = record.model_copy(
        update={"payload_hash": payload_hash(body, rule=1), "identity_rule": None, "nonce": "older"}
    )
    world.records.put(RecordWrite(older, replaces=record))


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def body(world: World) -> dict[str, Any]:
    """A body with a big integer, which was submitted with the key `k`."""
    made = body_with_a_big_integer(world)
    world.submit(made, key="k")
    return made


def test_a_request_accepted_before_a_deployment_is_replayed_after_it(world: World, body: dict[str, Any]) -> None:
    assert the_record(world).identity_rule == 2
    first = world.submit(body, key="k")
    stored_by_an_older_release(world, body)
    again = world.submit(body, key="k")
    assert (again.kind, again.body) == ("replayed", first.body)


@pytest.mark.parametrize(("other", "older"), [(BIG + 1, False), (BIG + 1, True), (str(BIG), False)])
def test_another_payload_is_a_conflict(world: World, body: dict[str, Any], other: int | str, older: bool) -> None:
    if older:
        stored_by_an_older_release(world, body)
    body["operation_parameters"]["metadata"]["snapshots"] = [{"snapshot-id": other}]
    with pytest.raises(KeyConflict):
        world.submit(body, key="k")


def test_a_record_that_an_older_release_rewrote_is_replayed(world: World, body: dict[str, Any]) -> None:
    record = the_record(world)
    rewritten = record.model_copy(update={"identity_rule": None, "nonce": "older"})
    world.records.put(RecordWrite(rewritten, replaces=record))
    assert record.payload_hash == payload_hash(body, rule=2)
    assert world.submit(body, key="k").kind == "replayed"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"]), max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


@given(JSON, st.data())
def test_two_payloads_hash_alike_only_if_they_are_the_same_json(value: Any, data: st.DataObject) -> None:
    other = data.draw(st.just(_texts(value)) | JSON)
    same = _typed(value) == _typed(other)
    assert (payload_hash({"v": value}) == payload_hash({"v": other})) == same
    big = {"v": [value, BIG]}
    assert payload_hash(big) != payload_hash({"v": [value, str(BIG)]})


def _texts(value: Any) -> Any:
    """Return the value with its integers as text."""
    if isinstance(value, list):
        return [_texts(each) for each in value]
    if isinstance(value, dict):
        return {name: _texts(each) for name, each in value.items()}
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _typed(value: Any) -> Any:
    """Return the value so that `==` tells true from 1."""
    if isinstance(value, list):
        return ["list", *map(_typed, value)]
    if isinstance(value, dict):
        return {name: _typed(each) for name, each in value.items()}
    return (type(value).__name__, value)


def test_a_body_that_may_be_taken_for_a_big_integer_is_answered_with_400_and_stores_nothing(world: World) -> None:
    body = body_with_a_big_integer(world)
    body["operation_parameters"]["metadata"]["snapshots"] = [{"snapshot-id": {"$int": str(BIG)}}]
    with pytest.raises(NotCanonicalizable) as refused:
        world.submit(body, key="k")
    assert (problem_of(refused.value).status, problem_of(refused.value).error) == (400, "INVALID_JSON")
    assert world.records._records == {}
