"""Where orphan files are searched, which objects may be orphans, and which paths name one file.

Iceberg's DeleteOrphanFilesSparkAction joins files by the path without scheme and authority, and then compares those:
`equal_schemes`, `equal_authorities` and `prefix_mismatch_mode` have its meaning and defaults (Iceberg documentation,
Spark procedures, remove_orphan_files). In addition, a path here protects every key that some writer, reader or file
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
"""Ends the first part of a sort text. No folded path contains it, and it sorts before any other character."""


class MismatchMode(StrEnum):
    """What happens to a file with a needed file's path under another scheme or authority."""

    ERROR = "ERROR"
    IGNORE = "IGNORE"
    DELETE = "DELETE"

    def within(self, loosest: "MismatchMode") -> "MismatchMode":
        """Return this mode, or `loosest` if this one is looser."""
        modes = list(MismatchMode)
        return modes[min(modes.index(self), modes.index(loosest))]


def _equal_schemes() -> Mapping[str, str]:
    return {"s3a": "s3", "s3n": "s3"}


@dataclass(frozen=True, slots=True)
class Equal:
    """Which schemes and authorities are equal: each name is compared as the name to which it is mapped. The schemes of
    S3 are always equal, as in Iceberg's defaults, and compared as `s3`."""

    schemes: Mapping[str, str] = field(default_factory=_equal_schemes)
    authorities: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, schemes: Mapping[str, str], authorities: Mapping[str, str]) -> "Equal":
        """Return maps from lists as in Iceberg, `{"s3n,s3a": "s3"}`, added to the default."""
        return cls({**_equal_schemes(), **_each(schemes, lower=True)}, _each(authorities, lower=False))

    def prefix(self, scheme: str, authority: str) -> str:
        """Return the text as which scheme and authority are compared."""
        return f"{self.schemes.get(scheme, scheme)}://{self.authorities.get(authority, authority)}"


def _each(lists: Mapping[str, str], *, lower: bool) -> dict[str, str]:
    targets = {}
    for names, as_one in lists.items():
        for name in (name.strip() for name in names.split(",")):
            targets[name.lower() if lower else name] = as_one.strip().lower() if lower else as_one.strip()
    return targets


def joined(path: str, equal: Equal) -> list[str]:
    """Return for each spelling of a path the text to join by: the folded path, END, and its scheme and authority.
    `path` may be canonical, marked as naming no object, or as written. A local path without a scheme is one of `file`.
    For some readers the text from `#` or `?` belongs to the key, for others not, so both spellings are returned."""
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
    """Return the bucket, as a prefix of all paths, if all their keys are folded and name one file each."""
    first = paths[0]
    root = first[: first.find("/", len(_S3)) + 1]
    text = "\n".join(("", *paths, ""))
    plain = (
        first.startswith(_S3)
        and len(root) > len(_S3) + 1
        and text.isascii()
        and text.count("\n") == len(paths) + 1
        and text.count(f"\n{root}") == len(paths)
        # No repeated or final slashes, and no components of dots alone.
        and text.count("//") == len(paths)
        and not any(mark in text for mark in _NOT_PLAIN)
    )
    return root if plain else None


def folded_location(location: str, equal: Equal) -> tuple[str, str]:
    """Return a location as prefix (scheme and authority) and folded path with a trailing slash, "" for a root."""
    path, _, prefix = joined(location, equal)[0].partition(END)
    return prefix, f"{path}/" if path else ""


def overlap(location: str, other: str, equal: Equal) -> bool:
    """Return whether one location may be at or below the other, in any spelling."""
    mine, theirs = folded_location(location, equal), folded_location(other, equal)
    return mine[0] == theirs[0] and (mine[1].startswith(theirs[1]) or theirs[1].startswith(mine[1]))


def is_below(location: str, other: str, equal: Equal) -> bool:
    """Return whether a location may be at or below another, in any spelling."""
    mine, theirs = folded_location(location, equal), folded_location(other, equal)
    return mine[0] == theirs[0] and mine[1].startswith(theirs[1])


def mismatched(prefix: str, needed: Sequence[str]) -> bool:
    """Return whether all needed files of the path have a scheme or authority other than this one."""
    return bool(needed) and prefix not in needed


