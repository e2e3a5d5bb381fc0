"""Objects updated in place under a version token (NoSQL persistence proposal, Special case: updateable objects)."""

import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from polaris_persistence.backends.base import Backend, Locator, ObjectKey, Refused, StoredObject
from polaris_persistence.errors import CommitOutcomeUnknown, StaleObject
from polaris_persistence.objects.objects import Loaded, M, encode
from polaris_persistence.objects.types import ObjectTypes

_TRIES: Final = 5


@dataclass(frozen=True)
class Updateables:
    """Read, insert, replace and delete updateable objects, each change on the version that was read.

    A write without a clear answer is reconciled by its unique token. Methods raise StaleObject if the object is at
    another version, CommitOutcomeUnknown if another write followed one whose answer was lost, and BackendUnavailable.
    `changed` is called with the key of every write that may have been applied.
    """

    backend: Backend
    types: ObjectTypes
    now_us: Callable[[], int]
    changed: Callable[[ObjectKey], object] = lambda _key: None

    def read(self, key: ObjectKey, model: type[M]) -> Loaded[M] | None:
        """Return the object as it is stored now, None if it is absent."""
        return self.read_many([key], model).get(key)

    def read_many(self, keys: Iterable[ObjectKey], model: type[M]) -> dict[ObjectKey, Loaded[M]]:
        """Return the existing objects of one type, as they are stored now."""
        keys = list(keys)
        for key in keys:
            self._check(key, model)
        stored = self.backend.fetch_many(Locator(key) for key in keys)
        return {key: self._loaded(stored_object, model) for key, stored_object in stored.items()}

    def insert(self, key: ObjectKey, value: M) -> Loaded[M]:
        """Create the object. Raises StaleObject if it exists."""
        self._check(key, type(value))
        new = StoredObject(key, encode(value), self.now_us(), secrets.token_hex(8))
        self._write(key, lambda: self.backend.insert(new), _has_token(new))
        return self._loaded(new, type(value))

    def update(self, read: Loaded[M], value: M) -> Loaded[M]:
        """Replace the object that was read; `created_at` is kept."""
        new = StoredObject(read.key, encode(value), read.created_at, secrets.token_hex(8))
        expected = _token(read)
        self._write(read.key, lambda: self.backend.update(new, expected=expected), _has_token(new))
        return self._loaded(new, type(value))

    def delete(self, read: Loaded[M]) -> None:
        expected = _token(read)
        self._write(read.key, lambda: self.backend.delete(read.key, expected=expected), lambda stored: stored is None)

    def _write(
        self,
        key: ObjectKey,
        write: Callable[[], Refused[StoredObject] | None],
        applied: Callable[[StoredObject | None], bool],
    ) -> None:
        """Repeat a write until its outcome is known; `applied` decides from what is stored after an unclear answer."""
        unclear = False
        try:
            for _ in range(_TRIES):
                try:
                    refused = write()
                except CommitOutcomeUnknown:
                    unclear = True
                    if applied(self.backend.fetch_many([Locator(key)]).get(key)):
                        return
                    # Repeat the write: at most one of the two finds its condition true.
                    continue
                if refused is None or (unclear and applied(refused.stored)):
                    return
                if not unclear:
                    raise StaleObject(f"{key} changed after it was read. Read it again")
                break
            raise CommitOutcomeUnknown(f"{key} may have been written. Read it before you try again")
        finally:
            self.changed(key)

    def _check(self, key: ObjectKey, model: type[M]) -> None:
        declared = self.types.of(model)
        if declared.name != key.type or not declared.mutable:
            raise ValueError(f"{key} is not the key of an updateable {model.__name__}")

    def _loaded(self, stored: StoredObject, model: type[M]) -> Loaded[M]:
        value = self.types.decode(stored)
        if not isinstance(value, model):
            raise TypeError(f"{stored.key} holds a {type(value).__name__}, not a {model.__name__}")
        return Loaded(stored.key, value, stored.created_at, len(stored.value), stored.token)


def _token(read: Loaded[M]) -> str:
    if read.token is None:
        raise ValueError(f"{read.key} is immutable. Only updateable objects can be changed")
    return read.token


def _has_token(new: StoredObject) -> Callable[[StoredObject | None], bool]:
    return lambda stored: stored is not None and stored.token == new.token
