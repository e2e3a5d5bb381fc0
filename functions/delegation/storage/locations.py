"""Object URIs: which object a path means, which location it lies under, and which paths are too ambiguous to delete.

`s3`, `s3a` and `s3n` name the same object; path style and virtual-host style are matters of the endpoint, not of the
URI. The key is what stands after the bucket, to the letter: nothing is percent-decoded, no slash is folded or
stripped, because Iceberg's S3FileIO does not either (Iceberg `S3URI`). What S3FileIO would cut off (`#`, `?`) is
refused, for there the name in the metadata is not the name of the object. Files of this machine (`file:///`, which
Hadoop also writes `file:/` or without a scheme) are the other kind of storage; LOCAL stands for their bucket.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from delegation.errors import GuardRefused, printable

# No bucket of S3 has a colon.
LOCAL = "file:"

# The common case in one match, so that a million paths cost a million matches and no objects; anything else goes the
# long way.
_PLAIN = re.compile(r"s3://(?![^/]*--table-s3/)[a-z0-9][a-z0-9.\-_]*/[^#?]+", re.ASCII)
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*)://([^/]*)(?:/(.*))?", re.DOTALL)
_SHORT_FILE = re.compile(r"(?:file:)?/(?!/)(.*)", re.DOTALL | re.IGNORECASE)
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9.\-_]*", re.ASCII)


class AmbiguousPath(GuardRefused):
    """A path that writers and object stores resolve differently (`#`, `?`, `..`, no bucket, no key, not UTF-8)."""

    code = "AMBIGUOUS_PATH"

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{reason}: {printable(path)}")


class UnsupportedLocation(GuardRefused):
    """A path in a storage that this engine does not delete from."""

    code = "UNSUPPORTED_LOCATION"

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{reason}: {printable(path)}")


@dataclass(frozen=True, slots=True, order=True)
class ObjectLocation:
    """One object: its bucket and its key as written."""

    bucket: str
    key: str

    @property
    def uri(self) -> str:
        return uri_of(self.bucket, self.key)


def canonical(path: str) -> str:
    """The one spelling of an object's URI (`s3://bucket/key`, `file:///path`): equal exactly when the object is.

    Raises AmbiguousPath or UnsupportedLocation, so whatever passes may be compared as text and deleted by key.
    """
    if _PLAIN.fullmatch(path) and "/.." not in path and path.isascii():
        return path
    return parse(path).uri


def canonical_all(paths: list[str]) -> list[str]:
    """`canonical` of each; the many that are spelled so already, in one bucket, cost one look at all of them together.

    Raises what `canonical` does for the first that it does not take.
    """
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
    """The object a path names; raises AmbiguousPath or UnsupportedLocation."""
    bucket, key = _split(path)
    if not key:
        raise AmbiguousPath(path, "no key")
    if bucket == LOCAL and key.endswith("/"):
        raise AmbiguousPath(path, "a directory")
    return ObjectLocation(bucket, key)


def split(uri: str) -> tuple[str, str]:
    """Bucket and key of a canonical URI; no check is made again."""
    if uri.startswith("file:"):
        return LOCAL, uri.removeprefix("file:///")
    bucket, _, key = uri[5:].partition("/")
    return bucket, key


def uri_of(bucket: str, key: str) -> str:
    """The canonical URI of a key."""
    return f"file:///{key}" if bucket == LOCAL else f"s3://{bucket}/{key}"


def same_storage(one: str, other: str) -> bool:
    """Whether two locations are in the same kind of storage."""
    local = ("file:", "/")
    return one.lower().startswith(local) == other.lower().startswith(local)


@dataclass(frozen=True, slots=True)
class Root:
    """A location that files can lie under: a bucket and a key prefix without trailing slash ("": all of it)."""

    bucket: str
    prefix: str

    @classmethod
    def of(cls, location: str) -> "Root":
        """Read a table location or a credential's prefix; raises AmbiguousPath or UnsupportedLocation."""
        bucket, key = _split(location)
        return cls(bucket, key.rstrip("/"))

    @property
    def uri(self) -> str:
        """With a trailing slash: a canonical path lies under this root exactly when it starts with this and goes on."""
        return uri_of(self.bucket, f"{self.prefix}/" if self.prefix else "")

    def overlaps(self, other: "Root") -> bool:
        """Whether one lies at or below the other."""
        return self.uri.startswith(other.uri) or other.uri.startswith(self.uri)


class Roots:
    """A set of locations, nested ones folded into the outermost."""

    def __init__(self, locations: Iterable[str]) -> None:
        self.roots = tuple(sorted({Root.of(location) for location in locations}, key=lambda root: root.uri))
        outermost: list[str] = []
        for uri in sorted(root.uri for root in self.roots):
            if not outermost or not uri.startswith(outermost[-1]):
                outermost.append(uri)
        self._uris = tuple(outermost)

    def contains(self, path: str) -> bool:
        """Whether a canonical path lies below any of them."""
        return path.startswith(self._uris) and path not in self._uris

    def contain_range(self, first: str, last: str) -> bool:
        """Whether all canonical paths from `first` to `last`, in their order as text, lie below one of them."""
        return any(first.startswith(uri) and last.startswith(uri) and first != uri for uri in self._uris)

    def overlaps(self, other: "Roots") -> bool:
        return any(mine.overlaps(theirs) for mine in self.roots for theirs in other.roots)

    @property
    def uris(self) -> tuple[str, ...]:
        """Every location, nested ones too, with a trailing slash."""
        return tuple(root.uri for root in self.roots)


def _split(path: str) -> tuple[str, str]:
    short = _SHORT_FILE.fullmatch(path)
    found = _URI.fullmatch(path if short is None else f"file:///{short[1]}")
    if found is None:
        raise UnsupportedLocation(path, "not an object URI")
    scheme, bucket, key = found[1].lower(), found[2], found[3] or ""
    if scheme == "file":
        _check_file(path, bucket, key)
        bucket = LOCAL
    else:
        _check_s3(path, scheme, bucket, key)
    try:
        key.encode()
    except UnicodeEncodeError as error:
        raise AmbiguousPath(path, "not valid Unicode") from error
    return bucket, key


def _check_s3(path: str, scheme: str, bucket: str, key: str) -> None:
    if scheme not in {"s3", "s3a", "s3n"}:
        raise UnsupportedLocation(path, f"{scheme} is not supported")
    if not bucket:
        raise AmbiguousPath(path, "no bucket")
    for character in "#?":
        if character in path:
            raise AmbiguousPath(path, f"holds {character}, which writers cut off")
    if not _BUCKET.fullmatch(bucket):
        raise AmbiguousPath(path, "not a bucket name")
    if bucket.endswith("--table-s3"):
        raise UnsupportedLocation(path, "S3 Tables delete their own files")
    if ".." in key.split("/"):
        raise AmbiguousPath(path, "holds .. as a component")


def _check_file(path: str, host: str, key: str) -> None:
    """Check the key of a local file: a file system takes several spellings for one file, so all but one are refused."""
    if host:
        raise UnsupportedLocation(path, "files of another host")
    if any(part in {"", ".", ".."} for part in key.removesuffix("/").split("/")) and key:
        raise AmbiguousPath(path, "holds . or .. or nothing as a component")
    if "#" in path or "?" in path or "\x00" in path:
        raise AmbiguousPath(path, "holds # or ? or NUL")
