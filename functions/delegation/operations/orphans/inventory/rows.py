"""The rows of an S3 Inventory report in CSV: unpacked, checked and read piece by piece, with flat memory. Pure."""

import csv
import hashlib
import zlib
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Final, NamedTuple
from urllib.parse import unquote_plus

from delegation.operations.orphans.inventory.errors import inventory_damaged
from delegation.operations.orphans.inventory.manifest import InventoryReport, ReportFile
from delegation.storage.listing.model import ListedObject
from delegation.storage.sessions import time_of

_BLOCK: Final = 1 << 18
"""Bytes that are unpacked at a time, however much a file may unpack to."""
_LINE: Final = 1 << 16
"""The most bytes of a row: a key has 1,024, of which each is three characters at most."""
_GZIP: Final = 31


class LocationRows(NamedTuple):
    """Objects below a prefix as rows have them; and all keys there, of former versions and delete markers too."""

    objects: list[ListedObject]
    keys: list[str]


def checked(pieces: Iterable[bytes], file: ReportFile) -> Generator[bytes]:
    """Yield the pieces of a file; raise OrphansError (INVENTORY_DAMAGED), at the end at the latest, if it is not that
    of the manifest.

    So nothing may be made of the pieces before all of them came.
    """
    md5, size = hashlib.md5(usedforsecurity=False), 0
    for piece in pieces:
        size += len(piece)
        if size > file.size:
            break
        md5.update(piece)
        yield piece
    if size != file.size:
        raise inventory_damaged(file.key, f"has not the {file.size} bytes that the manifest names")
    if md5.hexdigest() != file.md5:
        raise inventory_damaged(file.key, "has not the MD5 that the manifest names")


def lines_of(pieces: Iterable[bytes], file: ReportFile) -> Iterator[list[str]]:
    """Yield lists of lines of a compressed file; raise OrphansError (INVENTORY_DAMAGED) if it is cut or no text."""
    rest = b""
    for block in _unpacked(pieces, file):
        whole, _, rest = (rest + block).rpartition(b"\n")
        if len(rest) > _LINE:
            raise inventory_damaged(file.key, f"has a row of more than {_LINE} bytes")
        if whole:
            yield _text(whole, file)
    if rest:
        yield _text(rest, file)


def _text(data: bytes, file: ReportFile) -> list[str]:
    try:
        return data.decode().split("\n")
    except UnicodeDecodeError:
        raise inventory_damaged(file.key, "has rows that are not UTF-8") from None


def _unpacked(pieces: Iterable[bytes], file: ReportFile) -> Iterator[bytes]:
    unpack, is_between = zlib.decompressobj(_GZIP), True
    for piece in pieces:
        data = piece
        while data or not is_between:
            try:
                block = unpack.decompress(data, _BLOCK)
            except zlib.error:
                raise inventory_damaged(file.key, "cannot be unpacked") from None
            if block:
                yield block
            is_between = unpack.eof
            if is_between:
                data, unpack = unpack.unused_data, zlib.decompressobj(_GZIP)
                continue
            data = unpack.unconsumed_tail
            if not data and len(block) < _BLOCK:
                break
    if not is_between:
        raise inventory_damaged(file.key, "ends in the middle of its compressed rows")


class RowReader:
    """Reads the rows of a report that are below a prefix.

    Raises OrphansError (INVENTORY_DAMAGED) for any that S3 does not write.
    """

    def __init__(self, report: InventoryReport, prefix: str) -> None:
        self._report = report
        self._prefix = prefix
        self._width = len(report.columns)
        self._bucket, self._key, self._size, self._modified, self._etag = (
            report.columns.index(name) for name in ("Bucket", "Key", "Size", "LastModifiedDate", "ETag")
        )
        self._version: tuple[int, int] | None = None
        if report.has_versions:
            self._version = (report.columns.index("IsLatest"), report.columns.index("IsDeleteMarker"))

    def read(self, lines: Sequence[str], file: ReportFile) -> LocationRows:
        """Return what the rows have below the prefix; only the latest versions are objects, and no delete markers."""
        found = LocationRows([], [])
        try:
            for row in csv.reader(lines, strict=True):
                if not row:
                    continue
                if len(row) != self._width or row[self._bucket] != self._report.bucket:
                    raise inventory_damaged(file.key, "has a row without the manifest's columns or of another bucket")
                # S3 writes a blank as + here, and a + as %2B.
                key = unquote_plus(row[self._key], errors="strict")
                if not key.startswith(self._prefix):
                    continue
                found.keys.append(key)
                if self._is_present(row, file):
                    found.objects.append(self._object(key, row))
        except (csv.Error, ValueError) as error:
            raise inventory_damaged(file.key, f"has a row that cannot be read ({type(error).__name__})") from None
        return found

    def _is_present(self, row: Sequence[str], file: ReportFile) -> bool:
        if self._version is None:
            return True
        latest, marker = (row[at].lower() for at in self._version)
        if not {latest, marker} <= {"true", "false"}:
            raise inventory_damaged(file.key, "has a row that does not say whether it is of the latest version")
        return latest == "true" and marker == "false"

    def _object(self, key: str, row: Sequence[str]) -> ListedObject:
        size, etag, modified = int(row[self._size]), row[self._etag].strip('"'), row[self._modified]
        if size < 0 or not modified.endswith("Z"):
            raise ValueError("a negative size, or a time that is not UTC")
        # A listing and HEAD have the ETag in quotation marks and whole seconds.
        return ListedObject(key, size, f'"{etag}"', int(time_of(modified).timestamp()))
