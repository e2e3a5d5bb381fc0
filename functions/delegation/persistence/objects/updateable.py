"""Objects that are updated in place under a version token (proposal, Special case: consistent, updateable objects)."""

import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from delegation.persistence.backends.base import Backend, Locator, ObjectKey, Refused, StoredObject
from delegation.persistence.errors import CommitOutcomeUnknown, StaleObject
from delegation.persistence.objects.objects import Loaded, M, encode
from delegation.persistence.objects.types import ObjectTypes

_TRIES: Final = 5


def random_token() -> str:
    """A version token that was never used before."""
    return secrets.token_hex(8)


@dataclass(frozen=True)
class Updateables:
    """Read, insert, replace and delete updateable objects, each change on the version that was read.

    A write without a clear answer is resolved by reading: each write has a token of its own. Methods raise StaleObject
    when the object is at another version, CommitOutcomeUnknown when another write came after one whose answer was lost,
    and BackendUnavailable. `changed` is called with the key of every write that may have been applied, so that a cache
    can drop it.
    """

    backend: Backend
    types: ObjectTypes
    now_us: Callable[[], int]
    new_token: Callable[[], str] = random_token
    changed: Callable[[ObjectKey], object] = lambda _key: None

    def read(self, key: ObjectKey, model: type[M]) -> Loaded[M] | None:
        """The object as of now; None if there is none."""
        return self.read_many([key], model).get(key)

    def read_many(self, keys: Iterable[ObjectKey], model: type[M]) -> dict[ObjectKey, Loaded[M]]:
        """The objects of one type that exist, as of now."""
        keys = list(keys)
        for key in keys:
            self._check(key, model)
        stored = self.backend.fetch_many(Locator(key) for key in keys)
        return {key: self._loaded(one, model) for key, one in stored.items()}

    def insert(self, key: ObjectKey, value: M) -> Loaded[M]:
        """Create the object; StaleObject if there is one."""
        self._check(key, type(value))
        new = StoredObject(key, encode(value), self.now_us(), self.new_token())
        self._write(lambda: self.backend.insert(new), new)
        return self._loaded(new, type(value))

    def update(self, read: Loaded[M], value: M) -> Loaded[M]:
        """Replace what was read; `created_at` stays."""
        new = StoredObject(read.key, encode(value), read.created_at, self.new_token())
        expected = _token(read)
        self._write(lambda: self.backend.update(new, expected=expected), new)
        return self._loaded(new, type(value))

    def delete(self, read: Loaded[M]) -> None:
        """Remove what was read."""
        try:
            self._delete(read.key, _token(read))
        finally:
            self.changed(read.key)

    def _delete(self, key: ObjectKey, expected: str) -> None:
        for _ in range(_TRIES):
            try:
                refused = self.backend.delete(key, expected=expected)
            except CommitOutcomeUnknown:
                stored = self.backend.fetch_many([Locator(key)]).get(key)
                if stored is None:
                    return
                if stored.token != expected:
                    raise
            else:
                if refused:
                    raise StaleObject(f"{key} changed")
                return
        raise CommitOutcomeUnknown(f"{key} may have been deleted")

    def _write(self, write: Callable[[], Refused[StoredObject] | None], new: StoredObject) -> None:
        try:
            self._try(write, new)
        finally:
            self.changed(new.key)

    def _try(self, write: Callable[[], Refused[StoredObject] | None], new: StoredObject) -> None:
        unclear = False
        for _ in range(_TRIES):
            try:
                refused = write()
            except CommitOutcomeUnknown:
                unclear = True
                stored = self.backend.fetch_many([Locator(new.key)]).get(new.key)
                token = stored.token if stored else None
                if token == new.token:
                    return
                # The same write again: only one of the two finds its condition true, none if somebody else wrote.
                continue
            if refused is None or (unclear and refused.stored and refused.stored.token == new.token):
                return
            if unclear:
                break
            raise StaleObject(f"{new.key} is at another version")
        raise CommitOutcomeUnknown(f"{new.key} may have been written")

    def _check(self, key: ObjectKey, model: type[M]) -> None:
        declared = self.types.of(model)
        if declared.name != key.type or not declared.mutable:
            raise ValueError(f"{key} is no updateable object of {model.__name__}")

    def _loaded(self, stored: StoredObject, model: type[M]) -> Loaded[M]:
        value = self.types.decode(stored)
        if not isinstance(value, model):
            raise TypeError(f"{stored.key} holds a {type(value).__name__}")
        return Loaded(stored.key, value, stored.created_at, len(stored.value), stored.token)


def _token(read: Loaded[M]) -> str:
    if read.token is None:
        raise ValueError(f"{read.key} is immutable")
    return read.token
