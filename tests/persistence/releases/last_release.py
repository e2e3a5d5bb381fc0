"""The stored models of the last release, frozen: what it decodes, and what it decides on that."""

from typing import Any, Final, NamedTuple

from pydantic import BaseModel, ConfigDict, Field


class Stored(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow")


class Ref(NamedTuple):
    type: str
    id: int
    parts: int = 1


class LogChunk(NamedTuple):
    ref: Ref
    entries: int


class EntityHead(Stored):
    seq: int = 0
    tail: tuple[int, ...] = ()
    created_at: int = 0
    operations: tuple[str, ...] = ()
    index: bytes = b""


class Realm(Stored):
    status: str = "ACTIVE"
    properties: dict[str, str] = Field(default_factory=dict)


class RealmCatalog(Stored):
    space: str
    dropped: bool = False
    properties: dict[str, str] = Field(default_factory=dict)


class TaskState(Stored):
    holder: str | None = None
    presumed_lost_at: int = 0
    runs: int = 0
    finished_at: int = 0
    state: dict[str, Any] = Field(default_factory=dict)


class NodeHolder(Stored):
    holder: str
    until: int


class MarkedObjects(Stored):
    bits: bytes
    size: int
    hashes: int
    salt: bytes
    count: int


class IndexStripe(Stored):
    data: bytes


class Part(Stored):
    value: Any


class Log(Stored):
    names: tuple[str, ...]
    rows: list[Any]


class LogState(Stored):
    names: tuple[str, ...] = ()
    skip: int = 0
    chunks: tuple[LogChunk, ...] = ()
    tail: tuple[Any, ...] = ()


class IcebergMetadata(Stored):
    kind: str
    fields: dict[str, Any]
    sections: tuple[str, ...]
    derived: tuple[str, ...] = ()
    index: bytes = b""
    logs: dict[str, LogState] = Field(default_factory=dict)


MODELS: Final[dict[str, type[Stored]]] = {
    "catalog-head": EntityHead,
    "realm": Realm,
    "catalog": RealmCatalog,
    "coordinated-task": TaskState,
    "maintenance-filter": MarkedObjects,
    "node": NodeHolder,
    "index-stripe": IndexStripe,
    "iceberg": IcebergMetadata,
    "iceberg-log": Log,
    **dict.fromkeys(
        ("iceberg-schema", "iceberg-spec", "iceberg-order", "iceberg-snapshot", "iceberg-ref", "iceberg-stats",
         "iceberg-key", "iceberg-version", "iceberg-props", "iceberg-field"),
        Part,
    ),
}  # fmt: skip
STATUSES: Final = {"ACTIVE", "INACTIVE", "PURGING"}
"""Any other status of a realm is refused with RealmNotReady by every use of the realm."""
RESUMES: Final = "filter"
"""A run continues a task's state only if it has this field, and begins anew otherwise."""
