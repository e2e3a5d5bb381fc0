"""What the snapshots of a table reach: those that go, and those that stay."""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from delegation.iceberg.avro.manifests import ManifestFile
from delegation.iceberg.errors import ManifestMissing
from delegation.iceberg.files import RANK, FileType, Row, TableFile
from delegation.iceberg.history import History, read_history
from delegation.iceberg.metadata import ParsedMetadata, parse_metadata
from delegation.iceberg.paths import ALL_KINDS, Spelling, read_as
from delegation.iceberg.reach import (
    Fetcher,
    Tolerance,
    Unreadable,
    all_entries,
    manifest_record,
    named_by_metadata,
    read_manifest_lists,
    refuse_cut_off,
)
from delegation.keeping.paths import reads
from delegation.operations.expiry.context import ExpiryContext
from delegation.polaris.model import LoadedTable
from delegation.storage.locations import Roots
from polaris_common.errors import DelegationError

ANY_SPELLING: Final = Spelling(ALL_KINDS)
_DELETE_AFTER_COMMIT: Final = "write.metadata.delete-after-commit.enabled"
_PREVIOUS_VERSIONS: Final = "write.metadata.previous-versions-max"
_PREVIOUS_VERSIONS_DEFAULT: Final = 100
_LONGEST_NUMBER: Final = 10
"""Digits of Java's largest int."""


def metadata_of(table: LoadedTable) -> ParsedMetadata:
    """Return the parsed metadata of a table; raise CorruptMetadata, GuardRefused (UNSUPPORTED_FORMAT_VERSION)."""
    return parse_metadata(table.metadata_location, table.metadata)


def fetcher_of(ctx: ExpiryContext) -> Fetcher:
    """Return what reads the table's files ahead of their use."""
    return Fetcher(ctx.store, threads=ctx.settings.read_threads, checkpoint=ctx.attempt.checkpoint)


@dataclass(frozen=True, slots=True)
class Retained:
    """What the snapshots that stay need: small files and the manifests, whose live entries are read with `rows`."""

    small: list[TableFile]
    manifests: dict[str, ManifestFile]

    def rows(
        self,
        ctx: ExpiryContext,
        without: Collection[str] = (),
        unreadable: Unreadable = refuse_cut_off,
        *,
        live: bool = True,
    ) -> Iterator[Row]:
        """Yield every file that stays, in any order, except the small files `without` and what such manifests name.

        Entries with status DELETED keep no file, if only `live` ones count: no reader of their snapshot reads it. What
        some reader opens for a path instead of what it names stays, too.
        """
        yield from with_others_read(row for row in self.small if row.path not in without)
        manifests = self.manifests_without(without)
        wanted = [(path, ctx.settings.max_file_bytes) for path in manifests]
        tolerance = Tolerance(unreadable, ANY_SPELLING)
        yield from with_others_read(all_entries(fetcher_of(ctx), manifests, wanted, tolerance, live=live))

    def manifests_without(self, known: Iterable[str] = ()) -> dict[str, ManifestFile]:
        """Return the manifests that are not among the `known` ones, by path."""
        without = frozenset(known)
        return {path: manifest for path, manifest in self.manifests.items() if path not in without}


def with_others_read(rows: Iterable[Row]) -> Iterator[Row]:
    """Yield the rows, and one for each other object that a reader may open for a row's path."""
    for row in rows:
        yield row
        for path in read_as(row[0]):
            yield path, row[1], 0


def retained(ctx: ExpiryContext, metadata: ParsedMetadata, known: Collection[str] = ()) -> Retained:
    """Read what the snapshots of the metadata need, and the metadata files that it names.

    Manifest lists that are `known`, with all that they name, are not read again. Nothing else may be left unread:
    raises the errors of files that are missing, damaged or encrypted, that the credentials do not cover, or whose paths
    name no object.
    """
    found = read_manifest_lists(
        metadata, fetcher_of(ctx), limit=ctx.settings.max_file_bytes, readable=lambda path: path not in known
    )
    former = (TableFile(ANY_SPELLING.one(path), RANK[FileType.FORMER_METADATA], 0) for path in metadata.former)
    manifests = (manifest_record(path, manifest) for path, manifest in found.manifests.items())
    small = [*named_by_metadata(metadata, ANY_SPELLING), *former, *found.lists, *manifests]
    return Retained(small, found.manifests)


