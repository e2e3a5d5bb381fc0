"""Which requests concern the gateway, decided from a request alone (Iceberg REST Catalog API, "paths").

Names in a path are percent-encoded, and the levels of a namespace are joined by a separator (0x1F by default).
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Final
from urllib.parse import parse_qsl, unquote

from delegation.gateway.messages import CatalogRequest
from delegation.gateway.spelling import canonical_path, segment_of
from delegation.identifiers import NAMESPACE_SEPARATOR, TableIdentifier, encoded

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
    RENAME_TABLE = "renameTable"
    COMMIT_TRANSACTION = "commitTransaction"
    CREATE_VIEW = "createView"
    REGISTER_VIEW = "registerView"
    REPLACE_VIEW = "replaceView"
    DROP_VIEW = "dropView"
    RENAME_VIEW = "renameView"


@dataclass(frozen=True, slots=True)
class Target:
    """What an operation's path names; `prefix` is encoded in its canonical form, `namespace` and `name` are decoded.

    The namespace is empty and the name is None for an operation whose body names what it changes.
    """

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
    """`GET /v1/config`, whose answer states that keys are honoured."""


@dataclass(frozen=True, slots=True)
class DropWithPurge:
    """`DELETE` of a table with `purgeRequested`."""

    target: Target
    identifier: TableIdentifier


@dataclass(frozen=True, slots=True)
class KeyedMutation:
    """A mutation with an Idempotency-Key, which is not checked yet."""

    target: Target


@dataclass(frozen=True, slots=True)
class Forwarded:
    """Any other request; the gateway adds nothing to it."""


@dataclass(frozen=True, slots=True)
class OwnTombstones:
    """`GET /v1/tombstones?mine`, the tables that the caller dropped, or `POST /v1/tombstones/{id}/restore` of one."""

    tombstone_id: str | None = None


Route = ConfigDiscovery | OwnTombstones | DropWithPurge | KeyedMutation | Forwarded


@dataclass(frozen=True, slots=True)
class CatalogPaths:
    """How the catalog writes paths; `separator` joins the levels of a namespace."""

    separator: str = NAMESPACE_SEPARATOR

    def levels(self, encoded: str) -> tuple[str, ...]:
        """Return the levels of a namespace in a path.

        Polaris also splits at 0x1F whatever its separator is, as clients before Iceberg 1.11 send nothing else.
        """
        text = unquote(encoded)
        return tuple(text.split(NAMESPACE_SEPARATOR if NAMESPACE_SEPARATOR in text else self.separator))

    def namespaces(self, prefix: str) -> str:
        """Return the path of a catalog's namespaces."""
        return f"v1/{prefix}/{_NAMESPACES}" if prefix else f"v1/{_NAMESPACES}"

    def namespace(self, prefix: str, levels: Sequence[str]) -> str:
        """Return the path of a namespace; raises UnsafeName."""
        if isinstance(levels, str) or not levels:
            raise ValueError("a namespace is a list of at least one level")
        joined = encoded(self.separator).join(segment_of(level, self.separator) for level in levels)
        return f"{self.namespaces(prefix)}/{joined}"

    def table(self, prefix: str, levels: Sequence[str], name: str) -> str:
        """Return the path of a table."""
        return f"{self.namespace(prefix, levels)}/tables/{segment_of(name)}"

    def view(self, prefix: str, levels: Sequence[str], name: str) -> str:
        """Return the path of a view."""
        return f"{self.namespace(prefix, levels)}/views/{segment_of(name)}"


DEFAULT_PATHS: Final = CatalogPaths()