WORK: Final = "removal of orphan files"
"""The name of the work in messages."""
_DEEP_ENOUGH: Final = 2
"""Minimum number of components of a local location: `/data` may be a whole disk."""


@dataclass(frozen=True, slots=True)
class Place:
    """The location of a table, view or namespace. `is_of_metadata`: a view's metadata file, or its folder."""

    kind: Literal["table", "table of another format", "view", "namespace"]
    name: str
    location: str
    is_of_metadata: bool = False


def place_of(metadata: ParsedMetadata, elsewhere: str | None = None) -> Root:
    """Return the only place where a table's orphan files are searched: its location, or the one `elsewhere`. Former
    locations and write paths are not enough, because the table's writers choose them; the operator must allow other
    places. Raises GuardRefused (LOCATION_TOO_WIDE) for a whole bucket, a root of a file system or an ambiguous
    location."""
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
    """Raise LocationShared if another table or a view is at, above or below the place, or a namespace at or below it. A
    table is normally in its namespace's location, and may be below the folder of a view's metadata files."""
    for other in others:
        if other.kind == "namespace" or other.is_of_metadata:
            shared = is_below(other.location, root.uri, equal)
        else:
            shared = overlap(other.location, root.uri, equal)
        if shared:
            raise LocationShared(root.uri, f"the {other.kind} {other.name}", other.location)


def check_allowed(metadata: ParsedMetadata) -> None:
    """Raise GuardRefused (TABLE_PROTECTED, GC_DISABLED). No setting overrules either here."""
    protection = protection_of(metadata.properties)
    if protection is not None:
        raise table_protected(protection, work=WORK, otherwise="")
    if not metadata.gc_enabled:
        raise gc_disabled("the table's property gc.enabled is false, so other tables may own its files")


AGE: Final = timedelta(days=3)
"""The default minimum age of a file, the same as Iceberg's."""
LEAST_AGE: Final = timedelta(hours=24)
_VERSION_HINT: Final = "metadata/version-hint.text"
_NOT_CLEAR: Final = ("/_", "/.", "/\n", "#", "?", "\x00")
"""Parts of keys that are hidden, directory markers or ambiguous. A few other keys have them too."""


def checked_age(wanted: timedelta) -> timedelta:
    """Return the age in a request. Raises AgeTooShort below one day."""
    if wanted < LEAST_AGE:
        raise AgeTooShort(
            f"the minimum age is {wanted}; it must be at least 24 hours, because a job may still commit younger files"
        )
    return wanted


def age_of(wanted: timedelta, properties: Mapping[str, str]) -> timedelta:
    """Return a file's minimum age: the requested one, or that of the table's property if it is longer. Raises
    AgeTooShort below one day, and GuardRefused (AGE_INVALID) if the property is not a duration."""
    return max(checked_age(wanted), age_in(properties, "the table"))


def age_in(properties: Mapping[str, str], who: str) -> timedelta:
    """Return the age in a table's property, zero without one. Raises GuardRefused (AGE_INVALID)."""
    text = age_text_of(properties, who)
    try:
        return timedelta(0) if text is None else parse_duration(text)
    except ValueError as error:
        raise GuardRefused(
            f"{printable(who)}'s property {ORPHAN_AGE} is not a duration such as 7d or PT48H. Correct it",
            code="AGE_INVALID",
        ) from error


def hidden_partitions(metadata: Mapping[str, Any]) -> frozenset[str]:
    """Return the prefixes of directories of hidden partition fields (Iceberg, PartitionAwareHiddenPathFilter)."""
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
    """Decides which objects of one place are eligible. `age` is in whole seconds."""

    root: Root
    age: int
    partitions: frozenset[str] = frozenset()

    def admits(self, listed: ListedObject, at: int) -> bool:
        """Return whether an object may be an orphan. `at` is the store's time of the listing. Directory markers and
        ambiguous keys are not."""
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
        """Return the objects of a page that may be orphans."""
        before = at - self.age
        old = [listed for listed in objects if listed.modified < before]
        return old if self._are_plain(old) else [listed for listed in old if self.admits(listed, at)]

    def _are_plain(self, some: Sequence[ListedObject]) -> bool:
        """Return whether all keys are visible and unambiguous, as a writer's keys are."""
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
