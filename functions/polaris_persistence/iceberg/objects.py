"""The object types of managed Iceberg metadata (NoSQL persistence proposal, Managed Iceberg Metadata).

A state of a table or view is one small IcebergMetadata. Every schema, spec, sort order, snapshot, ref and so on is a
separate object, written once and shared by all states that have it; many snapshots are packed into few objects. Values
are parsed JSON.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from pydantic import Field

from polaris_persistence.iceberg.packs import PACK_TYPE
from polaris_persistence.index.format import EmbeddedIndex, IndexBytes
from polaris_persistence.index.stripes import head_links
from polaris_persistence.objects.objects import ObjectRef, PersistedModel
from polaris_persistence.objects.types import Fetch, ObjectType


class IcebergPart(PersistedModel):
    """A part of the metadata with an id; `value` is its JSON."""

    value: Any


class IcebergSchema(IcebergPart):
    """An element of `schemas`."""


class IcebergSpec(IcebergPart):
    """An element of `partition-specs`."""


class IcebergSortOrder(IcebergPart):
    """An element of `sort-orders`."""


class IcebergSnapshot(IcebergPart):
    """An element of `snapshots`."""


class IcebergRef(IcebergPart):
    """A value of `refs`."""


class IcebergStatistics(IcebergPart):
    """An element of `statistics` or `partition-statistics`."""


class IcebergKey(IcebergPart):
    """An element of `encryption-keys` (format version 3)."""


class IcebergViewVersion(IcebergPart):
    """An element of a view's `versions`."""


class IcebergProperties(IcebergPart):
    """The whole of `properties`."""


class IcebergField(IcebergPart):
    """A top-level field that this release does not know and that is too large to repeat in every state."""


class IcebergLog(PersistedModel):
    """Consecutive entries of a log. An entry with exactly the fields `names` is stored as a list of its values."""

    names: tuple[str, ...]
    rows: list[Any]


class LogChunk(NamedTuple):
    """A reference to spilled log entries, oldest first, and their number."""

    ref: ObjectRef
    entries: int


class LogState(PersistedModel):
    """The log of a metadata state: `chunks` without the first `skip` entries, then `tail`."""

    names: tuple[str, ...] = ()
    skip: int = 0
    chunks: tuple[LogChunk, ...] = ()
    tail: tuple[Any, ...] = ()


class IcebergMetadata(PersistedModel):
    """One state of the metadata of a table or view.

    `kind` names the layout, `fields` are the small top-level fields, `sections` the present lists and maps, even empty
    ones, `derived` the fields that are computed on export, `index` names all parts.
    """

    kind: str
    fields: dict[str, Any]
    sections: tuple[str, ...]
    derived: tuple[str, ...] = ()
    index: IndexBytes = EmbeddedIndex()
    logs: dict[str, LogState] = Field(default_factory=dict)


def _links(state: IcebergMetadata, _fetch: Fetch) -> Iterator[ObjectRef]:
    yield from head_links(state.index)
    yield from (chunk.ref for log in state.logs.values() for chunk in log.chunks)


PART_TYPES: Final[dict[str, type[IcebergPart]]] = {
    "iceberg-schema": IcebergSchema,
    "iceberg-spec": IcebergSpec,
    "iceberg-order": IcebergSortOrder,
    "iceberg-snapshot": IcebergSnapshot,
    "iceberg-ref": IcebergRef,
    "iceberg-stats": IcebergStatistics,
    "iceberg-key": IcebergKey,
    "iceberg-version": IcebergViewVersion,
    "iceberg-props": IcebergProperties,
    "iceberg-field": IcebergField,
}

ICEBERG_TYPES: Final[Iterable[ObjectType[Any]]] = (
    ObjectType("iceberg", IcebergMetadata, links=_links),
    ObjectType("iceberg-log", IcebergLog),
    PACK_TYPE,
    *(ObjectType(name, model) for name, model in PART_TYPES.items()),
)
"""To be declared, together with STRIPES, wherever managed metadata is stored."""
