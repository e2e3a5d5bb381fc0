"""The types of a table's files, and their canonical paths."""

import posixpath
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from delegation.errors import GuardRefused
from delegation.storage.locations import AmbiguousPath, UnsupportedLocation, canonical, canonical_all

# A TableFile as a plain tuple, which sorts several times as fast.
Row = tuple[str, int, int]


class TableFile(NamedTuple):
    """A file to delete: canonical URI, rank of its type (the lowest if it has several) and size in bytes. Sorts by path
    in code point order, which is the byte order of UTF-8 and Spark's order."""

    path: str
    rank: int
    size: int


class FileType(StrEnum):
    """A file's type, in the order of rank. A path with several types has the type that is deleted last."""

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
"""Added to the rank of a file that only damaged manifests name, so that rows of other manifests sort before it."""


# No canonical path begins with one of these marks, so no location contains a marked path.
MARKS: Final[dict[type[GuardRefused], str]] = {AmbiguousPath: "ambiguous:", UnsupportedLocation: "unsupported:"}
ALL_KINDS: Final = frozenset(MARKS)


@dataclass(frozen=True, slots=True)
class Spelling:
    """Canonical paths. A path with an error in `keep` gets a mark instead, and is passed to `noted`. A lone surrogate
    in it is escaped, because the plan is stored as UTF-8."""

    keep: frozenset[type[GuardRefused]] = frozenset()
    noted: Callable[[str, GuardRefused], None] = lambda _path, _error: None

    def one(self, path: str) -> str:
        """Return the canonical or marked path. Raises AmbiguousPath or UnsupportedLocation."""
        try:
            return canonical(path)
        except (AmbiguousPath, UnsupportedLocation) as error:
            if type(error) not in self.keep:
                raise
            self.noted(path, error)
            return MARKS[type(error)] + path.encode("utf-8", "backslashreplace").decode()

    def all(self, paths: list[str]) -> list[str]:
        try:
            return canonical_all(paths)
        except (AmbiguousPath, UnsupportedLocation):
            return [self.one(path) for path in paths]


CANONICAL: Final = Spelling()
_READ_OTHERWISE: Final = re.compile(r"[#?]|/\.{0,2}(?:/|\Z)")
_CUT_OFF: Final = re.compile(r"[#?]")


def read_as(path: str) -> Iterator[str]:
    """Yield the canonical paths of other objects that a reader may open for a canonical or marked path, usually none.
    Iceberg's S3URI cuts a path off at `#` and `?`; Hadoop's Path folds `//`, `/./` and `/../`."""
    start = path.find("://") + 3
    if _READ_OTHERWISE.search(path, start) is None:
        return
    scheme, _, rest = as_written(path).partition("://")
    bucket, _, key = rest.partition("/")
    cut = _CUT_OFF.split(key, maxsplit=1)[0]
    for other in {cut, _folded(key), _folded(cut)} - {key}:
        with suppress(GuardRefused):
            yield canonical(f"{scheme}://{bucket}/{other}")


def _folded(key: str) -> str:
    return posixpath.normpath(f"/{key}").lstrip("/")


def is_marked(path: str) -> bool:
    """Return whether a path is marked. A marked path names no object."""
    return path.startswith(tuple(MARKS.values()))


def as_written(path: str) -> str:
    for mark in MARKS.values():
        path = path.removeprefix(mark)
    return path
