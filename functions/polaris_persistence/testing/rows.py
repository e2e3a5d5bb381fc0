"""Objects and references to store in a backend, and readers of what is stored."""

import itertools
import random
from collections.abc import Callable
from typing import Any, Final

from polaris_persistence.backends.base import (
    Backend,
    Locator,
    ObjectKey,
    Reference,
    ReferenceKey,
    Refused,
    StoredObject,
    part_count,
)

Check = Callable[[Backend], None]
_ids: Final = itertools.count(1)


def obj(value: bytes = b"value", *, realm: str = "r", type_: str = "thing", token: str | None = None) -> StoredObject:
    return StoredObject(ObjectKey(realm, "c", type_, next(_ids)), value, 1_000_000, token)


def locator(stored: StoredObject) -> Locator:
    return Locator(stored.key, part_count(len(stored.value)))


def ref(*heads: int, realm: str = "r", name: str = "main") -> Reference:
    return Reference(ReferenceKey(realm, "c", name), heads, 1_000_000)


def all_rows(backend: Backend, *, realm: str | None = None, limit: int = 7) -> list[Any]:
    rows: list[Any] = []
    after = None
    while True:
        page = backend.scan(realm=realm, after=after, limit=limit)
        rows += page.rows
        after = page.after
        if after is None:
            return rows


def huge(bytes_: int, **more: str) -> StoredObject:
    return obj(random.Random(bytes_).randbytes(bytes_), **more)


def stored_reference(backend: Backend, key: ReferenceKey) -> Reference:
    found = backend.read_reference(key)
    assert found is not None
    return found


def shown(refused: Refused[Reference] | None) -> Reference:
    assert refused is not None
    assert refused.stored is not None
    return refused.stored
