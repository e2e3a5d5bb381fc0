"""Safeguards of removals that a run of histories can be without, so that it shows that it would notice."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final
from unittest.mock import patch

from delegation.operations.orphans.planning.keep import KeepSet
from delegation.storage.listing.model import ListedObject, UnchangedResult
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

    def nothing(_self: KeepSet, *_: Any) -> None:
        return None

    with patch.object(KeepSet, "add_others", nothing):
        yield


MUTATIONS: Final[Mapping[str, Callable[[], AbstractContextManager[None]]]] = {
    "none": nullcontext,
    "later": _without_a_later_pass,
    "conditions": _without_conditions,
    "others": _without_others,
}
