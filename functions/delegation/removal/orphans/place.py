"""Where orphan files are looked for, which objects may be some, and which paths name one file.

Iceberg's DeleteOrphanFilesSparkAction joins files by the path without scheme and authority, and then compares those:
`equal_schemes`, `equal_authorities` and `prefix_mismatch_mode` have its meaning and defaults (Iceberg documentation,
Spark procedures, remove_orphan_files). Beyond that a path here protects every key that some writer, reader or file
system takes for it: percent-encoded or not, with repeated slashes or one, with `.` components or without.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final, Literal

from delegation.errors import GuardRefused
from delegation.iceberg.metadata import ParsedMetadata
from delegation.iceberg.paths import as_written
from delegation.removal.errors import gc_disabled, table_protected
from delegation.removal.orphans.errors import AgeTooShort, LocationShared, location_too_wide
from delegation.removal.path_guard import ORPHAN_AGE, age_text_of, protection_of
from delegation.storage.listing.model import ListedObject
from delegation.storage.locations import LOCAL, Root, canonical, folded, same_storage, uri_of
from delegation.timestamps import parse_duration
from polaris_common.errors import printable

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
    targets = {}
    for names, as_one in lists.items():
        for name in (name.strip() for name in names.split(",")):
            targets[name.lower() if lower else name] = as_one.strip().lower() if lower else as_one.strip()
    return targets


def joined(path: str, equal: Equal) -> list[str]:
    """Return for each spelling of a path the text to join by: the folded path, END, and its scheme and authority.

    `path` may be canonical, marked as one that names no object, or as a writer wrote it. A local path without scheme
    is one of `file`. What follows `#` or `?` is a part of the key for some readers and not for others, so it has both.
    """
    match = _URI.fullmatch(as_written(path))
    scheme, authority, rest = (match[1] or "file", match[2] or "", match[3]) if match else ("", "", path)
    prefix = equal.prefix(scheme.lower(), authority)
    cut = _CUT.split(rest, maxsplit=1)[0]
    return [f"{key}{END}{prefix}" for key in sorted({folded(rest), folded(cut)})]


def joined_all(paths: Sequence[str], equal: Equal) -> list[str]:
    """Return `joined` of all paths, one after the other."""
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
        and not any(mark in text for mark in _NOT_PLAIN)
    )
    return root if plain else None


def folded_location(location: str, equal: Equal) -> tuple[str, str]:
    """Return a location as prefix (scheme and authority) and folded path with a slash at its end, "" for a root."""
    path, _, prefix = joined(location, equal)[0].partition(END)
    return prefix, f"{path}/" if path else ""


def overlap(location: str, other: str, equal: Equal) -> bool:
    """Return whether one location may be at or below the other, in any spelling."""
    mine, theirs = folded_location(location, equal), folded_location(other, equal)
    return mine[0] == theirs[0] and (mine[1].startswith(theirs[1]) or theirs[1].startswith(mine[1]))


def is_below(location: str, other: str, equal: Equal) -> bool:
    """Return whether a location may be at or below another one, in any spelling."""
    mine, theirs = folded_location(location, equal), folded_location(other, equal)
    return mine[0] == theirs[0] and mine[1].startswith(theirs[1])


def mismatched(prefix: str, needed: Sequence[str]) -> bool:
    """Return whether needed files of the same path all have another scheme or authority than this one."""
    return bool(needed) and prefix not in needed


WORK: Final = "removal of orphan files"
"""What messages call the work."""
_DEEP_ENOUGH: Final = 2
"""Components that a local location has at least: `/data` may be a whole disk."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a table, view or namespace is; `is_of_metadata`: a view's metadata file, or the folder of such."""

    kind: Literal["table", "table of another format", "view", "namespace"]
    name: str
    location: str
    is_of_metadata: bool = False


def place_of(metadata: ParsedMetadata, elsewhere: str | None = None) -> Root:
    """Return the only place where orphan files of a table are looked for: its location, or the one that is `elsewhere`.

    Neither a former location nor a write path is one by itself, for those who write the table choose them: the operator
    allows places elsewhere. Raises GuardRefused (LOCATION_TOO_WIDE) for a whole bucket, a root of a file system, and a
    location that names no clear place.
    """
    location = elsewhere or metadata.location
    try:
        root = Root.of(location)
    except GuardRefused as error:
        raise location_too_wide(location) from error
    parts = root.prefix.split("/")
    unclear = not root.prefix or any(part in ("", ".", "..") for part in parts)
    if unclear or not same_storage(location, metadata.path) or (root.bucket == LOCAL and len(parts) < _DEEP_ENOUGH):
        raise location_too_wide(location)
    return root