# (method, the path's end; "*" is a namespace or a name) -> the operation. Longer ends come first: a catalog or a
# namespace may be called "tables".
_ENDS: Final[Sequence[tuple[str, tuple[str, ...], Operation]]] = (
    ("POST", (_NAMESPACES, "*", "tables", "*"), Operation.COMMIT_TABLE),
    ("DELETE", (_NAMESPACES, "*", "tables", "*"), Operation.DROP_TABLE),
    ("POST", (_NAMESPACES, "*", "views", "*"), Operation.REPLACE_VIEW),
    ("DELETE", (_NAMESPACES, "*", "views", "*"), Operation.DROP_VIEW),
    ("POST", (_NAMESPACES, "*", "properties"), Operation.SET_PROPERTIES),
    ("POST", (_NAMESPACES, "*", "tables"), Operation.CREATE_TABLE),
    ("POST", (_NAMESPACES, "*", "register"), Operation.REGISTER_TABLE),
    ("POST", (_NAMESPACES, "*", "views"), Operation.CREATE_VIEW),
    ("POST", (_NAMESPACES, "*", "register-view"), Operation.REGISTER_VIEW),
    ("DELETE", (_NAMESPACES, "*"), Operation.DROP_NAMESPACE),
    ("POST", ("tables", "rename"), Operation.RENAME_TABLE),
    ("POST", ("views", "rename"), Operation.RENAME_VIEW),
    ("POST", ("transactions", "commit"), Operation.COMMIT_TRANSACTION),
    ("POST", (_NAMESPACES,), Operation.CREATE_NAMESPACE),
)


_ENDS_OF: Final = {
    each: [(end, operation) for method, end, operation in _ENDS if method == each] for each in ("POST", "DELETE")
}


def route_of(request: CatalogRequest, paths: CatalogPaths = DEFAULT_PATHS) -> Route:
    """Return what a request is to the gateway."""
    segments = canonical_path(request.path).split("/")
    if request.method == "GET" and segments == ["v1", "config"]:
        return ConfigDiscovery()
    own = _own_tombstones(request, segments)
    if own is not None:
        return own
    target = _target_of(request.method, segments, paths)
    if target is None:
        return Forwarded()
    if target.operation is Operation.DROP_TABLE and is_purge(request.query):
        with suppress(ValueError):  # the catalog refuses a name that cannot be one
            return DropWithPurge(target, TableIdentifier(target.catalog, target.namespace, target.name or ""))
    return Forwarded() if request.header(KEY_HEADER) is None else KeyedMutation(target)


def _own_tombstones(request: CatalogRequest, segments: Sequence[str]) -> OwnTombstones | None:
    """Return what a request asks of the caller's tombstones; a catalog may have this name, but no such paths."""
    match request.method, segments:
        case "GET", ["v1", "tombstones"] if "mine" in query_of(request.query):
            return OwnTombstones()
        case "POST", ["v1", "tombstones", found, "restore"] if _TOMBSTONE.fullmatch(found):
            return OwnTombstones(found)
        case _:
            return None


def is_purge(query: str) -> bool:
    """Whether a query asks for a purge; pyiceberg writes `True`, and servers take it in any case."""
    return query_of(query).get(PURGE, "").lower() == "true"


def query_of(query: str) -> Mapping[str, str]:
    """Return the parameters of a query; of a repeated one the first value, as servers read it."""
    return dict(reversed(parse_qsl(query, keep_blank_values=True)))


def _target_of(method: str, path: Sequence[str], paths: CatalogPaths) -> Target | None:
    if path[0] != "v1":
        return None
    segments = path[1:]
    for end, operation in _ENDS_OF.get(method, ()):
        if _ends_with(segments, end):
            return _target(operation, segments, end, paths)
    return None


def _ends_with(segments: Sequence[str], end: Sequence[str]) -> bool:
    found = segments[-len(end) :]
    if len(found) != len(end):
        return False
    for given, wanted in zip(found, end, strict=True):  # noqa: SIM110  `all` would be a call for each segment
        if given != wanted and (wanted != "*" or not given):
            return False
    return True


def _target(operation: Operation, segments: Sequence[str], end: Sequence[str], paths: CatalogPaths) -> Target:
    own = segments[-len(end) :]
    named = [given for given, wanted in zip(own, end, strict=True) if wanted == "*"]
    return Target(
        operation,
        prefix="/".join(segments[: -len(end)]),
        namespace=paths.levels(named[0]) if named else (),
        name=unquote(named[1]) if len(named) > 1 else None,
    )
