"""When two paths may name one file: schemes and authorities as Iceberg compares them, and spellings of one key.

Iceberg's DeleteOrphanFilesSparkAction joins files by the path without scheme and authority, and then compares those:
`equal_schemes`, `equal_authorities` and `prefix_mismatch_mode` have its meaning and defaults (Iceberg documentation,
Spark procedures, remove_orphan_files). Beyond that a path here protects every key that some writer, reader or file
system takes for it: percent-encoded or not, with repeated slashes or one, with `.` components or without.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from delegation.iceberg.paths import as_written
from delegation.storage.locations import folded

_URI: Final = re.compile(r"(?:([A-Za-z][A-Za-z0-9+.\-]*):)?(?://([^/]*))?(.*)", re.DOTALL)
_CUT: Final = re.compile(r"[#?]")
_S3: Final = "s3://"
_NOT_PLAIN: Final = ("%", "#", "?", "/.", "/\n", "\x00")
END: Final = "\x00"
"""Ends the first part of a text to sort by; no folded path has it, and it comes before any other character."""


class MismatchMode(StrEnum):
    """What happens to a file with the path of a needed one under another scheme or authority."""

    ERROR = "ERROR"
    IGNORE = "IGNORE"
    DELETE = "DELETE"

    def within(self, loosest: "MismatchMode") -> "MismatchMode":
        """Return this mode, or the loosest that is allowed if this one is looser."""
        modes = list(MismatchMode)
        return modes[min(modes.index(self), modes.index(loosest))]


def _equal_schemes() -> Mapping[str, str]:
    return {"s3a": "s3", "s3n": "s3"}


@dataclass(frozen=True, slots=True)
class Equal:
    """Which schemes and authorities are one: each name is compared as the one that it is mapped to.

    The schemes of S3 are always one, as in Iceberg's defaults: every path in S3 is compared as `s3`.
    """

    schemes: Mapping[str, str] = field(default_factory=_equal_schemes)
    authorities: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, schemes: Mapping[str, str], authorities: Mapping[str, str]) -> "Equal":
        """Return maps from lists, as Iceberg takes them: `{"s3n,s3a": "s3"}`, besides the default."""
        return cls({**_equal_schemes(), **_each(schemes, lower=True)}, _each(authorities, lower=False))

    def prefix(self, scheme: str, authority: str) -> str:
        """Return what scheme and authority are compared as."""
        return f"{self.schemes.get(scheme, scheme)}://{self.authorities.get(authority, authority)}"


def _each(lists: Mapping[str, str], *, lower: bool) -> dict[str, str]:
    found = {}
    for names, as_one in lists.items():
        for name in (one.strip() for one in names.split(",")):
            found[name.lower() if lower else name] = as_one.strip().lower() if lower else as_one.strip()
    return found


def joined(path: str, equal: Equal) -> list[str]:
    """Return for each spelling of a path the text to join by: the folded path, END, and its scheme and authority.

    `path` may be canonical, marked as one that names no object, or as a writer wrote it. A local path without scheme
    is one of `file`. What follows `#` or `?` is a part of the key for some readers and not for others, so it has both.
    """
    found = _URI.fullmatch(as_written(path))
    scheme, authority, rest = (found[1] or "file", found[2] or "", found[3]) if found else ("", "", path)
    prefix = equal.prefix(scheme.lower(), authority)
    cut = _CUT.split(rest, maxsplit=1)[0]
    return [f"{key}{END}{prefix}" for key in sorted({folded(rest), folded(cut)})]


def joined_all(paths: Sequence[str], equal: Equal) -> list[str]:
    """Return `joined` of all paths, one after the other.

    Canonical paths of one bucket in their plainest form, the usual case, are taken together.
    """
    if paths and (root := _plain_root(paths)) is not None:
        end = END + equal.prefix("s3", root[len(_S3) : -1])
        at = len(root)
        return [path[at:] + end for path in paths]
    return [text for path in paths for text in joined(path, equal)]


def _plain_root(paths: Sequence[str]) -> str | None:
    """Return the bucket, as a prefix of all paths, if the keys of all of them are folded and mean one file each."""
    first = paths[0]
    root = first[: first.find("/", len(_S3)) + 1]
    text = "\n".join(("", *paths, ""))
    plain = (
        first.startswith(_S3)
        and len(root) > len(_S3) + 1
        and text.isascii()
        and text.count("\n") == len(paths) + 1
        and text.count(f"\n{root}") == len(paths)
        # Without slashes in a row, at an end, or beside a component of dots alone.
        and text.count("//") == len(paths)
        and not any(one in text for one in _NOT_PLAIN)
    )
    return root if plain else None


def folded_location(location: str, equal: Equal) -> tuple[str, str]:
    """Return a location as prefix (scheme and authority) and folded path with a slash at its end, "" for a root."""
    path, _, prefix = joined(location, equal)[0].partition(END)
    return prefix, f"{path}/" if path else ""


def overlap(one: str, other: str, equal: Equal) -> bool:
    """Return whether one location may be at or below the other, in any spelling."""
    mine, theirs = folded_location(one, equal), folded_location(other, equal)
    return mine[0] == theirs[0] and (mine[1].startswith(theirs[1]) or theirs[1].startswith(mine[1]))


def is_below(one: str, other: str, equal: Equal) -> bool:
    """Return whether a location may be at or below another one, in any spelling."""
    mine, theirs = folded_location(one, equal), folded_location(other, equal)
    return mine[0] == theirs[0] and mine[1].startswith(theirs[1])


def mismatched(prefix: str, needed: Sequence[str]) -> bool:
    """Return whether needed files of the same path all have another scheme or authority than this one."""
    return bool(needed) and prefix not in needed
