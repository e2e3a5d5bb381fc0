"""Stored values and their types."""

import contextlib
import importlib.metadata
from types import SimpleNamespace
from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polaris_persistence.backends.base import MAX_ID, ObjectKey, StoredObject
from polaris_persistence.errors import CorruptObject, UnknownType, ValueNotStorable
from polaris_persistence.objects import types
from polaris_persistence.objects.objects import (
    MAX_NESTING,
    ObjectRef,
    PersistedModel,
    UnknownObject,
    carry,
    decode,
    encode,
    unknown_field,
)
from polaris_persistence.objects.types import ENTRY_POINTS, ObjectType, ObjectTypes, installed
from tests.persistence.builders import COUNTER, ENTITY, HEAD, TYPES, Counter, Entity, Head

KEY = ObjectKey("r", "c", "entity", 1)
PLAIN: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


class Nested(PersistedModel):
    inner: Entity
    ref: ObjectRef
    others: tuple[Entity, ...] = ()
    data: bytes = b""
    anything: Any = None


def stored(value: bytes) -> StoredObject:
    return StoredObject(KEY, value, 1)


@given(number=st.integers(), name=st.text(), data=st.binary(), anything=PLAIN, id_=st.integers(0, MAX_ID))
def test_values_round_trip(number: int, name: str, data: bytes, anything: Any, id_: int) -> None:
    one = Entity(name=name, number=number)
    value = Nested(inner=one, ref=ObjectRef("t", id_, 3), others=(one, one), data=data, anything=anything)
    assert decode(stored(encode(value)), Nested) == value


@given(extra=st.dictionaries(st.text(min_size=1).map(lambda name: f"x_{name}"), PLAIN, max_size=4))
def test_unknown_fields_survive_a_round_trip(extra: dict[str, Any]) -> None:
    written = cbor2.dumps({"name": "n", "number": 7, **extra})
    read = decode(stored(written), Entity)
    changed = read.model_copy(update={"number": 8})
    assert cbor2.loads(encode(changed)) == {"name": "n", "number": 8, **extra}


def test_unknown_fields_of_nested_values_survive() -> None:
    written = cbor2.dumps({"inner": {"name": "n", "number": 1, "new": [1]}, "ref": ["t", 5]})
    read = decode(stored(written), Nested)
    assert read.ref == ObjectRef("t", 5, 1)
    assert cbor2.loads(encode(read))["inner"] == {"name": "n", "number": 1, "new": [1]}


@pytest.mark.parametrize(
    "value", [b"", b"\xff", b"\x9f", cbor2.dumps([1]), cbor2.dumps({1: 2}), cbor2.dumps("text"), b"\x81" * 5_000]
)
def test_a_value_that_is_no_map_of_fields_is_corrupt(value: bytes) -> None:
    with pytest.raises(CorruptObject):
        decode(stored(value), Entity)
    with pytest.raises(CorruptObject):
        carry(stored(value))


def test_a_value_that_does_not_fit_the_model_is_corrupt_and_its_content_is_not_shown() -> None:
    with pytest.raises(CorruptObject, match="number") as caught:
        decode(stored(cbor2.dumps({"name": "n", "number": "s3cret"})), Entity)
    assert "s3cret" not in str(caught.value)


@given(value=st.binary(max_size=200))
def test_any_bytes_decode_or_are_corrupt(value: bytes) -> None:
    with contextlib.suppress(CorruptObject):
        assert isinstance(decode(stored(value), Entity), Entity)


def test_objects_of_unknown_types_are_carried_byte_for_byte() -> None:
    # Not as this library would write it: the map is of indefinite length.
    value = b"\xbf" + cbor2.dumps("a") + cbor2.dumps(1) + b"\xff"
    one = TYPES.decode(StoredObject(ObjectKey("r", "c", "foreign", 1), value, 1))
    assert isinstance(one, UnknownObject)
    assert one.model_extra == {"a": 1}
    assert encode(one) == value


