"""Object URIs: the object that a path names, the location that contains it, and ambiguous paths. `s3`, `s3a` and `s3n`
name the same object. The key is everything after the bucket, not decoded, with all slashes, as in Iceberg's `S3URI`.
But `S3URI` cuts paths off at `#` and `?`, so their objects are uncertain: they are refused. Local files (`file:///`,
Hadoop's `file:/` or no scheme) have the bucket LOCAL."""

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import unquote

from delegation.errors import GuardRefused
from polaris_common.errors import printable

FOREIGN_LOCATION: Final = "FOREIGN_LOCATION"
"""The code of files that are kept, and of work that is refused, because their location belongs to others."""
FOREIGN_TABLE: Final = "FOREIGN_TABLE"
"""The code of a finding: files of a table that no catalog lists were kept."""
# A bucket name in S3 never contains a colon.
LOCAL = "file:"

# The common case, decided by one match. Every other path is parsed.
_PLAIN = re.compile(r"s3://(?![^/]*--table-s3/)[a-z0-9][a-z0-9.\-_]*/[^#?]+", re.ASCII)
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*)://([^/]*)(?:/(.*))?", re.DOTALL)
_SHORT_FILE = re.compile(r"(?:file:)?/(?!/)(.*)", re.DOTALL | re.IGNORECASE)
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9.\-_]*", re.ASCII)
_ODD: Final = re.compile(r"%|[^\x01-\x7f]|(?:\A|/)[./]")
"""Matches keys that may be another spelling of a plain key."""
_MOST_DECODED: Final = 4
"""The maximum number of times that a path is percent-decoded."""


class AmbiguousPath(GuardRefused):
    """A path that writers and stores resolve differently (`#`, `?`, `..`, no bucket, no key, not UTF-8)."""

    code = "AMBIGUOUS_PATH"

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"the path {printable(path)} is ambiguous: {reason}")


class UnsupportedLocation(GuardRefused):
    """A path in a storage from which purges cannot delete."""

    code = "UNSUPPORTED_LOCATION"

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{printable(path)} is not a supported location: {reason}")


@dataclass(frozen=True, slots=True, order=True)
class ObjectLocation:
    bucket: str
    key: str

    @property
    def uri(self) -> str:
        return uri_of(self.bucket, self.key)


def canonical(path: str) -> str:
    """Return the canonical URI (`s3://bucket/key`, `file:///path`). Two are equal exactly if they name the same object.
    Raises AmbiguousPath or UnsupportedLocation."""
    if _PLAIN.fullmatch(path) and "/.." not in path and path.isascii():
        return path
    return parse(path).uri


def canonical_all(paths: list[str]) -> list[str]:
    """Return `canonical` of each path. Raises for the first path refused. Canonical paths of one bucket, the usual
    case, are checked together."""
    if not paths:
        return []
    first = canonical(paths[0])
    root = first[: first.index("/", 5) + 1]
    text = "\n".join(("", *paths, ""))
    plain = (
        first == paths[0]
        and first.startswith("s3://")
        and text.isascii()
        and text.count("\n") == len(paths) + 1
        and text.count(f"\n{root}") == len(paths)
        and f"\n{root}\n" not in text
        and not ("#" in text or "?" in text or "/.." in text)
    )
    return paths if plain else [canonical(path) for path in paths]


def parse(path: str) -> ObjectLocation:
    """Return the object that a path names. Raises AmbiguousPath or UnsupportedLocation."""
    bucket, key = _split(path)
    if not key:
        raise AmbiguousPath(path, "it has no key")
    if bucket == LOCAL and key.endswith("/"):
        raise AmbiguousPath(path, "it names a directory")
    return ObjectLocation(bucket, key)


def split(uri: str) -> tuple[str, str]:
    """Return bucket and key of a canonical URI, without checks."""
    if uri.startswith("file:"):
        return LOCAL, uri.removeprefix("file:///")
    bucket, _, key = uri[5:].partition("/")
    return bucket, key


def uri_of(bucket: str, key: str) -> str:
    return f"file:///{key}" if bucket == LOCAL else f"s3://{bucket}/{key}"


def same_storage(path: str, other: str) -> bool:
    local = ("file:", "/")
    return path.lower().startswith(local) == other.lower().startswith(local)


@dataclass(frozen=True, slots=True)
class Root:
    """A location: a bucket and a key prefix without trailing slash, "" for the whole bucket."""

    bucket: str
    prefix: str

    @classmethod
    def of(cls, location: str) -> "Root":
        """Parse a table location or a credential's prefix. Raises AmbiguousPath or UnsupportedLocation."""
        bucket, key = _split(location)
        return cls(bucket, key.rstrip("/"))

    @property
    def uri(self) -> str:
        """The URI with a trailing slash, the prefix of every canonical path below it."""
        return uri_of(self.bucket, f"{self.prefix}/" if self.prefix else "")

    def overlaps(self, other: "Root") -> bool:
        return self.uri.startswith(other.uri) or other.uri.startswith(self.uri)


