"""The types of a table's files, and the records that list them."""

from enum import StrEnum
from typing import NamedTuple

# A TableFile as a plain tuple, which sorts several times as fast.
Row = tuple[str, int, int]


class TableFile(NamedTuple):
    """A file to delete: canonical URI, rank of its type (the lowest of several) and size in bytes. Sorts by path in
    code point order, which is the byte order of UTF-8 and Spark's."""

    path: str
    rank: int
    size: int


class FileType(StrEnum):
    """A file's type in the order of rank: a path with several types has the one deleted last."""

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
    ORPHAN = "orphan"


TYPES = tuple(FileType)
RANK: dict[str, int] = {file_type: rank for rank, file_type in enumerate(TYPES)}
FIRST_DATA = RANK[FileType.POSITION_DELETES]
LEFT = 32
"""Added to the rank of a file that only damaged manifests name, so that a row of another manifest comes before it."""
