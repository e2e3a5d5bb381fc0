"""Check the paths of a plan again before they are deleted."""

from delegation.storage.locations import Roots, canonical_all
from delegation.worksets.errors import PlanTampered
from delegation.worksets.index import PlanIndex


class PlanGuard:
    """Checks paths against the limits in the plan's index, so that no fault deletes another table's file."""

    def __init__(self, index: PlanIndex) -> None:
        self._roots = Roots((*index.roots, *index.taken))
        self._covered = None if index.covered is None else Roots(index.covered)
        self._anywhere = index.outside == "delete"
        # The directory markers of the locations have exactly these keys.
        self._own = frozenset(index.roots)

    def check_all(self, paths: list[str], chunk: str) -> None:
        """Raise PlanTampered, AmbiguousPath or UnsupportedLocation if a path may not be deleted."""
        if canonical_all(paths) != paths:
            raise PlanTampered(chunk, "it has a path that is not canonical")
        first, last = min(paths), max(paths)
        anywhere = self._anywhere or self._roots.contain_range(first, last)
        if not anywhere or not (self._covered is None or self._covered.contain_range(first, last)):
            for path in paths:
                self._check(path, chunk)

    def _check(self, path: str, chunk: str) -> None:
        if not (self._anywhere or self._roots.contains(path) or path in self._own):
            raise PlanTampered(chunk, "it has a path outside the table's locations")
        if self._covered is not None and not (self._covered.contains(path) or path in self._covered.uris):
            raise PlanTampered(chunk, "it has a path that the credentials did not cover")
