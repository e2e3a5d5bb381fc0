"""The compare-and-set of a reference, reconciled if the store gave no clear answer, and the copies in its row."""

from collections.abc import Callable, Iterable
from itertools import chain
from typing import Final

from polaris_persistence.backends.base import (
    COPIED_BYTES,
    RECENT_HEADS,
    Backend,
    HeadCopy,
    ObjectCopy,
    Reference,
    StoredObject,
)
from polaris_persistence.commits.commits import Writes
from polaris_persistence.errors import BackendUnavailable, CommitUnknown, ReferenceNotFound
from polaris_persistence.objects.objects import ObjectRef

_TRIES: Final = 8


def swap(
    backend: Backend,
    expected: Reference,
    new: Reference,
    *,
    wait: Callable[[int], None],
    in_log: Callable[[Reference], bool | None],
) -> Reference | None:
    """Move a reference; return None, or the present reference if another process moved it first.

    A swap without a clear answer, whatever was raised, is reconciled by reading. While the reference is unmoved, the
    same swap is repeated: one of the two wins, and neither can once another head is in place, because `version` never
    repeats. If the reference moved by more heads than it lists, `in_log` returns whether its log has the new head.
    Raises CommitUnknown; BackendUnavailable and ReferenceNotFound if not applied.
    """
    unclear: Exception | None = None
    for attempt in range(_TRIES):
        if attempt:
            wait(attempt)
        try:
            refused = backend.replace_reference(new, expected=expected)
        except BackendUnavailable as error:
            if unclear:
                raise CommitUnknown(new.heads[0]) from error
            raise
        except Exception as error:  # noqa: BLE001 - the swap may have been applied before anything was raised
            unclear = error
            stored = _read_back(backend, expected)
            if stored == expected:
                continue
        else:
            if refused is None:
                return None
            stored = refused.stored
        try:
            return _verdict(stored, new, in_log if unclear else None)
        except (CommitUnknown, ReferenceNotFound):
            raise
        except Exception as error:  # noqa: BLE001 - the log could not be read, so nothing is known yet
            unclear = error
    raise CommitUnknown(new.heads[0]) from unclear


def _read_back(backend: Backend, expected: Reference) -> Reference | None:
    """Return the stored reference, or `expected` if it cannot be read: the swap is then repeated."""
    try:
        return backend.read_reference(expected.key)
    except Exception:  # noqa: BLE001 - of any kind, because the outcome of the swap is still open
        return expected


def _verdict(
    stored: Reference | None, new: Reference, in_log: Callable[[Reference], bool | None] | None
) -> Reference | None:
    """Return the result of a refused swap; `in_log` is None if every answer was clear."""
    if stored is None:
        if in_log:
            raise CommitUnknown(new.heads[0])
        raise ReferenceNotFound(f"reference {new.key.name!r} was deleted")
    if in_log and _was_applied(stored, new, in_log):
        return None
    if stored.closed:
        raise ReferenceNotFound(f"reference {new.key.name!r} is being removed")
    return stored


def _was_applied(stored: Reference, new: Reference, in_log: Callable[[Reference], bool | None]) -> bool:
    if stored.created_at != new.created_at or stored.version < new.version:
        return False
    if new.heads[0] in stored.heads:
        return True
    # Each version since added at most one head, so the new one would still be listed.
    if stored.version - new.version < len(stored.heads) or len(stored.heads) < RECENT_HEADS:
        return False
    found = in_log(stored)
    if found is None:
        raise CommitUnknown(new.heads[0])
    return found


def copy_of(head: StoredObject) -> HeadCopy | None:
    """Return the copy of a head for the row of its reference, None if it is not small."""
    small = len(head.value) <= COPIED_BYTES
    return HeadCopy(head.key.id, head.value, head.created_at) if small else None


def copies_named(known: Reference, writes: Writes, links: Iterable[ObjectRef]) -> list[ObjectCopy]:
    """Return copies of small objects for the row of a reference, as far as they fit, newest first.

    They are from the attempt's `writes` or already in the row `known`, and among the `links` of the new head.
    """
    new = (
        ObjectCopy(prepared.loaded.key.type, id_, prepared.stored.created_at, prepared.stored.value)
        for id_, prepared in reversed(writes.items())
    )
    named = {ref[:2] for ref in links}
    found: dict[tuple[str, int], ObjectCopy] = {}
    room = COPIED_BYTES
    for copy in chain(new, known.copies):
        if (copy.type, copy.id) in named - found.keys() and len(copy.value) <= room:
            found[copy.type, copy.id] = copy
            room -= len(copy.value)
    return list(found.values())
