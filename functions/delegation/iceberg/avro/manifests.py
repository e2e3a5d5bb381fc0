"""Reads manifest lists and manifests, versions 1 to 3 (Iceberg Table Spec, Manifests, Manifest Lists, Appendix A). ALL
entries are returned, DELETED ones too, which may be the last to name a file. Malformed data raises
CorruptManifestError. Valid data may still be wrong, so `mismatch_of` compares a manifest with its list, and callers
check every path (docs/architecture/purging.md)."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final, NamedTuple

from delegation.iceberg.avro.container import MAX_BLOCK_BYTES, parse_schema, read_blocks, read_header
from delegation.iceberg.avro.decoder import DecodedRow, DecodeOne, Wanted, compile_decoder, locate
from delegation.iceberg.avro.shapes import Shapes
from delegation.iceberg.errors import (
    CorruptManifestError,
    EncryptedMetadataFile,
    MalformedError,
    ManifestMismatchError,
    UnsupportedAvroError,
)

PathEntry = tuple[int, int, str, int]

BATCH = 1024  # entries decoded ahead of the caller; a hostile block has millions of tiny ones


class ManifestFile(NamedTuple):
    """A manifest as its list describes it. Counts omitted by a version 1 writer are None. A manifest that a version 1
    snapshot lists inline is `ManifestFile(path, None)`. `content` is 0 for data, 1 for deletes."""

    manifest_path: str
    manifest_length: int | None
    partition_spec_id: int | None = None
    content: int = 0
    sequence_number: int | None = None
    min_sequence_number: int | None = None
    added_snapshot_id: int | None = None
    added_files_count: int | None = None
    existing_files_count: int | None = None
    deleted_files_count: int | None = None
    added_rows_count: int | None = None
    existing_rows_count: int | None = None
    deleted_rows_count: int | None = None

    @property
    def entries(self) -> int | None:
        """The number of entries of all statuses, None if not recorded."""
        counts = (self.added_files_count, self.existing_files_count, self.deleted_files_count)
        return None if None in counts else sum(count for count in counts if count is not None)


DATA_FILE = (2, ("data_file",))
_PATH_FIELDS = (
    Wanted(((0, ("status",)),), required=True, least=0, most=2),
    Wanted((DATA_FILE, (134, ("content",))), default=0, least=0, most=2),
    Wanted((DATA_FILE, (100, ("file_path",))), text=True, required=True),
    Wanted((DATA_FILE, (104, ("file_size_in_bytes",))), required=True, default=0, least=0, lenient=True),
)
_SIZE_FIELDS = (
    Wanted(((0, ("status",)),), required=True, least=0, most=2),
    Wanted((DATA_FILE, (134, ("content",))), default=0, least=0, most=2),
    Wanted((DATA_FILE, (101, ("file_format",))), text=True, required=True),
    Wanted((DATA_FILE, (104, ("file_size_in_bytes",))), required=True, default=0, least=0, lenient=True),
)
_EXISTING: Final = 0
_DESCRIBED_FIELDS = (
    Wanted(((0, ("status",)),), required=True, least=0, most=2),
    Wanted(((1, ("snapshot_id",)),)),
    Wanted((DATA_FILE, (103, ("record_count",))), required=True),
)
_DESCRIBED: Final = (
    "added entries", "existing entries", "deleted entries", "added rows", "existing rows", "deleted rows",
    "as its partition spec", "as its content",
)  # fmt: skip
_LIST_FIELDS = (
    Wanted(((500, ("manifest_path",)),), text=True, required=True),
    Wanted(((501, ("manifest_length",)),), required=True, default=-1, least=0, lenient=True),
    Wanted(((502, ("partition_spec_id",)),)),
    Wanted(((517, ("content",)),), default=0, least=0, most=1),
    Wanted(((515, ("sequence_number",)),)),
    Wanted(((516, ("min_sequence_number",)),)),
    Wanted(((503, ("added_snapshot_id",)),)),
    Wanted(((504, ("added_files_count", "added_data_files_count")),), least=0, lenient=True),
    Wanted(((505, ("existing_files_count", "existing_data_files_count")),), least=0, lenient=True),
    Wanted(((506, ("deleted_files_count", "deleted_data_files_count")),), least=0, lenient=True),
    Wanted(((512, ("added_rows_count",)),), least=0, lenient=True),
    Wanted(((513, ("existing_rows_count",)),), least=0, lenient=True),
    Wanted(((514, ("deleted_rows_count",)),), least=0, lenient=True),
)


def read_manifest_list(data: bytes, path: str, *, max_block_bytes: int = MAX_BLOCK_BYTES) -> Iterator[ManifestFile]:
    """Yield the manifests of a manifest list. Raises CorruptManifestError while iterating."""
    for rows in read_fields(data, path, _LIST_FIELDS, max_block_bytes):
        yield from map(ManifestFile._make, rows)


def read_paths(data: bytes, path: str, *, max_block_bytes: int = MAX_BLOCK_BYTES) -> Iterator[list[PathEntry]]:
    """Yield all entries as (status, content, file_path, file_size_in_bytes), in lists of up to 1,024. Raises
    CorruptManifestError while iterating."""
    return read_fields(data, path, _PATH_FIELDS, max_block_bytes)


def read_sizes(data: bytes, path: str, *, max_block_bytes: int = MAX_BLOCK_BYTES) -> Iterator[list[PathEntry]]:
    """Yield all entries as (status, content, file_format, file_size_in_bytes), as `read_paths`."""
    return read_fields(data, path, _SIZE_FIELDS, max_block_bytes)


def mismatch_of(manifest: ManifestFile, data: bytes, path: str) -> ManifestMismatchError | None:
    """Return why a manifest is not the one that its list describes; None if it is, or if no list names it. The length
    must agree, or else all counts of files and rows by status, the spec, the content and the adding snapshot: some
    writers record wrong lengths, others wrong counts. An omitted count agrees with nothing. Only this detects a
    manifest cut off between two Avro blocks."""
    if manifest.manifest_length in (None, len(data)):
        return None
    known = (*manifest[7:13], manifest.partition_spec_id, manifest.content, manifest.added_snapshot_id)
    cut_off = len(data) < (manifest.manifest_length or 0)
    length = ManifestMismatchError(path, "bytes", manifest.manifest_length, len(data), cut_off=cut_off)
    if None in known:
        return length
    try:
        described = _described(data, path, most=manifest.entries or 0)
    except (CorruptManifestError, EncryptedMetadataFile):
        return ManifestMismatchError(path, "bytes", manifest.manifest_length, len(data), cut_off=True)
    if described is None:
        return length
    *counts, spec, content, authors = described
    # A stale length does not reveal missing entries; their number does.
    cut_off = cut_off or sum(counts[:3]) < (manifest.entries or 0)
    if authors - {manifest.added_snapshot_id}:
        return ManifestMismatchError(path, "entries of other snapshots", known[8], max(authors), cut_off=cut_off)
    for what, expected, actual in zip(_DESCRIBED, known, (*counts, spec, content), strict=False):
        if expected != actual:
            return ManifestMismatchError(path, what, expected, actual, cut_off=cut_off)
    return None


def _described(data: bytes, path: str, *, most: int) -> tuple[Any, ...] | None:
    """Return a manifest's counts, spec, content and adding snapshot, as a list records them. None for more than `most`
    entries: a small hostile manifest may have millions."""
    files, rows = [0, 0, 0], [0, 0, 0]
    authors: set[int] = set()
    for batch in read_fields(data, path, _DESCRIBED_FIELDS, MAX_BLOCK_BYTES):
        for status, snapshot_id, records in batch:
            files[status] += 1
            rows[status] += records
            if status != _EXISTING and snapshot_id is not None:
                authors.add(snapshot_id)
        if sum(files) > most:
            return None
    stated = read_header(data).metadata
    spec = stated.get(b"partition-spec-id", b"0").decode("ascii", "replace")
    added_existing_deleted = (1, 0, 2)
    counts = (
        *(files[status] for status in added_existing_deleted),
        *(rows[status] for status in added_existing_deleted),
    )
    return (*counts, int(spec) if spec.isdecimal() else spec, int(stated.get(b"content") == b"deletes"), authors)


@lru_cache(maxsize=64)
def decoder_of(raw: bytes, wanted: tuple[Wanted, ...]) -> tuple[DecodeOne, Shapes]:
    """Return the decoder of a writer's schema. A table's manifests usually share the schema."""
    schema = parse_schema(raw)
    tree = locate(schema, wanted)
    return compile_decoder(schema, wanted, tree), Shapes(schema, wanted, tree)


def read_fields(data: bytes, path: str, wanted: tuple[Wanted, ...], limit: int) -> Iterator[list[DecodedRow]]:
    """Yield the wanted fields of all records, in lists of up to 1,024. Raises CorruptManifestError while iterating."""
    try:
        header = read_header(data)
        exact, shapes = decoder_of(header.schema, wanted)
        for block in read_blocks(data, header, limit):
            try:
                yield from _rows(exact, shapes, block.data, block.count)
            except MalformedError as error:
                if not block.compressed:
                    raise MalformedError(block.offset + error.position, error.reason) from error
                inside = f"at byte {error.position} of the decompressed block: {error.reason}"
                raise MalformedError(block.offset, inside) from error
    except UnsupportedAvroError as error:
        raise EncryptedMetadataFile(path, error.reason) from error
    except MalformedError as error:
        raise CorruptManifestError(path, error.position, error.reason) from error


def _rows(exact: DecodeOne, shapes: Shapes, buf: bytes, count: int) -> Iterator[list[DecodedRow]]:
    pos, end = 0, len(buf)
    while count > 0:
        rows: list[DecodedRow] = []
        left = wanted = min(count, BATCH)
        try:
            while left:
                if shapes.match is not None and shapes.fast is not None:
                    pos, left = shapes.fast(buf, pos, left, shapes.match, rows.append)
                    if not left:
                        break
                start = pos
                pos, row = exact(buf, pos, end)
                rows.append(row)
                left -= 1
                shapes.missed(buf, start, pos)
        except IndexError:
            raise MalformedError(pos, "the block ends inside the record that begins here") from None
        except UnicodeDecodeError:
            raise MalformedError(pos, "text that is not UTF-8 in the record that begins here") from None
        count -= wanted
        yield rows
    if pos > end:
        raise MalformedError(end, "the block ends inside its last record")
    if pos < end:
        raise MalformedError(pos, f"{end - pos} bytes are left after the last record of the block")
