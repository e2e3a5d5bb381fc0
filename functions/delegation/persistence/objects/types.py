"""Object types: what is known of the objects of a type name, declared by installed packages (proposal, Object Types).

A package adds types by an entry point in the group `delegation.object_types` that names an ObjectType or a sequence of
them; nothing else has to change. Objects of types that nobody declares here are carried and never understood.
"""

import importlib.metadata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol

from delegation.persistence.backends.base import StoredObject
from delegation.persistence.errors import UnknownType
from delegation.persistence.objects.objects import Loaded, M, ObjectRef, PersistedModel, carry, decode

ENTRY_POINTS: Final = "delegation.object_types"


class Fetch(Protocol):
    """Read the objects of one catalog that exist, in the order asked; None for an absent one."""

    def __call__(self, refs: Iterable[ObjectRef]) -> "list[Loaded[PersistedModel] | None]": ...


def _no_links(_value: Any, _fetch: Fetch) -> Iterator[ObjectRef]:
    return iter(())


@dataclass(frozen=True)
class ObjectType(Generic[M]):
    """A type of objects. `name` is short and part of every key.

    Immutable objects are cached as long as there is room. Of a mutable type an object is cached for `expires_after`
    seconds of its value, None or 0 for not at all; that one is absent is cached for `absent_expires_after` seconds.
    `links` lists the objects that one keeps alive (maintenance); it may read further objects of the same catalog.
    """

    name: str
    model: type[M]
    mutable: bool = False
    expires_after: Callable[[M], float | None] = lambda _value: None
    absent_expires_after: float | None = None
    links: Callable[[M, Fetch], Iterable[ObjectRef]] = _no_links

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("an object type needs a name")

    def cached_for(self, value: M) -> float | None:
        """Seconds that a value may stay in the cache: None for ever, 0 not at all."""
        return (self.expires_after(value) or 0.0) if self.mutable else None


class ObjectTypes:
    """The types known to this process, by name and by model; two types with one name or model are refused."""

    def __init__(self, types: Iterable[ObjectType[Any]]) -> None:
        self._by_name: dict[str, ObjectType[Any]] = {}
        self._by_model: dict[type[PersistedModel], ObjectType[Any]] = {}
        for one in types:
            if one.name in self._by_name or one.model in self._by_model:
                raise ValueError(f"object type {one.name!r} is declared twice")
            self._by_name[one.name] = one
            self._by_model[one.model] = one

    def __iter__(self) -> Iterator[ObjectType[Any]]:
        return iter(self._by_name.values())

    def get(self, name: str) -> ObjectType[Any] | None:
        """The type of that name; None if nobody declares it."""
        return self._by_name.get(name)

    def of(self, model: type[M]) -> ObjectType[M]:
        """The type whose objects hold `model`. Raises UnknownType."""
        found = self._by_model.get(model)
        if found is None:
            raise UnknownType(f"no object type is declared for {model.__name__}")
        return found

    def decode(self, stored: StoredObject) -> PersistedModel:
        """A stored value as its type's model, as UnknownObject if nobody declares it. Raises CorruptObject."""
        known = self._by_name.get(stored.key.type)
        return decode(stored, known.model) if known else carry(stored)


def installed(own: Iterable[ObjectType[Any]] = ()) -> ObjectTypes:
    """The types in `own` and those of every installed package. Raises ValueError for a declaration that is none."""
    found: list[ObjectType[Any]] = list(own)
    for entry in importlib.metadata.entry_points(group=ENTRY_POINTS):
        declared = entry.load()
        several = [declared] if isinstance(declared, ObjectType) else list(declared)
        if not all(isinstance(one, ObjectType) for one in several):
            raise ValueError(f"entry point {entry.name} in {ENTRY_POINTS} names no object type")
        found += several
    return ObjectTypes(found)


def follows_links(declared: ObjectType[Any]) -> bool:
    """Whether objects of the type may keep others alive."""
    return declared.links is not _no_links
