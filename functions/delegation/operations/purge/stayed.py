"""What is left at a table's location after its purge: a bounded count for the receipt, which never fails a purge."""

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from delegation.storage.locations import LOCAL, Root
from polaris_common.errors import DelegationError

if TYPE_CHECKING:
    from delegation.storage.listing.model import ListableStore

PAGES: Final = 3
"""Requests of a count at most, for 1,000 objects each: nobody waits long for the count at a wide location."""


@dataclass(frozen=True, slots=True)
class Stayed:
    """How many objects a location has, and their bytes; `is_whole` is False if there may be more.

    `problem` is the code of the error for which nothing is known.
    """

    location: str
    objects: int = 0
    size: int = 0
    is_whole: bool = True
    problem: str | None = None

    def recorded(self) -> dict[str, Any]:
        """Return what the receipt has: the figures, and if there is something, a command that shows it."""
        if self.problem is not None:
            return {"location": self.location, "problem": self.problem}
        figures = {"objects": self.objects, "bytes": self.size, "is_whole": self.is_whole}
        return {"location": self.location, **figures, **({"command": self._command()} if self.objects else {})}

    def _command(self) -> str:
        # No command of this service lists the location of a table that the catalog does not have any more.
        if self.location.startswith(LOCAL):
            return f"find {shlex.quote(self.location.removeprefix('file://'))} -type f"
        return f"aws s3 ls --recursive --summarize {shlex.quote(self.location)}"


def count_stayed(store: "ListableStore", root: Root) -> Stayed:
    """Count the objects at a location, of whichever table or job; at most PAGES requests, the first failed one last."""
    objects, size, after = 0, 0, ""
    prefix = f"{root.prefix}/" if root.prefix else ""
    for _ in range(PAGES):
        try:
            page = store.page(root.bucket, prefix, after=after)
        except DelegationError as error:
            # All is deleted. What hinders the count, such as credentials that may not list, is no fault of the purge.
            return Stayed(root.uri, problem=error.code)
        objects += len(page.objects)
        size += sum(one.size for one in page.objects)
        if page.is_last or not page.objects:
            return Stayed(root.uri, objects, size)
        after = page.objects[-1].key
    return Stayed(root.uri, objects, size, is_whole=False)