class Roots:
    """A set of locations. Paths are compared with the outermost ones."""

    def __init__(self, locations: Iterable[str]) -> None:
        self.roots = tuple(sorted({Root.of(location) for location in locations}, key=lambda root: root.uri))
        outermost: list[str] = []
        for uri in sorted(root.uri for root in self.roots):
            if not outermost or not uri.startswith(outermost[-1]):
                outermost.append(uri)
        self._uris = tuple(outermost)

    def contains(self, path: str) -> bool:
        """Return whether a canonical path is below a location: `…/t` contains `…/t/a`, but not `…/t2/a` or `…/t`."""
        return path.startswith(self._uris) and path not in self._uris

    def contain_range(self, first: str, last: str) -> bool:
        """Return whether all canonical paths from `first` to `last`, in text order, are below one location."""
        return any(first.startswith(uri) and last.startswith(uri) and first != uri for uri in self._uris)

    def meet_range(self, first: str, last: str) -> bool:
        """Return whether a path from `first` to `last`, in text order, may be below a location."""
        return any(uri <= last and (first <= uri or first.startswith(uri)) for uri in self._uris)

    def overlaps(self, other: "Roots") -> bool:
        return any(mine.overlaps(theirs) for mine in self.roots for theirs in other.roots)

    @property
    def uris(self) -> tuple[str, ...]:
        """Every location with a trailing slash, including nested ones."""
        return tuple(root.uri for root in self.roots)


def folded(key: str) -> str:
    """Return the common spelling of all keys that may mean the same object as this one."""
    for _ in range(_MOST_DECODED):
        decoded = unquote(key, errors="replace") if "%" in key else key
        if decoded == key:
            break
        key = decoded
    parts: list[str] = []
    for part in key.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    text = "/".join(parts)
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
    return text.replace("\x00", "�")


@dataclass(frozen=True, slots=True)
class ForeignLocations:
    """Other owners' locations, by the operator's setting. Nothing there is deleted. `uris` are canonical and end with a
    slash."""

    uris: tuple[str, ...] = ()

    @classmethod
    def of(cls, locations: Iterable[str]) -> Self:
        """Parse locations. Raises AmbiguousPath or UnsupportedLocation."""
        roots = [Root.of(location) for location in locations]
        plain = [Root(root.bucket, folded(root.prefix)) for root in roots]
        return cls(tuple(sorted({root.uri for root in (*roots, *plain)})))

    def contain(self, path: str) -> bool:
        """Return whether a canonical path is at or below a location, in any spelling of its key."""
        if not self.uris:
            return False
        bucket, key = split(path)
        is_odd = _ODD.search(key) is not None
        return path.startswith(self.uris) or (is_odd and f"{uri_of(bucket, folded(key))}/".startswith(self.uris))


def _split(path: str) -> tuple[str, str]:
    short = _SHORT_FILE.fullmatch(path)
    uri = _URI.fullmatch(path if short is None else f"file:///{short[1]}")
    if uri is None:
        raise UnsupportedLocation(path, "it is not an object URI")
    scheme, bucket, key = uri[1].lower(), uri[2], uri[3] or ""
    if scheme == "file":
        _check_file(path, bucket, key)
        bucket = LOCAL
    else:
        _check_s3(path, scheme, bucket, key)
    try:
        key.encode()
    except UnicodeEncodeError as error:
        raise AmbiguousPath(path, "it is not valid Unicode") from error
    return bucket, key


def _check_s3(path: str, scheme: str, bucket: str, key: str) -> None:
    if scheme not in {"s3", "s3a", "s3n"}:
        raise UnsupportedLocation(path, f"the scheme {scheme} is not supported")
    if not bucket:
        raise AmbiguousPath(path, "it has no bucket")
    for character in "#?":
        if character in path:
            raise AmbiguousPath(path, f"it contains {character}, which Iceberg's writers cut off")
    if not _BUCKET.fullmatch(bucket):
        raise AmbiguousPath(path, "it has no valid bucket name")
    if bucket.endswith("--table-s3"):
        raise UnsupportedLocation(path, "Amazon S3 Tables deletes the files there itself")
    if ".." in key.split("/"):
        raise AmbiguousPath(path, "it contains the component ..")


def _check_file(path: str, host: str, key: str) -> None:
    """Refuse a local file's path unless it has the one accepted spelling."""
    if host:
        raise UnsupportedLocation(path, "it names a file on another host")
    if any(part in {"", ".", ".."} for part in key.removesuffix("/").split("/")) and key:
        raise AmbiguousPath(path, "it contains an empty component, . or ..")
    if "#" in path or "?" in path or "\x00" in path:
        raise AmbiguousPath(path, "it contains #, ? or NUL")
