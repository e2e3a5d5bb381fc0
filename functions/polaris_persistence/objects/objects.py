"""Objects as frozen pydantic models, stored as CBOR (RFC 8949), with unknown fields.

What is written reads back: `encode` decodes each value before it returns the bytes, and refuses it otherwise.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar

import cbor2
from pydantic import BaseModel, ConfigDict, PrivateAttr, ValidationError
from pydantic_core import PydanticSerializationError

from polaris_persistence.backends.base import Locator, ObjectKey, StoredObject, part_count
from polaris_persistence.errors import CorruptObject, ValueNotStorable
from polaris_persistence.objects.weight import held_bytes

MAX_NESTING: Final = 1_024
"""The deepest nesting of lists and maps in a stored value: the 1,000 levels of JSON that Iceberg reads (Jackson,
StreamReadConstraints.DEFAULT_MAX_DEPTH), and the fields of the object around them."""

_CONTAINERS: Final = (dict, list, tuple, set, frozenset, BaseModel)


class PersistedModel(BaseModel):
    """The value of an object. Fields that a newer release wrote are kept and written back (rolling up- and downgrade).

    Fields hold text, bytes, integers, floats, booleans, None, lists, maps, ObjectRefs and PersistedModels. A field that
    a release adds needs a default, for older values.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    def held_bytes(self) -> int:
        """Return about how many bytes the value takes in memory, with what its first use decodes."""
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
        return ObjectRef(self.key.type, self.key.id, part_count(self.size))


def encode(value: PersistedModel) -> bytes:
    """Return the stored form of a value, which decodes as its model. Raises ValueNotStorable."""
    if isinstance(value, UnknownObject):
        return value._raw  # noqa: SLF001 - private to this module
    name = type(value).__name__
    if nests_beyond(value, MAX_NESTING):
        # Checked first, because an encoder that calls itself for each level would end the process.
        raise ValueNotStorable(f"a {name} has more than {MAX_NESTING} lists and maps within each other. Flatten it")
    try:
        data = cbor2.dumps(value.model_dump(warnings=False))
    except (cbor2.CBOREncodeError, PydanticSerializationError, ValueError, RecursionError) as error:
        raise ValueNotStorable(f"a {name} cannot be encoded: {type(error).__name__}. Change its value") from error
    try:
        type(value).model_validate(from_cbor(data))
    except (cbor2.CBORDecodeError, ValidationError) as error:
        raise ValueNotStorable(
            f"a {name} could not be decoded again: {_reason(error)}. Give each field a value of its type"
        ) from error
    return data


def nests_beyond(value: Any, levels: int) -> bool:
    """Return whether models, maps and lists nest deeper than `levels`; one may contain itself."""
    level: Iterable[Any] = [value]
    for _ in range(levels):
        # Each container once per level, so that shared ones are not multiplied.
        inside = {id(part): part for container in level for part in _parts(container) if isinstance(part, _CONTAINERS)}
        if not inside:
            return False
        level = inside.values()
    return True


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, BaseModel):
        return (*value.__dict__.values(), *(value.model_extra or {}).values())
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, _CONTAINERS) else ()


def from_cbor(data: bytes) -> Any:
    """Return the value of CBOR bytes, nested up to MAX_NESTING. Raises CBORDecodeError."""
    return cbor2.loads(data, max_depth=MAX_NESTING)


def unknown_field(value: Any) -> str | None:
    """Return the path of a field that a newer release wrote, at any depth of a decoded value; None if there is none.

    Free data (JSON in a field of type Any) has no fields that could be unknown.
    """
    pending: list[tuple[tuple[Any, ...], Any]] = [((), value)]
    while pending:
        path, container = pending.pop()
        if isinstance(container, BaseModel):
            if container.model_extra:
                return ".".join(map(str, (*_flat(path), next(iter(container.model_extra)))))
            inside: Any = [(name, getattr(container, name)) for name in type(container).model_fields]
        elif isinstance(container, Mapping):
            inside = list(container.items())
        elif isinstance(container, (list, tuple, set, frozenset)):
            inside = list(enumerate(container))
        else:
            continue
        # In order, and the path as linked pairs: a copy for each level would be quadratic.
        pending += [((path, name), part) for name, part in reversed(inside)]
    return None


def _flat(path: tuple[Any, ...]) -> list[Any]:
    names: list[Any] = []
    while path:
        path, name = path
        names.append(name)
    return names[::-1]


def decode(stored: StoredObject, model: type[M]) -> M:
    """Return a stored value as its type's model. Raises CorruptObject."""
    try:
        return model.model_validate(_fields(stored))
    except ValidationError as error:
        raise CorruptObject(f"{stored.key}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """Return what is wrong, without the value itself."""
    if not isinstance(error, ValidationError):
        return str(error)
    wrong = error.errors(include_input=False, include_url=False)[0]
    return f"{'.'.join(map(str, wrong['loc']))}: {wrong['msg']}"


def carry(stored: StoredObject) -> UnknownObject:
    """Return a stored value of an unknown type. Raises CorruptObject."""
    unknown = UnknownObject.model_validate(_fields(stored))
    unknown._raw = stored.value  # noqa: SLF001
    return unknown


def _fields(stored: StoredObject) -> dict[str, Any]:
    try:
        fields = from_cbor(stored.value)
    except cbor2.CBORDecodeError as error:
        raise CorruptObject(f"the object {stored.key} is not CBOR") from error
    if not isinstance(fields, dict) or not all(isinstance(name, str) for name in fields):
        raise CorruptObject(f"the object {stored.key} is not a map of fields")
    return fields
