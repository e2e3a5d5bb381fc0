"""Safeguards of removals that a run of histories can be without, so that it shows that it would notice."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, Final
from unittest.mock import patch

from delegation.removal.foreign.tables import FoundForeign, OwnTable
from delegation.removal.orphans import needed_files, run
from delegation.removal.orphans.needed_files import NeededAtLocation
from delegation.storage.listing.model import ListedObject, UnchangedResult
from delegation.storage.memory import MemoryObjectStore
from tests.kit.stories.orphans import Passes


def _delete(store: MemoryObjectStore, bucket: str, listed: Sequence[ListedObject]) -> UnchangedResult:
    """Delete objects that were written again since they were listed."""
    return UnchangedResult(store.delete(bucket, [one.key for one in listed]))


def _without_own_history() -> AbstractContextManager[object]:
    """Take the table's own former metadata files for those of another one."""
    find = needed_files.find_foreign

    def found(root: str, seen: Any, own: OwnTable, *more: Any, **named: Any) -> FoundForeign:
        return find(root, seen, replace(own, known=frozenset()), *more, **named)

    return patch.object(needed_files, "find_foreign", found)


def _nothing(*_: Any) -> None:
    return None


MUTATIONS: Final[Mapping[str, Callable[[], AbstractContextManager[object]]]] = {
    "none": nullcontext,
    # Every removal uses the references as of the first pass.
    "later": lambda: patch.object(Passes, "renew", _nothing),
    "conditions": lambda: patch.object(MemoryObjectStore, "delete_unchanged", _delete),
    "others": lambda: patch.object(NeededAtLocation, "add_neighbours", _nothing),
    "unlisted": lambda: patch.object(NeededAtLocation, "add_foreign", _nothing),
    # Unlisted tables are looked for by the first listing alone.
    "relisted": lambda: patch.object(run, "signs_now", lambda _ctx, _root, signs: list(signs)),
    "ages": lambda: patch.object(NeededAtLocation, "_lengthen", _nothing),
    "history": _without_own_history,
}
