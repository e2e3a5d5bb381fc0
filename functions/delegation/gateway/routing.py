"""Which requests the gateway handles, decided from a request alone, and how paths are spelled.

Paths that could leave the catalog's base are refused; equal paths get one form. Servers and proxies disagree about dot
segments, empty segments, backslashes, parameters of segments, and repeated decoding (RFC 3986, 3.3, 5.2.4, 6.2.2); the
catalog's API needs none of them.

Routes follow the Iceberg REST Catalog API, "paths". Path names are percent-encoded, and a separator (0x1F by default)
joins a namespace's levels.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Final
from urllib.parse import parse_qsl, unquote, unquote_to_bytes

from delegation.gateway.messages import CatalogRequest, UnsafeName, UnsafePath
from delegation.identifiers import NAMESPACE_SEPARATOR, TableIdentifier, encoded

_RAW: Final = re.compile(r"[!-~]*")
_QUERY: Final = re.compile(r"[!-\"$-~]*")
"""The same without `#`, which would end the query."""
_SEGMENT: Final = (
    r"(?!\.{1,2}(?:/|\Z))"
    r"(?:[A-Za-z0-9_.~-]++|%(?:0[1-9A-F]|1[0-9A-F]|2[0-46-9A-C]|3[A-F]|40|5[BDE]|60|7[BCDF]|[89A-F][0-9A-F]))++"
)
"""A segment in its canonical form without `%2F`, `%5C`, `%00` and `%25`: decoding it again changes nothing."""
_PLAIN: Final = re.compile(rf"{_SEGMENT}(?:/{_SEGMENT})*+")
_NO_REQUEST_LINE: Final = "a character that is not allowed in a request line"
_DECODED_AT_MOST: Final = 8
_PARTS: Final = re.compile(rb"/")


def check_target(path: str, query: str) -> None:
    """Raise UnsafePath unless all servers read the path as the same segments below the base."""
    if _PLAIN.fullmatch(path) is None:
        _check_path(path)
    if _QUERY.fullmatch(query) is None:
        raise UnsafePath(_NO_REQUEST_LINE)


def canonical_path(path: str) -> str:
    """Return a checked path in the form that all its spellings share."""
    return path if _PLAIN.fullmatch(path) is not None else _respelled(path)


def _check_path(path: str) -> None:
    """Check a path of any form; `_PLAIN` passes most requests without it."""
    if _RAW.fullmatch(path) is None or "#" in path or "?" in path:
        raise UnsafePath(_NO_REQUEST_LINE)
    if ";" in path:
        raise UnsafePath("a parameter of a segment (;)")
    for segment in path.split("/"):
        _check(segment.encode("ascii"), UnsafePath)


def _respelled(path: str) -> str:
    return "/".join(encoded(unquote_to_bytes(segment)) for segment in path.split("/"))


def segment_of(name: str, separator: str | None = None) -> str:
    """Return a name from a body as one path segment. Raises UnsafeName, also if a level contains `separator`."""
    if separator is not None and (separator in name or "\x1f" in name):
        raise UnsafeName("the separator of namespaces")
    try:
        _check(name.encode(), UnsafeName)
    except UnicodeEncodeError:
        raise UnsafeName("half a surrogate pair") from None
    return encoded(name)


def _check(segment: bytes, error: "type[UnsafePath | UnsafeName]") -> None:
    """Raise the error for an empty segment, a dot segment or a backslash, also if encoded any number of times."""
    for _ in range(_DECODED_AT_MOST):
        parts = _PARTS.split(segment)
        if b"" in parts:
            raise error("an empty segment")
        if b"." in parts or b".." in parts:
            raise error("a dot segment")
        if b"\\" in segment or b"\0" in segment:
            raise error("a backslash or a null character")
        decoded = unquote_to_bytes(segment)
        if decoded == segment:
            return
        segment = decoded
    raise error("too many nested percent-escapes")


KEY_HEADER: Final = "Idempotency-Key"
_NAMESPACES: Final = "namespaces"
PURGE: Final = "purgeRequested"
_TOMBSTONE: Final = re.compile(r"[0-9a-f]{16}-[0-9]{13}-[0-9a-f]{8}")


class Operation(StrEnum):
    """The catalog's mutations (Idempotency-Key proposal, "Endpoints in Scope"), by their names in Iceberg's API."""

    CREATE_NAMESPACE = "createNamespace"
    DROP_NAMESPACE = "dropNamespace"
    SET_PROPERTIES = "updateProperties"
    CREATE_TABLE = "createTable"
    REGISTER_TABLE = "registerTable"
    COMMIT_TABLE = "updateTable"
    DROP_TABLE = "dropTable"
    UNREGISTER_TABLE = "unregisterTable"
    RENAME_TABLE = "renameTable"
    COMMIT_TRANSACTION = "commitTransaction"
    CREATE_VIEW = "createView"
    REGISTER_VIEW = "registerView"
    REPLACE_VIEW = "replaceView"
    DROP_VIEW = "dropView"
    RENAME_VIEW = "renameView"


@dataclass(frozen=True, slots=True)
class Target:
    """What a path names: `prefix` encoded in canonical form, `namespace` and `name` decoded. If the body names what
    changes, the namespace is empty and the name None."""

    operation: Operation
    prefix: str
    namespace: tuple[str, ...] = ()
    name: str | None = None

    @property
    def catalog(self) -> str:
        """The catalog's name; empty for a server without a prefix."""
        return unquote(self.prefix)


