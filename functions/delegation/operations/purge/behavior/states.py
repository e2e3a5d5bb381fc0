"""Digests of a table's metadata files, with which a finished purge remembers every state that it purged."""

import hashlib
from collections.abc import Sequence
from typing import Final

from delegation.errors import GuardRefused
from delegation.storage.locations import canonical

MOST: Final = 500
"""The newest ones are kept, to bound a task's record; Iceberg keeps 100 former metadata files by default."""


def state_of(metadata_location: str) -> str:
    """Return the digest of a metadata file's URI."""
    try:
        path = canonical(metadata_location)
    except GuardRefused:
        path = metadata_location
    return hashlib.sha256(path.encode()).hexdigest()[:16]


def states_of(metadata_files: Sequence[str]) -> tuple[str, ...]:
    """Return the digests of the newest MOST files; their names begin with a version number."""
    newest = sorted(metadata_files, key=lambda path: path.rpartition("/")[2])[-MOST:]
    return tuple(state_of(path) for path in newest)
