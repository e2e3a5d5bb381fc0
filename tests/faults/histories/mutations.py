"""Safeguards of the references that a run of histories can be without, so that it shows that it would notice."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final
from unittest.mock import patch

from delegation.references.names import PassNames
from delegation.references.owned_pass import OwnedPass
from delegation.references.sightings import Sightings
from delegation.removal.foreign.neighbours import ForeignNeighbours
from delegation.removal.indexed_neighbours import IndexedNeighbours


def _nothing(*_arguments: Any, **_more: Any) -> None:
    return None


@contextmanager
def _visits() -> Iterator[None]:
    """No name is loaded a second time, whatever traces tables left."""
    with patch.object(OwnedPass, "begin_again", _nothing), patch.object(PassNames, "disputed", lambda *_: iter(())):
        yield


@contextmanager
def _displaced() -> Iterator[None]:
    """Nothing of a table stays in the entry of a name that it had earlier in a pass."""
    with (
        patch.object(Sightings, "displaced_at", lambda *_: frozenset()),
        patch.object(Sightings, "may_have_moved", lambda *_: False),
    ):
        yield


@contextmanager
def _later() -> Iterator[None]:
    """A purge uses whatever pass is complete, and not one that began after its moment."""
    with patch.object(IndexedNeighbours, "ensure_known", _nothing):
        yield


@contextmanager
def _unlisted() -> Iterator[None]:
    """A purge lists nothing beside its table's metadata."""
    with patch.object(ForeignNeighbours, "heads", lambda *_: iter(())):
        yield


MUTATIONS: Final[dict[str, Callable[[], AbstractContextManager[None]]]] = {
    "none": nullcontext,
    "visits": _visits,
    "displaced": _displaced,
    "later": _later,
    "unlisted": _unlisted,
}