@dataclass(frozen=True, slots=True)
class ConfigDiscovery:
    """`GET /v1/config`, whose answer states that keys are honored."""


@dataclass(frozen=True, slots=True)
class DropWithPurge:
    """`DELETE` of a table with `purgeRequested`."""

    target: Target
    identifier: TableIdentifier


@dataclass(frozen=True, slots=True)
class KeyedMutation:
    target: Target


@dataclass(frozen=True, slots=True)
class UnknownMutation:
    """A request with an Idempotency-Key that is neither a read nor a mutation with a rule."""


@dataclass(frozen=True, slots=True)
class Forwarded:
    """Any other request, forwarded unchanged."""


@dataclass(frozen=True, slots=True)
class OwnTombstones:
    """`GET /v1/tombstones?mine`, the tables that the caller dropped, or `POST /v1/tombstones/{id}/restore`."""

    tombstone_id: str | None = None


Route = ConfigDiscovery | OwnTombstones | DropWithPurge | KeyedMutation | UnknownMutation | Forwarded


@dataclass(frozen=True, slots=True)
class CatalogPaths:
    """How the catalog writes paths; `separator` joins the levels of a namespace."""

    separator: str = NAMESPACE_SEPARATOR

    def levels(self, encoded: str) -> tuple[str, ...]:
        """Return the levels of a namespace in a path. Polaris also splits at 0x1F, whatever its separator: clients
        before Iceberg 1.11 send nothing else."""
        text = unquote(encoded)
        return tuple(text.split(NAMESPACE_SEPARATOR if NAMESPACE_SEPARATOR in text else self.separator))

    def namespaces(self, prefix: str) -> str:
        return f"v1/{prefix}/{_NAMESPACES}" if prefix else f"v1/{_NAMESPACES}"

    def namespace(self, prefix: str, levels: Sequence[str]) -> str:
        """Return the path of a namespace. Raises UnsafeName."""
        if isinstance(levels, str) or not levels:
            raise ValueError("a namespace is a list of at least one level")
        joined = encoded(self.separator).join(segment_of(level, self.separator) for level in levels)
        return f"{self.namespaces(prefix)}/{joined}"

    def table(self, prefix: str, levels: Sequence[str], name: str) -> str:
        return f"{self.namespace(prefix, levels)}/tables/{segment_of(name)}"

    def view(self, prefix: str, levels: Sequence[str], name: str) -> str:
        return f"{self.namespace(prefix, levels)}/views/{segment_of(name)}"


DEFAULT_PATHS: Final = CatalogPaths()

