"""What one table references: its areas, from its metadata and from each of its manifests, read once.

A manifest never changes, so one whose digest is known is not read again: its areas are in the table's entry. Areas of
manifests that a table no longer has stay until its entry is built anew; they cost a purge nearby one more load.
"""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from delegation.errors import GuardRefused
from delegation.iceberg.avro.manifests import ManifestFile
from delegation.iceberg.metadata import parse_metadata
from delegation.iceberg.reach import (
    STRICT,
    Fetcher,
    named_by_metadata,
    read_history,
    read_limit,
    read_manifest_lists,
    tolerated_entries,
)
from delegation.polaris.model import LoadedTable
from delegation.references.areas import areas_of, directory_of, fold
from delegation.references.dynamodb import DIGEST_BYTES
from delegation.references.model import TableEntry
from delegation.storage.base import ObjectStore
from delegation.storage.locations import Roots

_FOLD_AT = 4_096
"""Directories outside a table are folded whenever there are so many, which bounds memory."""


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """How much is read at once, and how many bytes one file may have."""

    threads: int = 8
    max_file_bytes: int = 256 * 1024 * 1024


def read_references(
    table: LoadedTable,
    store: ObjectStore,
    known: TableEntry | None,
    *,
    limits: ReadLimits = ReadLimits(),
    checkpoint: Callable[[], None] = lambda: None,
) -> TableEntry:
    """A table's entry from its present metadata; only manifests that `known` has not seen are read.

    Raises CorruptMetadata, CorruptManifestError, ManifestMismatchError, ManifestMissing, what the store raises, and
    what `checkpoint` raises before each read.
    """
    metadata = parse_metadata(table.metadata_location, table.metadata, experimental=True)
    if known is not None and known.table_uuid != metadata.table_uuid:
        known = None
    fetcher = Fetcher(store, threads=limits.threads, checkpoint=checkpoint)
    roots = _usable(metadata.locations)
    found = read_manifest_lists(metadata, fetcher, limit=limits.max_file_bytes, readable=lambda _path: True)
    history = read_history(metadata, fetcher, lambda _path: False)
    named = [*named_by_metadata(metadata), *history.files, *found.lists]
    outside = {directory_of(one.path) for one in named if not roots.contains(one.path)}
    outside |= {directory_of(path) for path in found.manifests if not roots.contains(path)}
    digests = {path: digest(path) for path in found.manifests}
    seen = frozenset() if known is None else known.seen
    unread = [path for path, mark in digests.items() if mark not in seen]
    outside |= _outside_of_entries(fetcher, found.manifests, unread, roots, limits)
    former = () if known is None else known.areas
    return TableEntry(
        identifier=table.identifier,
        table_uuid=metadata.table_uuid,
        metadata_location=table.metadata_location,
        areas=fold((*areas_of(metadata.locations, ()), *former, *outside)),
        etag=table.etag,
        seen=frozenset(digests.values()),
    )


def _outside_of_entries(
    fetcher: Fetcher,
    manifests: dict[str, ManifestFile],
    unread: Iterable[str],
    roots: Roots,
    limits: ReadLimits,
) -> set[str]:
    """The directories, outside the roots, of the files that these manifests name."""
    outside: set[str] = set()
    wanted = [(path, read_limit(manifests[path], limits.max_file_bytes)) for path in unread]
    for path, content in fetcher.fetch(wanted):
        for rows in tolerated_entries(path, manifests[path], content, STRICT):
            outside.update(directory_of(row[0]) for row in rows if not roots.contains(row[0]))
        if len(outside) > _FOLD_AT:
            outside = set(fold(outside))
    return outside


def digest(path: str) -> bytes:
    """A manifest's path in few bytes; of 20,000 paths two are alike once in 10¹¹ tables."""
    return hashlib.blake2b(path.encode(), digest_size=DIGEST_BYTES).digest()


def _usable(locations: Iterable[str]) -> Roots:
    usable = []
    for location in locations:
        try:
            Roots([location])
        except GuardRefused:
            continue
        usable.append(location)
    return Roots(usable)
