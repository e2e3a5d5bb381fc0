"""What a catalog keeps: entities under keys, which one step at a time reads and changes as a whole.

`MemoryState` is the reference; `persisted.py` keeps the same in the NoSQL persistence.
"""

import itertools
import threading
from collections.abc import Callable
from typing import Concatenate, Final, ParamSpec, Protocol, TypeVar, cast

from polaris_persistence.objects.objects import M, PersistedModel

Key = tuple[str, ...]
P = ParamSpec("P")
T = TypeVar("T")
_FIRST_ID: Final = 1_000_000


class Records(Protocol):
    """The entities as one step finds and changes them; those of a kind have one model."""

    def get(self, key: Key, model: type[M]) -> M | None: ...

    def keys(self, prefix: Key) -> list[Key]:
        """Return the keys that begin with the elements of `prefix`, in order."""
        ...

    def put(self, key: Key, value: PersistedModel) -> None: ...

    def remove(self, key: Key) -> None: ...

    def new_id(self) -> int:
        """Return an id that no other entity has or had."""
        ...


class CatalogState(Protocol):
    """The namespaces, tables, views and policies of one catalog."""

    def atomically(self, step: Callable[[Records], T], *, operation: str) -> T:
        """Apply a step as a whole, or not at all if it raises; it may be called again, so it has no other effect."""
        ...


class _InState(Protocol):
    _state: CatalogState


S = TypeVar("S", bound=_InState)


def atomic(method: Callable[Concatenate[S, Records, P], T]) -> Callable[Concatenate[S, P], T]:
    """Make a method a step on the state of its object."""

    def whole(self: S, /, *args: P.args, **named: P.kwargs) -> T:
        return self._state.atomically(lambda records: method(self, records, *args, **named), operation=method.__name__)

    whole.__name__, whole.__doc__ = method.__name__, method.__doc__
    return whole


class MemoryState:
    """The state in memory, under one lock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._records = _MemoryRecords()

    def atomically(self, step: Callable[[Records], T], *, operation: str) -> T:  # noqa: ARG002
        with self._lock:
            self._records.before.clear()
            try:
                return step(self._records)
            except BaseException:
                self._records.undo()
                raise


class _MemoryRecords:
    def __init__(self) -> None:
        self._entities: dict[Key, PersistedModel] = {}
        self._ids = itertools.count(_FIRST_ID)
        self.before: dict[Key, PersistedModel | None] = {}

    def get(self, key: Key, model: type[M]) -> M | None:  # noqa: ARG002
        return cast("M | None", self._entities.get(key))

    def keys(self, prefix: Key) -> list[Key]:
        return sorted(key for key in self._entities if key[: len(prefix)] == prefix)

    def put(self, key: Key, value: PersistedModel) -> None:
        self.before.setdefault(key, self._entities.get(key))
        self._entities[key] = value

    def remove(self, key: Key) -> None:
        self.before.setdefault(key, self._entities.get(key))
        self._entities.pop(key, None)

    def new_id(self) -> int:
        return next(self._ids)

    def undo(self) -> None:
        for key, value in self.before.items():
            if value is None:
                self._entities.pop(key, None)
            else:
                self._entities[key] = value