def check_alone(root: Root, others: Iterable[Place], equal: Equal) -> None:
    """Raise LocationShared if another table or a view is at, above or below the place, or a namespace at or below it.

    A table normally lies in its namespace's location, and may lie below the folder of a view's metadata files.
    """
    for other in others:
        if other.kind == "namespace" or other.is_of_metadata:
            shared = is_below(other.location, root.uri, equal)
        else:
            shared = overlap(other.location, root.uri, equal)
        if shared:
            raise LocationShared(root.uri, f"the {other.kind} {other.name}", other.location)


def check_allowed(metadata: ParsedMetadata) -> None:
    """Raise GuardRefused (TABLE_PROTECTED, GC_DISABLED); no setting overrules either here."""
    protection = protection_of(metadata.properties)
    if protection is not None:
        raise table_protected(protection, work=WORK, otherwise="")
    if not metadata.gc_enabled:
        raise gc_disabled("the table's property gc.enabled is false, so other tables may own its files")


AGE: Final = timedelta(days=3)
"""How old a file is at least, by default; the same as Iceberg's."""
LEAST_AGE: Final = timedelta(hours=24)
_VERSION_HINT: Final = "metadata/version-hint.text"
_NOT_CLEAR: Final = ("/_", "/.", "/\n", "#", "?", "\x00")
"""What keys have that are hidden, of a directory marker, or not clear; a few others have it too."""


def checked_age(wanted: timedelta) -> timedelta:
    """Return the age that a request wants; raise AgeTooShort for less than a day."""
    if wanted < LEAST_AGE:
        raise AgeTooShort(
            f"the minimum age is {wanted}; it must be at least 24 hours, because a job may still commit younger files"
        )
    return wanted


def age_of(wanted: timedelta, properties: Mapping[str, str]) -> timedelta:
    """Return how old a file has to be: what is wanted, or what the table's property states if that is longer.

    Raises AgeTooShort for less than a day, and GuardRefused (AGE_INVALID) if the property is no duration.
    """
    return max(checked_age(wanted), age_in(properties, "the table"))


def age_in(properties: Mapping[str, str], who: str) -> timedelta:
    """Return the age that a table's property states, zero without one; raise GuardRefused (AGE_INVALID)."""
    text = age_text_of(properties, who)
    try:
        return timedelta(0) if text is None else parse_duration(text)
    except ValueError as error:
        raise GuardRefused(
            f"{printable(who)}'s property {ORPHAN_AGE} is not a duration such as 7d or PT48H", code="AGE_INVALID"
        ) from error


def hidden_partitions(metadata: Mapping[str, Any]) -> frozenset[str]:
    """Return how directories of partition fields with hidden names begin (Iceberg, PartitionAwareHiddenPathFilter)."""
    specs = metadata.get("partition-specs")
    lists = [spec.get("fields") for spec in specs if isinstance(spec, Mapping)] if isinstance(specs, list) else []
    fields = (
        field
        for fields_of_spec in lists
        if isinstance(fields_of_spec, list)
        for field in fields_of_spec
        if isinstance(field, Mapping)
    )
    names = (field.get("name") for field in fields)
    return frozenset(f"{name}=" for name in names if isinstance(name, str) and name.startswith(("_", ".")))


@dataclass(frozen=True, slots=True)
class Eligible:
    """Decides about the objects of one place; `age` is in whole seconds."""

    root: Root
    age: int
    partitions: frozenset[str] = frozenset()

    def admits(self, listed: ListedObject, at: int) -> bool:
        """Return whether an object may be an orphan; `at` is the store's time of the listing.

        Directory markers and keys that no path can name without doubt are none.
        """
        if at - listed.modified <= self.age or not self._is_visible(listed.key):
            return False
        uri = uri_of(self.root.bucket, listed.key)
        try:
            return not listed.key.endswith("/") and canonical(uri) == uri and "\x00" not in uri + listed.etag
        except GuardRefused:
            return False

    def _is_visible(self, key: str) -> bool:
        below = key.removeprefix(f"{self.root.prefix}/")
        if below in (key, _VERSION_HINT):
            return False
        return not any(
            part.startswith(("_", ".")) and not part.startswith(tuple(self.partitions)) for part in below.split("/")
        )

    def some(self, objects: Iterable[ListedObject], at: int) -> list[ListedObject]:
        """Return those of a page that may be orphans."""
        before = at - self.age
        old = [listed for listed in objects if listed.modified < before]
        return old if self._are_plain(old) else [listed for listed in old if self.admits(listed, at)]

    def _are_plain(self, some: Sequence[ListedObject]) -> bool:
        """Return whether all keys are visible and clear beyond doubt, as those of a writer are."""
        below = f"{self.root.prefix}/"
        keys = "\n".join(("", *[listed.key for listed in some], ""))
        return (
            self.root.bucket != LOCAL
            and keys.isascii()
            and keys.count("\n") == len(some) + 1
            and keys.count(f"\n{below}") == len(some)
            and not any(mark in keys for mark in (*_NOT_CLEAR, _VERSION_HINT))
            and "\x00" not in "".join([listed.etag for listed in some])
        )
