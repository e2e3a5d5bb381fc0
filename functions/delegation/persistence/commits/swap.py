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
            try:
                stored = backend.read_reference(expected.key)
            except BackendUnavailable:
                continue
            if stored == expected:
                continue
        except BackendUnavailable as error:
            if unclear:
                raise CommitUnknown(new.heads[0]) from error
            raise
        if stored is None:
            if unclear:
                raise CommitUnknown(new.heads[0])
            raise ReferenceNotFound(f"reference {expected.key.name!r} was deleted")
        if unclear and _was_applied(stored, new, in_log):
            return None
        return stored
    raise CommitUnknown(new.heads[0])


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
