"""The files of a table: what each is to the table, and how lists of them are written."""

from enum import StrEnum
from typing import NamedTuple

# A record by position, as plain tuples, which sort several times as fast as named ones.
Row = tuple[str, int, int]


class TableFile(NamedTuple):
    """A path to delete: canonical URI, rank of its type (the lowest wins when a path has several) and size in bytes.

    Sorts by path first, by code point, which is also the byte order of UTF-8 and so Spark's.
    """

    path: str
    rank: int
    size: int


class FileType(StrEnum):
    """What a file is to the table. The order is the rank: a path with several types goes with the one deleted last."""

    ROOT = "metadata"
    FORMER_METADATA = "former-metadata"
    MANIFEST_LIST = "manifest-list"
    MANIFEST = "manifest"
    STATISTICS = "statistics"
    PARTITION_STATISTICS = "partition-statistics"
    DIRECTORY_MARKER = "directory-marker"
    POSITION_DELETES = "position-deletes"
    EQUALITY_DELETES = "equality-deletes"
    DATA = "data"


TYPES = tuple(FileType)
RANK: dict[str, int] = {file_type: rank for rank, file_type in enumerate(TYPES)}
FIRST_DATA = RANK[FileType.POSITION_DELETES]
