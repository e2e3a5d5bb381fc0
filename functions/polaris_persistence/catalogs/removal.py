"""The removal of a reference with all objects that it leads to, by their own keys: no row of another realm is read.

The reference is closed first, after which no commit succeeds, and deleted last. Its objects are deleted from the ends
of the links backwards. So the remaining objects of an interrupted removal can still be found, and the next one removes
them.
"""

import itertools
from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

from polaris_persistence.backends.base import CLOSED, Backend, Reference, ReferenceKey
from polaris_persistence.commits.commits import CommitObject
from polaris_persistence.commits.feed import NAMES_TYPE
from polaris_persistence.commits.recorded import objects_of
from polaris_persistence.commits.waiting import OUTCOMES_TYPE, WAITING_TYPE, CombinedOutcomes, WaitingChange
from polaris_persistence.errors import CommitContended, CommitOutcomeUnknown, CorruptObject
from polaris_persistence.objects.objects import Loaded, ObjectRef, PersistedModel, unknown_field
from polaris_persistence.objects.store import CatalogStore
from polaris_persistence.objects.types import follows_links

T = TypeVar("T")
_TRIES: Final = 100


def close(backend: Backend, key: ReferenceKey) -> Reference | None:
    """Close a reference (`Reference.closed`) and return it; None if there is none.

    Raises CommitContended (repeat it) if other processes move it all the time; BackendUnavailable.
    """
    current = backend.read_reference(key)
    for _ in range(_TRIES):
        if current is None or current.closed:
            return current
        closing = current.closing()
        try:
            refused = backend.replace_reference(closing, expected=current)
        except CommitOutcomeUnknown:
            current = backend.read_reference(key)
            continue
        if refused is None:
            # Read again for the changes that started to wait meanwhile; none can afterwards.
            return backend.read_reference(key)
        current = refused.stored
    raise CommitContended(f"other processes changed reference {key.name!r} during every attempt to close it. Try again")


class StoreRemoval:
    """All objects that a closed reference leads to: its heads, the log before them, waiting changes, and all their
    links.

    An object's level follows that of the first object that led to it. `unproved` states why some objects may not have
    been found. Objects are read and deleted `page` at a time; their names are held in memory, about 200 bytes each.
    """

    def __init__(self, store: CatalogStore, closed: Reference, *, page: int) -> None:
        self.unproved: list[str] = []
        self._store = store
        self._closed = closed
        self._page = page
        self._seen: dict[str, set[int]] = {}
        self._levels: list[list[ObjectRef]] = []
        heads = [declared.name for declared in store.types if issubclass(declared.model, CommitObject)]
        self._commits = [*heads, OUTCOMES_TYPE.name, NAMES_TYPE.name]
        if closed.heads[1:2] == (CLOSED,):
            self.unproved.append("an earlier purge found that links do not lead to all objects")
        listed = [head for head in closed.heads if head != CLOSED]
        current = next(iter(listed), None)
        if current is None:
            self._find(self._waiting())
            return
        # Only the current head is in the first level: while it exists, anything else may exist.
        first = self._level([ObjectRef(kind, current) for kind in heads])
        self._find([*first, *self._of_commits(listed), *self._waiting()])
        if not self._levels[0] and self._levels[1:]:
            # Without any level, a former removal ended just before it deleted the reference itself.
            self.unproved.append(f"head {current} of reference {closed.key.name!r} is missing")

    def keep_unproved(self) -> None:
        """Close the reference once more, so that a repeated purge knows that links do not lead to all objects."""
        current: Reference | None = self._closed
        for _ in range(_TRIES):
            if current is None or current.heads[1:2] == (CLOSED,):
                return
            try:
                refused = self._store.backend.replace_reference(current.closing(), expected=current)
            except CommitOutcomeUnknown:
                current = self._store.backend.read_reference(current.key)
                continue
            if refused is None:
                return
            current = refused.stored
        raise CommitContended(
            f"other processes changed reference {self._closed.key.name!r} during every attempt. Try again"
        )

    def refs(self, type_: str) -> list[ObjectRef]:
        return [ref for level in self._levels for ref in level if ref.type == type_]

    def delete(self) -> int:
        """Delete the objects, then the reference; return how many objects were deleted. Raises BackendUnavailable."""
        for level in reversed(self._levels):
            for some in batched(level, self._page):
                self._store.delete(some)
        self._store.backend.delete_reference(self._closed.key)
        return sum(map(len, self._levels))

    def _find(self, level: Iterable[ObjectRef]) -> None:
        while level := self._level(level):
            pass

    def _level(self, named: Iterable[ObjectRef]) -> list[ObjectRef]:
        """Make a level of the new and stored ones among these; return what they name. Objects with links are read."""
        level: list[ObjectRef] = []
        read: list[ObjectRef] = []
        for ref in named:
            if self._is_new(ref):
                (read if self._is_read(ref) else level).append(ref)
        follow: list[ObjectRef] = []
        for some in batched(read, self._page):
            for ref, found in zip(some, self._store.fetch_readable(some), strict=True):
                if isinstance(found, CorruptObject):
                    level.append(ref)
                    self.unproved.append(str(found))
                elif found is not None:
                    level.append(found.ref)
                    follow += self._named_by(found)
                elif ref.parts > 1:
                    # A former removal may have ended between its rows.
                    level.append(ref)
        if level or not self._levels:
            self._levels.append(level)
        return follow

    def _is_new(self, ref: ObjectRef) -> bool:
        seen = self._seen.setdefault(ref.type, set())
        known = ref.id in seen
        seen.add(ref.id)
        return not known

    def _is_read(self, ref: ObjectRef) -> bool:
        if ref.type in self._commits or ref.type == WAITING_TYPE.name:
            return True
        declared = self._store.types.get(ref.type)
        if declared is None:
            self.unproved.append(f"type {ref.type!r} is not declared, so its links are unknown")
        return declared is not None and follows_links(declared)

    def _named_by(self, found: Loaded[PersistedModel]) -> Iterator[ObjectRef]:
        value = found.value
        if (unknown := unknown_field(value)) is not None:
            self.unproved.append(f"{found.key} has field {unknown!r} of a newer release")
        if isinstance(value, CommitObject):
            yield from self._of_commits(value.tail)
        elif isinstance(value, CombinedOutcomes):
            yield from (ObjectRef(WAITING_TYPE.name, outcome.id) for outcome in value.outcomes)
        elif isinstance(value, WaitingChange):
            yield from objects_of(value)
        declared = self._store.types.get(found.key.type)
        try:
            yield from declared.links(value, self._store.fetch_many) if declared else ()
        except CorruptObject as error:
            self.unproved.append(f"{found.key}: {error}")

    def _of_commits(self, heads: Iterable[int]) -> Iterator[ObjectRef]:
        """Return what may be stored under the ids of heads."""
        return (ObjectRef(kind, id_) for id_ in heads for kind in self._commits)

    def _waiting(self) -> list[ObjectRef]:
        return [ObjectRef(WAITING_TYPE.name, id_) for id_ in self._closed.waiting]


def batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Return the items in lists of `size`; the last list has the rest."""
    rest = iter(items)
    return iter(lambda: list(itertools.islice(rest, size)), [])