_TABLE: Final = (_NAMESPACES, "*", "tables", "*")
_VIEW: Final = (_NAMESPACES, "*", "views", "*")
_READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
# The path below the catalog ("*" is a namespace or a name) -> the operation of each method; None only reads.
_OPERATIONS: Final[Mapping[tuple[str, ...], Mapping[str, Operation | None]]] = {
    (_NAMESPACES,): {"POST": Operation.CREATE_NAMESPACE},
    (_NAMESPACES, "*"): {"DELETE": Operation.DROP_NAMESPACE},
    (_NAMESPACES, "*", "properties"): {"POST": Operation.SET_PROPERTIES},
    (_NAMESPACES, "*", "tables"): {"POST": Operation.CREATE_TABLE},
    (_NAMESPACES, "*", "register"): {"POST": Operation.REGISTER_TABLE},
    _TABLE: {"POST": Operation.COMMIT_TABLE, "DELETE": Operation.DROP_TABLE},
    (*_TABLE, "unregister"): {"POST": Operation.UNREGISTER_TABLE},
    (*_TABLE, "metrics"): {"POST": None},
    (*_TABLE, "plan"): {"POST": None},
    (*_TABLE, "plan", "*"): {"DELETE": None},
    (*_TABLE, "sign"): {"POST": None},
    (*_TABLE, "tasks"): {"POST": None},
    (_NAMESPACES, "*", "views"): {"POST": Operation.CREATE_VIEW},
    (_NAMESPACES, "*", "register-view"): {"POST": Operation.REGISTER_VIEW},
    _VIEW: {"POST": Operation.REPLACE_VIEW, "DELETE": Operation.DROP_VIEW},
    ("tables", "rename"): {"POST": Operation.RENAME_TABLE},
    ("views", "rename"): {"POST": Operation.RENAME_VIEW},
    ("transactions", "commit"): {"POST": Operation.COMMIT_TRANSACTION},
    ("oauth", "tokens"): {"POST": None},
}
_FIRST: Final = frozenset(path[0] for path in _OPERATIONS)


def route_of(request: CatalogRequest, paths: CatalogPaths = DEFAULT_PATHS) -> Route:
    segments = canonical_path(request.path).split("/")
    if request.method == "GET" and segments == ["v1", "config"]:
        return ConfigDiscovery()
    own = _own_tombstones(request, segments)
    if own is not None:
        return own
    is_keyed = request.header(KEY_HEADER) is not None
    if request.method in _READS:
        return Forwarded()
    pattern = _found(segments)
    if pattern is None or request.method not in pattern.operations:
        return UnknownMutation() if is_keyed else Forwarded()
    operation = pattern.operations[request.method]
    if operation is None:
        return Forwarded()
    target = pattern.target(operation, paths)
    if operation is Operation.DROP_TABLE and is_purge(request.query):
        with suppress(ValueError):  # the catalog refuses an impossible name
            return DropWithPurge(target, TableIdentifier(target.catalog, target.namespace, target.name or ""))
    return KeyedMutation(target) if is_keyed else Forwarded()


def _own_tombstones(request: CatalogRequest, segments: Sequence[str]) -> OwnTombstones | None:
    """Return a request about the caller's tombstones; None for any other, also for a catalog of that name."""
    match request.method, segments:
        case "GET", ["v1", "tombstones"] if "mine" in query_of(request.query):
            return OwnTombstones()
        case "POST", ["v1", "tombstones", tombstone_id, "restore"] if _TOMBSTONE.fullmatch(tombstone_id):
            return OwnTombstones(tombstone_id)
        case _:
            return None


def is_purge(query: str) -> bool:
    """Return whether a query requests a purge, in any case: pyiceberg writes `True`."""
    return query_of(query).get(PURGE, "").lower() == "true"


def query_of(query: str) -> Mapping[str, str]:
    """Return a query's parameters; the first value of a repeated one, as servers read it."""
    return dict(reversed(parse_qsl(query, keep_blank_values=True)))


@dataclass(frozen=True, slots=True)
class _Found:
    """A path of the catalog: its prefix, the names in it, and what each method does."""

    prefix: str
    names: Sequence[str]
    operations: Mapping[str, Operation | None]

    def target(self, operation: Operation, paths: CatalogPaths) -> Target:
        return Target(
            operation,
            self.prefix,
            namespace=paths.levels(self.names[0]) if self.names else (),
            name=unquote(self.names[1]) if len(self.names) > 1 else None,
        )


def _found(path: Sequence[str]) -> _Found | None:
    """Classify a path by position: catalogs, namespaces and tables may be called "tables". A prefix is one segment, as
    in Polaris; or there is none; or it has several segments and does not start with one of the path's own words."""
    if path[0] != "v1" or "" in path:
        return None
    segments = path[1:]
    several = range(2, len(segments)) if segments[1:2] and segments[1] not in _FIRST else ()
    for length in (1, 0, *several):
        own = segments[length:]
        names = own[1::2] if own[:1] == [_NAMESPACES] else []
        shape = [part if index % 2 == 0 else "*" for index, part in enumerate(own)] if names else own
        operations = _OPERATIONS.get(tuple(shape))
        if operations is not None:
            return _Found("/".join(segments[:length]), names, operations)
    return None
