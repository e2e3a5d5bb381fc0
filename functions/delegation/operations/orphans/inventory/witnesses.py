"""Objects that a report must have if it is of the table's location, and the store's time.

No manifest states which prefix a report is of, so one of another prefix would look like a location without orphan
files. A few requests list objects that were there long before the report: one that it lacks refuses it.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeVar

from delegation.operations.orphans.context import OrphanContext
from delegation.storage.listing.model import ListedObject, check_clock
from delegation.storage.locations import Root

T = TypeVar("T")

_FOLDERS: Final = 32
_OF_A_PAGE: Final = 64


class LocationLook(NamedTuple):
    """The store's time in seconds since 1970, and objects at a location."""

    now: int
    objects: tuple[ListedObject, ...]

    def older_than(self, at: int) -> frozenset[str]:
        """Return the keys of those that were written before a time, a few of each folder."""
        return frozenset(one.key for one in self.objects if one.modified < at)


def look_at(ctx: OrphanContext, root: Root) -> LocationLook:
    """List a part of a location with at most 33 requests; raise the errors of the store."""
    first = ctx.store.folder(root.bucket, f"{root.prefix}/")
    check_clock(root.bucket, first, ctx.clock())
    found = [*_some(first.objects, _OF_A_PAGE)]
    for folder in _some(first.folders, _FOLDERS):
        ctx.attempt.checkpoint()
        found += _some(ctx.store.page(root.bucket, folder).objects, _OF_A_PAGE)
    return LocationLook(first.at, tuple(found))


def _some(all_of_them: Sequence[T], most: int) -> Iterable[T]:
    """Return some, evenly spread, the first and the last among them."""
    count = len(all_of_them)
    if count <= most:
        return all_of_them
    return [all_of_them[at * (count - 1) // (most - 1)] for at in range(most)]
