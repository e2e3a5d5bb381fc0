"""The names of realms and catalogs in keys, cached, absent ones too (NoSQL persistence proposal, Object Types)."""

import time
from collections.abc import Callable
from typing import Final, NamedTuple

from polaris_persistence.errors import EntityNotFound
from polaris_persistence.objects.cache import Cache, CacheEntry

_CAPACITY: Final = 2**20


class Spaces(NamedTuple):
    """The names in keys of a realm and one of its catalogs."""

    realm: str
    catalog: str


class NameCache:
    """The spaces of catalogs by name for `cached_for` seconds; 0 turns the cache off.

    An old answer is safe: a space is never used again, and the references of a dropped catalog are deleted, so commits
    and reads of its head raise ReferenceNotFound. A realm that another process made inactive may be opened for that
    long.
    """

    def __init__(self, cached_for: float = 0, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._cached_for = cached_for
        self._clock = clock
        self.clear()

    def clear(self) -> None:
        """Forget all names, because this process changed one."""
        self._kept: Cache[tuple[str, str], Spaces | str] = Cache(_CAPACITY, clock=self._clock)

    def spaces(self, realm: str, catalog: str, look_up: Callable[[], Spaces]) -> Spaces:
        """Return the spaces of a catalog, from `look_up` unless they are cached.

        Raises EntityNotFound, also a cached one, and what else `look_up` raises.
        """

        def load(_keys: list[tuple[str, str]]) -> dict[tuple[str, str], CacheEntry[Spaces | str]]:
            found: Spaces | str
            try:
                found = look_up()
            except EntityNotFound as absent:
                found = str(absent)
            return {(realm, catalog): CacheEntry(found, len(realm) + len(catalog) + 200, self._cached_for)}

        found = self._kept.get_many([(realm, catalog)], load)[realm, catalog]
        if not isinstance(found, Spaces):
            raise EntityNotFound(found or f"there is no catalog {catalog!r}")
        return found