def test_types_are_found_by_name_and_by_model() -> None:
    assert TYPES.get("entity") is ENTITY
    assert TYPES.get("foreign") is None
    assert TYPES.of(Head) is HEAD
    assert set(TYPES) == {ENTITY, COUNTER, HEAD}
    with pytest.raises(UnknownType, match="Nested"):
        TYPES.of(Nested)


@pytest.mark.parametrize("twin", [ObjectType("entity", Nested), ObjectType("other", Entity)])
def test_a_type_declared_twice_is_refused(twin: ObjectType[Any]) -> None:
    with pytest.raises(ValueError, match="twice"):
        ObjectTypes([ENTITY, twin])
    with pytest.raises(ValueError, match="name"):
        ObjectType("", Nested)


def test_installed_packages_declare_types_by_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    declared: list[Any] = [ObjectType("a", Entity), [ObjectType("b", Nested), ObjectType("c", Counter)]]

    def entry_points(*, group: str) -> list[SimpleNamespace]:
        assert group == ENTRY_POINTS
        return [SimpleNamespace(name=f"e{n}", load=lambda d=d: d) for n, d in enumerate(declared)]

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    assert {one.name for one in installed([HEAD])} == {"a", "b", "c", "head"}
    declared.append([Entity])
    with pytest.raises(ValueError, match="e2"):
        types.installed()


def test_how_long_a_value_is_cached() -> None:
    assert ENTITY.cached_for(Entity(name="n")) is None
    assert COUNTER.cached_for(Counter(count=5)) == 5
    assert ObjectType("m", Counter, mutable=True).cached_for(Counter()) == 0


@pytest.mark.parametrize("id_", [-1, MAX_ID + 1])
def test_an_id_has_63_bits(id_: int) -> None:
    with pytest.raises(ValueError, match="63 bits"):
        ObjectKey("r", "c", "t", id_)


def nested(levels: int) -> Any:
    """Return lists within each other."""
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def same_depth(value: Any, levels: int) -> bool:
    for _ in range(levels):
        [value] = value
    return bool(value == 1)


@pytest.mark.parametrize("levels", [398, 400, 420, MAX_NESTING - 1])
def test_a_value_nested_as_deeply_as_iceberg_reads_is_read_back(levels: int) -> None:
    value = Nested(inner=Entity(name="n"), ref=ObjectRef("t", 1), anything=nested(levels))
    assert same_depth(decode(stored(encode(value)), Nested).anything, levels)
    assert unknown_field(value) is None


def holding_itself() -> list[Any]:
    value: list[Any] = []
    value += [value, [value]]
    return value


@pytest.mark.parametrize(
    "anything",
    [nested(MAX_NESTING), holding_itself(), nested(100_000), "\ud800", object(), {"a": {"b": "\udfff"}}],
    ids=["deep", "endless", "deeper", "half a pair", "no data", "half a pair inside"],
)
def test_a_value_that_does_not_read_back_is_refused_before_it_is_written(anything: Any) -> None:
    with pytest.raises(ValueNotStorable, match="Nested"):
        encode(Nested(inner=Entity(name="n"), ref=ObjectRef("t", 1), anything=anything))


def test_a_value_that_is_not_of_its_model_is_refused_and_not_shown() -> None:
    with pytest.raises(ValueNotStorable, match="number") as caught:
        encode(Entity(name="n").model_copy(update={"number": "s3cret"}))
    assert "s3cret" not in str(caught.value)


def test_the_path_of_an_unknown_field_names_each_level() -> None:
    newer = Entity.model_validate({"name": "n", "colour": "red"})
    assert unknown_field(Nested(inner=Entity(name="n"), ref=ObjectRef("t", 1), others=(newer,))) == "others.0.colour"
    assert unknown_field(Nested(inner=newer, ref=ObjectRef("t", 1), others=(newer,))) == "inner.colour"
