"""What realms and catalogs are called in keys, remembered for a while, absent names too (NoSQL persistence proposal,
Object Types: negative caching)."""

import time
from collections.abc import Callable
from typing import Final, NamedTuple

from polaris_persistence.errors import EntityNotFound
from polaris_persistence.objects.cache import Cache, CacheEntry

_CAPACITY: Final = 2**20


class Spaces(NamedTuple):
    """What a realm and one of its catalogs are called in keys."""

    realm: str
    catalog: str


class NameCache:
    """The spaces of catalogs by name for `cached_for` seconds, 0 for not at all.

    An old answer is safe: a space is never used again, and the references of a dropped catalog are deleted, so commits
    and reads of its head raise ReferenceNotFound. A realm that another process made inactive may be opened that long.
    """

    def __init__(self, cached_for: float = 0, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._cached_for = cached_for
        self._clock = clock
        self.clear()

    def clear(self) -> None:
        """Forget all names, because this process changed one."""
        self._kept: Cache[tuple[str, str], Spaces | str] = Cache(_CAPACITY, clock=self._clock)

    def spaces(self, realm: str, catalog: str, look_up: Callable[[], Spaces]) -> Spaces:
        """Return the spaces of a catalog, from `look_up` unless they are known.

        Raises EntityNotFound, also a remembered one, and what else `look_up` raises.
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
