"""The objects and references of one catalog, typed and cached."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Generic, NamedTuple

from polaris_persistence.backends.base import (
    Backend,
    Locator,
    ObjectCopy,
    ObjectKey,
    Reference,
    ReferenceKey,
    StoredObject,
)
from polaris_persistence.errors import CommitOutcomeUnknown, CorruptObject, ReferenceExists, ReferenceNotFound
from polaris_persistence.objects.cache import Cache, CacheEntry
from polaris_persistence.objects.objects import Loaded, M, ObjectRef, PersistedModel, encode
from polaris_persistence.objects.types import ObjectTypes
from polaris_persistence.objects.updateable import Updateables

CacheKey = ObjectKey | ReferenceKey
_TRIES: Final = 5


class Prepared(NamedTuple, Generic[M]):
    """A new immutable object that is not written yet, and its stored form."""

    loaded: Loaded[M]
    stored: StoredObject


class CatalogStore:
    """Objects and references of one catalog; the cache may be shared with other catalogs.

    `new_id` returns a new object id, `now_us` the wall clock in µs since 1970; `clock` counts seconds and never goes
    back, also for the committers on this store. References, and their absence, are cached for `references_cached_for`
    seconds, by default not at all. `unreadable` is called for each waiting change of a reference that does not decode,
    `expect_ids` when ids will be needed after some reads.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        realm: str,
        catalog: str,
        types: ObjectTypes,
        cache: Cache[CacheKey, Any],
        new_id: Callable[[], int],
        now_us: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
        references_cached_for: float = 0,
        unreadable: Callable[[ReferenceKey], object] = lambda _reference: None,
        expect_ids: Callable[[], object] = lambda: None,
    ) -> None:
        self.backend = backend
        self.expect_ids = expect_ids
        self.unreadable = unreadable
        self.realm = realm
        self.catalog = catalog
        self.types = types
        self.new_id = new_id
        self.now_us = now_us
        self.clock = clock
        self.updateables = Updateables(backend, types, now_us, changed=cache.remove)
        self._cache = cache
        self._references_cached_for = references_cached_for

    def fetch(self, ref: ObjectRef, model: type[M]) -> Loaded[M] | None:
        """Return one object, None if it is absent. Raises CorruptObject; TypeError if it is no `model`."""
        [found] = self.fetch_many([ref])
        return of_model(found, model) if found else None

    def fetch_many(self, refs: Iterable[ObjectRef]) -> list[Loaded[PersistedModel] | None]:
        """Return objects in the order of `refs`, None for absent ones. Raises CorruptObject."""
        found: list[Loaded[PersistedModel] | None] = []
        for loaded in self.fetch_readable(refs):
            if isinstance(loaded, CorruptObject):
                raise loaded
            found.append(loaded)
        return found

    def fetch_readable(self, refs: Iterable[ObjectRef]) -> list[Loaded[PersistedModel] | CorruptObject | None]:
        """Return objects in the order of `refs`, None for absent ones, the error for those that do not decode."""
        wanted = [ref.locator(self.realm, self.catalog) for ref in refs]
        by_key: dict[CacheKey, Locator] = {locator.key: locator for locator in wanted}
        found = self._cache.get_many(by_key, lambda keys: self._load([by_key[key] for key in keys]))
        return [found[locator.key] for locator in wanted]

    def fetch_head(self, type_: str, reference: Reference, model: type[M]) -> Loaded[M] | None:
        """Return the head of a reference, from the cache or from the copy in the reference if there is one."""
        if reference.head is None:
            return None
        ref, copy = ObjectRef(type_, reference.head), reference.copy
        if copy is None:
            return self.fetch(ref, model)
        stored = StoredObject(self.key(ref), copy.value, copy.created_at)

        def load(_keys: list[CacheKey]) -> dict[CacheKey, CacheEntry[Any]]:
            value = self.types.decode(stored)
            loaded = Loaded(stored.key, value, stored.created_at, len(stored.value))
            return {stored.key: CacheEntry(loaded, value.held_bytes())}

        found = self._cache.get_many([stored.key], load)[stored.key]
        return of_model(found, model) if found else None

    def key(self, ref: ObjectRef) -> ObjectKey:
        return ObjectKey(self.realm, self.catalog, ref.type, ref.id)

    def prepare(self, value: M, id_: int | None = None) -> "Prepared[M]":
        """Return a new immutable object without writing it."""
        declared = self.types.of(type(value))
        if declared.mutable:
            raise ValueError(f"objects of type {declared.name!r} are updateable. Write them with `updateables`")
        key = ObjectKey(self.realm, self.catalog, declared.name, self.new_id() if id_ is None else id_)
        stored = StoredObject(key, encode(value), self.now_us())
        return Prepared(Loaded(key, value, stored.created_at, len(stored.value)), stored)

    def write(self, values: Iterable[PersistedModel]) -> list[ObjectRef]:
        """Write new immutable objects, each under a new id, and return their refs."""
        prepared = [self.prepare(value) for value in values]
        self.backend.put_many(stored for _, stored in prepared)
        self.remember(loaded for loaded, _ in prepared)
        return [loaded.ref for loaded, _ in prepared]

    def remember(self, written: Iterable[Loaded[Any]]) -> None:
        """Put immutable objects that were just written into the cache."""
        for loaded in written:
            self._cache.put(loaded.key, CacheEntry(loaded, loaded.value.held_bytes()))

    def delete(self, refs: Sequence[ObjectRef]) -> None:
        """Delete immutable objects that nothing refers to."""
        self.backend.delete_many(ref.locator(self.realm, self.catalog) for ref in refs)
        for ref in refs:
            self._cache.remove(self.key(ref))

    def reference_key(self, name: str) -> ReferenceKey:
        return ReferenceKey(self.realm, self.catalog, name)

    def reference(self, name: str) -> Reference:
        """Return a reference, possibly a cached one. Raises ReferenceNotFound."""
        key = self.reference_key(name)

        def load(_keys: list[CacheKey]) -> dict[CacheKey, CacheEntry[Any]]:
            stored = self._open_reference(key)
            # The absence of a reference too (NoSQL persistence proposal, Object Types: negative caching).
            return {key: CacheEntry(stored, _weight(stored) if stored else 0, self._references_cached_for)}

        found: Reference | None = self._cache.get_many([key], load)[key]
        if found is None:
            raise ReferenceNotFound(f"catalog {self.catalog!r} has no reference {name!r}")
        return found

    def current_reference(self, name: str) -> Reference:
        """Return a reference as it is stored now. Raises ReferenceNotFound."""
        read_at = self._cache.now()
        found = self._open_reference(self.reference_key(name))
        if found is None:
            raise ReferenceNotFound(f"catalog {self.catalog!r} has no reference {name!r}")
        self.remember_reference(found, read_at=read_at)
        self._remember_copies(found.copies)
        return found

    def remember_reference(self, reference: Reference, *, read_at: float | None = None) -> None:
        """Cache a reference that was just read or moved, if references are cached; a newer one stays.

        `read_at` is the time of the cache before it was read.
        """
        entry = CacheEntry(reference, _weight(reference), self._references_cached_for)
        self._cache.put(reference.key, entry, unless=reference.is_older_than, read_at=read_at)

    def _open_reference(self, key: ReferenceKey) -> Reference | None:
        """Return a reference, None for one that is being removed."""
        found = self.backend.read_reference(key)
        return None if found is not None and found.closed else found

    def _remember_copies(self, copies: Iterable[ObjectCopy]) -> None:
        """Put the objects that a reference repeats into the cache, as if they had been read."""
        by_key = {self.key(ObjectRef(copy.type, copy.id)): copy for copy in copies}

        def load(keys: list[CacheKey]) -> dict[CacheKey, CacheEntry[Any]]:
            stored = [StoredObject(key, by_key[key].value, by_key[key].created_at) for key in by_key if key in keys]
            return {stored_object.key: self._entry(stored_object) for stored_object in stored}

        if by_key:
            self._cache.get_many(by_key, load)

    def create_reference(self, name: str, head: int | None = None) -> Reference:
        """Create a reference. Raises ReferenceExists, CommitOutcomeUnknown."""
        new = Reference(self.reference_key(name), () if head is None else (head,), self.now_us())
        self._cache.remove(new.key)
        unclear = False
        for _ in range(_TRIES):
            try:
                refused = self.backend.create_reference(new)
            except CommitOutcomeUnknown:
                unclear = True
                continue  # repeat the call: it finds what the first one wrote, or writes it
            stored = (refused and refused.stored) or new
            # `created_at` never changes, so it identifies who created the reference when the answer was lost.
            if refused and (not unclear or stored.created_at != new.created_at):
                self._cache.remove(new.key)
                raise ReferenceExists(f"catalog {self.catalog!r} already has a reference {name!r}")
            self.remember_reference(stored)
            return stored
        raise CommitOutcomeUnknown(f"reference {name!r} may have been created. Read it before you try again")

    def references(self) -> Iterator[Reference]:
        return (found for found in self.backend.references(realm=self.realm) if found.key.catalog == self.catalog)

    def _load(self, locators: list[Locator]) -> dict[CacheKey, CacheEntry[Any]]:
        types = {locator.key: self.types.get(locator.key.type) for locator in locators}
        immutable = all(declared is not None and not declared.mutable for declared in types.values())
        try:
            stored = self.backend.fetch_many(locators, consistent=not immutable)
        except CorruptObject as error:
            if len(locators) == 1:
                return {locators[0].key: CacheEntry(error, keep_for=0)}
            return {key: entry for locator in locators for key, entry in self._load([locator]).items()}
        entries: dict[CacheKey, CacheEntry[Any]] = {}
        for key, declared in types.items():
            found = stored.get(key)
            if found is None:
                entries[key] = CacheEntry(None, keep_for=(declared and declared.absent_expires_after) or 0)
                continue
            entries[key] = self._entry(found)
        return entries

    def _entry(self, stored: StoredObject) -> CacheEntry[Any]:
        try:
            value = self.types.decode(stored)
        except CorruptObject as error:
            # In its place, so that the other objects of the batch can be used; never cached.
            return CacheEntry(error, keep_for=0)
        # An object of an unknown type may be updateable, so it is not cached.
        declared = self.types.get(stored.key.type)
        loaded = Loaded(stored.key, value, stored.created_at, len(stored.value), stored.token)
        return CacheEntry(loaded, value.held_bytes(), declared.cached_for(value) if declared else 0)


def _weight(stored: Reference) -> int:
    """Return about how many bytes a reference takes in memory: its ids, 36 each, and the copy of its head."""
    copied = sum(len(each.value) + 36 for each in stored.copies)
    return (len(stored.heads) + len(stored.waiting)) * 36 + (len(stored.copy.value) if stored.copy else 0) + copied


def of_model(found: Loaded[PersistedModel], model: type[M]) -> Loaded[M]:
    """Return the object with the type `model`. Raises TypeError if it holds another."""
    if not isinstance(found.value, model):
        raise TypeError(f"{found.key} holds a {type(found.value).__name__}, not a {model.__name__}")
    return Loaded(found.key, found.value, found.created_at, found.size, found.token)
