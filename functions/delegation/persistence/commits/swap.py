"""The compare-and-set of a reference, with an answer even where the store gave none."""

from collections.abc import Callable
from typing import Final

from delegation.persistence.backends.base import RECENT_HEADS, Backend, Reference
from delegation.persistence.errors import BackendUnavailable, CommitOutcomeUnknown, CommitUnknown, ReferenceNotFound

_TRIES: Final = 8


def swap(
    backend: Backend,
    expected: Reference,
    new: Reference,
    *,
    wait: Callable[[int], None],
    in_log: Callable[[Reference], bool | None],
) -> Reference | None:
    """Move a reference: None if that was done, else the reference as it stands, which somebody else moved.

    A swap without an answer is resolved by reading. While the reference is where it was, the same swap is made again:
    whichever of the two arrives first wins, the other finds it done, and none can win once another head is in place
    (`version` never returns). `in_log` tells whether a reference's log holds the new head, for a reference that moved
    on by more heads than it lists. Raises CommitUnknown, and BackendUnavailable, ReferenceNotFound (not applied).
    """
    unclear = False
    for attempt in range(_TRIES):
        if attempt:
            wait(attempt)
        try:
            refused = backend.replace_reference(new, expected=expected)
            if refused is None:
                return None
            stored = refused.stored
        except CommitOutcomeUnknown:
            unclear = True
            stored = _read_back(backend, expected)
            if stored == expected:
                continue
        except BackendUnavailable as error:
            if unclear:
                raise CommitUnknown(new.heads[0]) from error
            raise
        return _verdict(stored, new, in_log if unclear else None)
    raise CommitUnknown(new.heads[0])


def _read_back(backend: Backend, expected: Reference) -> Reference | None:
    """Return the stored reference, `expected` if the store does not answer."""
    try:
        return backend.read_reference(expected.key)
    except BackendUnavailable:
        return expected


def _verdict(
    stored: Reference | None, new: Reference, in_log: Callable[[Reference], bool | None] | None
) -> Reference | None:
    """Return what `swap` returns for a reference that was found changed; `in_log` is None if every answer was clear."""
    if stored is None:
        if in_log:
            raise CommitUnknown(new.heads[0])
        raise ReferenceNotFound(f"reference {new.key.name!r} was deleted")
    return None if in_log and _was_applied(stored, new, in_log) else stored


def _was_applied(stored: Reference, new: Reference, in_log: Callable[[Reference], bool | None]) -> bool:
    if stored.created_at != new.created_at or stored.version < new.version:
        return False
    if new.heads[0] in stored.heads:
        return True
    # At most one head was added at each version since, so ours would still be listed.
    if stored.version - new.version < len(stored.heads) or len(stored.heads) < RECENT_HEADS:
        return False
    found = in_log(stored)
    if found is None:
        raise CommitUnknown(new.heads[0])
    return found
