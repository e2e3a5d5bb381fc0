"""Safeguards of removals that a run of histories can be without, so that it shows that it would notice."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any, Final
from unittest.mock import patch

from delegation.removal.foreign.metadata import SeenFile
from delegation.removal.foreign.tables import FoundForeign, OwnTable
from delegation.removal.orphans import needed_files
from delegation.removal.orphans.context import OrphanContext
from delegation.removal.orphans.needed_files import NeededAtLocation
from delegation.storage.listing.model import ListedObject, UnchangedResult
from delegation.storage.locations import Root
from delegation.storage.memory import MemoryObjectStore
from tests.kit.stories.orphans import Passes


@contextmanager
def _without_a_later_pass() -> Iterator[None]:
    """Let every removal use the references as of the first pass."""
    with patch.object(Passes, "renew", lambda _self: None):
        yield


@contextmanager
def _without_conditions() -> Iterator[None]:
    """Delete objects that were written again since they were listed."""

    def delete(store: MemoryObjectStore, bucket: str, listed: Sequence[ListedObject]) -> UnchangedResult:
        return UnchangedResult(store.delete(bucket, [one.key for one in listed]))

    with patch.object(MemoryObjectStore, "delete_unchanged", delete):
        yield


@contextmanager
def _without_others() -> Iterator[None]:
    """Look at no other table."""

    def nothing(_self: NeededAtLocation, *_: Any) -> None:
        return None

    with patch.object(NeededAtLocation, "add_neighbours", nothing):
        yield


@contextmanager
def _without_unlisted() -> Iterator[None]:
    """Look for no tables that no catalog lists."""

    def nothing(_self: NeededAtLocation, *_: Any) -> None:
        return None

    with patch.object(NeededAtLocation, "add_foreign", nothing):
        yield


@contextmanager
def _without_a_second_listing() -> Iterator[None]:
    """Look for such tables by the first listing alone."""

    def stored(_ctx: OrphanContext, _root: Root, signs: Iterable[SeenFile]) -> list[SeenFile]:
        return list(signs)

    with patch("delegation.removal.orphans.run.signs_now", stored):
        yield


@contextmanager
def _without_ages() -> Iterator[None]:
    """Let each removal decide how old files are."""

    def nothing(_self: NeededAtLocation, *_: Any) -> None:
        return None

    with patch.object(NeededAtLocation, "_lengthen", nothing):
        yield


@contextmanager
def _without_own_history() -> Iterator[None]:
    """Take the table's own former metadata files for those of another one."""
    find = needed_files.find_foreign

    def found(root: str, seen: Any, own: OwnTable, *more: Any, **named: Any) -> FoundForeign:
        return find(root, seen, replace(own, known=frozenset()), *more, **named)

    with patch.object(needed_files, "find_foreign", found):
        yield


MUTATIONS: Final[Mapping[str, Callable[[], AbstractContextManager[None]]]] = {
    "none": nullcontext,
    "later": _without_a_later_pass,
    "conditions": _without_conditions,
    "others": _without_others,
    "unlisted": _without_unlisted,
    "relisted": _without_a_second_listing,
    "ages": _without_ages,
    "history": _without_own_history,
}
