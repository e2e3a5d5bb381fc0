"""Objects as frozen pydantic models, stored as CBOR (RFC 8949), unknown fields included."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import cbor2
from pydantic import BaseModel, ConfigDict, PrivateAttr, ValidationError

from delegation.persistence.backends.base import Locator, ObjectKey, StoredObject, part_count
from delegation.persistence.errors import CorruptObject
from delegation.persistence.objects.weight import held_bytes


class PersistedModel(BaseModel):
    """The value of an object. Fields that a newer release wrote are kept and written back (rolling up- and downgrade).

    Fields hold text, bytes, integers, floats, booleans, None, lists, maps, ObjectRefs and PersistedModels. A field that
    a release adds needs a default, for older values.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    def held_bytes(self) -> int:
        """Return about how many bytes the value takes in memory, with what is decoded on its first use."""
        return held_bytes(self)


M = TypeVar("M", bound=PersistedModel)
M_co = TypeVar("M_co", bound=PersistedModel, covariant=True)


class UnknownObject(PersistedModel):
    """An object of a type that no installed package declares; it is written back byte for byte."""

    _raw: bytes = PrivateAttr(default=b"")


class ObjectRef(NamedTuple):
    """An object's name within its catalog; `parts` is a hint that may be wrong (Locator)."""

    type: str
    id: int
    parts: int = 1

    def locator(self, realm: str, catalog: str) -> Locator:
        """Return the key of the object with its hint."""
        return Locator(ObjectKey(realm, catalog, self.type, self.id), self.parts)


@dataclass(frozen=True, slots=True)
class Loaded(Generic[M_co]):
    """An object that was read or written: `created_at` in µs, `token` if updateable, `size` of the stored bytes."""

    key: ObjectKey
    value: M_co
    created_at: int
    size: int
    token: str | None = None

    @property
    def ref(self) -> ObjectRef:
        """Return the ObjectRef that names this object."""
        return ObjectRef(self.key.type, self.key.id, part_count(self.size))


def encode(value: PersistedModel) -> bytes:
    """Return the stored form of a value."""
    if isinstance(value, UnknownObject):
        return value._raw  # noqa: SLF001 - private to this module
    return cbor2.dumps(value.model_dump())


def unknown_field(value: Any) -> str | None:
    """Return the path of a field that a newer release wrote, at any depth of a decoded value; None if there is none.

    Free data (JSON in a field of type Any) has no fields that could be unknown.
    """
    if isinstance(value, BaseModel):
        if value.model_extra:
            return next(iter(value.model_extra))
        inside: Any = ((name, getattr(value, name)) for name in type(value).model_fields)
    elif isinstance(value, Mapping):
        inside = value.items()
    elif isinstance(value, (list, tuple, set, frozenset)):
        inside = enumerate(value)
    else:
        return None
    for name, one in inside:
        path = unknown_field(one)
        if path is not None:
            return f"{name}.{path}"
    return None


def decode(stored: StoredObject, model: type[M]) -> M:
    """Return a stored value as its type's model. Raises CorruptObject."""
    try:
        return model.model_validate(_fields(stored))
    except ValidationError as error:
        wrong = error.errors(include_input=False, include_url=False)[0]
        raise CorruptObject(f"{stored.key}: {'.'.join(map(str, wrong['loc']))}: {wrong['msg']}") from error


def carry(stored: StoredObject) -> UnknownObject:
    """Return a stored value of an unknown type. Raises CorruptObject."""
    unknown = UnknownObject.model_validate(_fields(stored))
    unknown._raw = stored.value  # noqa: SLF001
    return unknown


def _fields(stored: StoredObject) -> dict[str, Any]:
    try:
        fields = cbor2.loads(stored.value)
    except (cbor2.CBORDecodeError, RecursionError) as error:
        raise CorruptObject(f"{stored.key} is not CBOR") from error
    if not isinstance(fields, dict) or not all(isinstance(name, str) for name in fields):
        raise CorruptObject(f"{stored.key} is not a map of fields")
    return fields
