"""Object types, declared by installed packages (NoSQL persistence proposal, Object Types).

A package adds types by an entry point in the group `delegation.object_types` that names an ObjectType or a sequence of
them. Objects of undeclared types are kept byte for byte and never decoded.
"""

import importlib.metadata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, get_args

from pydantic import BaseModel

from polaris_persistence.backends.base import StoredObject
from polaris_persistence.errors import UnknownType
from polaris_persistence.objects.objects import Loaded, M, ObjectRef, PersistedModel, carry, decode

ENTRY_POINTS: Final = "delegation.object_types"


class Fetch(Protocol):
    """Read objects of one catalog, in the order of `refs`; None for an absent one."""

    def __call__(self, refs: Iterable[ObjectRef]) -> "list[Loaded[PersistedModel] | None]": ...


def _no_links(_value: Any, _fetch: Fetch) -> Iterator[ObjectRef]:
    return iter(())


@dataclass(frozen=True)
class ObjectType(Generic[M]):
    """A type of objects. `name` is short and part of every key.

    Immutable objects are cached without expiry; an object of a mutable type for `expires_after` seconds, None or 0 for
    not at all, and the absence of an object for `absent_expires_after` seconds. `links` returns the objects that one
    keeps alive (maintenance); it may read further objects of the same catalog.
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
        _check_keeps_unknown_fields(self.model)

    def cached_for(self, value: M) -> float | None:
        """Return how many seconds a value may stay in the cache: None without expiry, 0 not at all."""
        return (self.expires_after(value) or 0.0) if self.mutable else None


def _check_keeps_unknown_fields(model: type[BaseModel]) -> None:
    """Raise ValueError for a model, at any depth, that would drop a newer release's fields."""
    checked: set[type[BaseModel]] = set()
    waiting = [model]
    while waiting:
        current = waiting.pop()
        if current in checked:
            continue
        checked.add(current)
        for name, declared in current.model_fields.items():
            for nested in _models_in(declared.annotation):
                if nested.model_config.get("extra") != "allow":
                    raise ValueError(
                        f"{current.__name__}.{name} holds {nested.__name__}, which drops fields that a newer release "
                        "wrote. Derive it from PersistedModel"
                    )
                waiting.append(nested)


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)
    # A NamedTuple of another length does not decode, so a newer one is never mistaken for this release's.
    for field in getattr(annotation, "__annotations__", {}).values() if _is_named_tuple(annotation) else ():
        yield from _models_in(field)


def _is_named_tuple(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, tuple) and hasattr(annotation, "_fields")


class ObjectTypes:
    """The types that this process knows, by name and by model. Raises ValueError for a name or model declared twice."""

    def __init__(self, types: Iterable[ObjectType[Any]]) -> None:
        self._by_name: dict[str, ObjectType[Any]] = {}
        self._by_model: dict[type[PersistedModel], ObjectType[Any]] = {}
        for declared in types:
            if declared.name in self._by_name or declared.model in self._by_model:
                raise ValueError(f"object type {declared.name!r} is declared twice")
            self._by_name[declared.name] = declared
            self._by_model[declared.model] = declared

    def __iter__(self) -> Iterator[ObjectType[Any]]:
        return iter(self._by_name.values())

    def get(self, name: str) -> ObjectType[Any] | None:
        """Return the type of that name; None if it is not declared."""
        return self._by_name.get(name)

    def of(self, model: type[M]) -> ObjectType[M]:
        """Return the type whose objects hold `model`. Raises UnknownType."""
        found = self._by_model.get(model)
        if found is None:
            raise UnknownType(f"no object type is declared for {model.__name__}. Declare an ObjectType")
        return found

    def decode(self, stored: StoredObject) -> PersistedModel:
        """Return a stored value as its type's model, UnknownObject if it is not declared. Raises CorruptObject."""
        known = self._by_name.get(stored.key.type)
        return decode(stored, known.model) if known else carry(stored)


def installed(own: Iterable[ObjectType[Any]] = ()) -> ObjectTypes:
    """Return the types in `own` and those of every installed package. Raises ValueError for an invalid entry point."""
    found: list[ObjectType[Any]] = list(own)
    for entry in importlib.metadata.entry_points(group=ENTRY_POINTS):
        declared = entry.load()
        several = [declared] if isinstance(declared, ObjectType) else list(declared)
        if not all(isinstance(declared, ObjectType) for declared in several):
            raise ValueError(f"entry point {entry.name} in {ENTRY_POINTS} names no object type")
        found += several
    return ObjectTypes(found)


def follows_links(declared: ObjectType[Any]) -> bool:
    """Return whether objects of the type may keep others alive."""
    return declared.links is not _no_links