@dataclass(frozen=True, slots=True)
class Going:
    """What goes with the expired snapshots, before the rest of the table is subtracted.

    Small files, and the manifests that no snapshot keeps; those that may be read are `readable`.
    """

    small: list[TableFile]
    manifests: dict[str, ManifestFile]
    readable: Callable[[str], bool]

    def manifests_to_read(self) -> dict[str, ManifestFile]:
        """Return the manifests that may be read, by path."""
        return {path: manifest for path, manifest in self.manifests.items() if self.readable(path)}

    def entries(self, ctx: ExpiryContext, unreadable: Unreadable) -> Iterator[Row]:
        """Yield what all entries of the manifests name, those with status DELETED too.

        After an expiry that kept the files nothing else names some of them. Raises what `unreadable` does.
        """
        wanted = [(path, ctx.settings.max_file_bytes) for path in self.manifests_to_read()]
        yield from all_entries(fetcher_of(ctx), self.manifests, wanted, Tolerance(unreadable, ANY_SPELLING))


def unless_missing(note: Callable[[str], None]) -> Unreadable:
    """Return a function for errors in what only expiring snapshots need: it notes files that are gone."""

    def unreadable(path: str, error: DelegationError) -> None:
        if not isinstance(error, ManifestMissing):
            raise error
        note(path)

    return unreadable


def only_named_by(
    ctx: ExpiryContext, metadata: ParsedMetadata, kept: Retained, covered: Roots | None, unreadable: Unreadable
) -> Going:
    """Return the files of `metadata`, which has the expired snapshots alone, without the manifests that are `kept`.

    What the credentials do not cover is named and not read. Raises what `unreadable` does for a manifest list.
    """
    readable = reads(metadata, covered)
    found = read_manifest_lists(
        metadata,
        fetcher_of(ctx),
        limit=ctx.settings.max_file_bytes,
        readable=readable,
        tolerance=Tolerance(unreadable, ANY_SPELLING),
    )
    root = ANY_SPELLING.one(metadata.path)
    own = {path: manifest for path, manifest in found.manifests.items() if path not in kept.manifests}
    named = (one for one in named_by_metadata(metadata, ANY_SPELLING) if one.path != root)
    manifests = (manifest_record(path, manifest) for path, manifest in own.items())
    return Going([*named, *found.lists, *manifests], own, readable)


def history_of(ctx: ExpiryContext, metadata: ParsedMetadata, covered: Roots | None) -> History:
    """Return the former metadata files and locations; what cannot be read of them is left out of the locations."""
    tolerance = Tolerance(lambda _path, _error: None, ANY_SPELLING)
    return read_history(metadata, fetcher_of(ctx), reads(metadata, covered), tolerance, statistics=True)


def outdated_metadata(metadata: ParsedMetadata, history: History) -> list[TableFile]:
    """Return the former metadata files beyond those that the table keeps after one more commit.

    None unless the table gives them up. Files of another table are not among them.
    """
    most = versions_kept(metadata)
    if most is None:
        return []
    log = [ANY_SPELLING.one(path) for path in (*metadata.former, metadata.path)]
    kept = {*log[-most:], log[-1]}
    return [one for one in history.files if one.path not in kept and one.path not in history.foreign]


def versions_kept(metadata: ParsedMetadata) -> int | None:
    """Return how many former metadata files the table keeps, None if it keeps all.

    It does unless its property `write.metadata.delete-after-commit.enabled` is true, and `write.metadata.
    previous-versions-max` a number (Iceberg documentation, Configuration; TableMetadata.addPreviousFile).
    """
    if metadata.properties.get(_DELETE_AFTER_COMMIT, "false").lower() != "true":
        return None
    text = metadata.properties.get(_PREVIOUS_VERSIONS)
    if text is None:
        return _PREVIOUS_VERSIONS_DEFAULT
    digits = text.removeprefix("-").removeprefix("+")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _LONGEST_NUMBER):
        return None
    return max(1, int(text))
