"""The snapshots and refs of table metadata, as an expiry needs them (Iceberg Table Spec, Snapshots).

Fields are checked as by Iceberg's SnapshotParser, SnapshotRefParser and TableMetadata. The writers of a table choose
its number of snapshots and refs, so everything here takes linear time.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from delegation.iceberg.errors import CorruptMetadata
from delegation.polaris.model import properties_of

MAIN: Final = "main"
"""The branch of the current snapshot. It never expires by age."""
LONG: Final = range(-(2**63), 2**63)
INT: Final = range(-(2**31), 2**31)
_WHERE: Final = "the table's metadata"


@dataclass(frozen=True, slots=True)
class KnownSnapshot:
    """The fields of a snapshot that an expiry needs. `schema_id` is None if an old writer did not record it."""

    snapshot_id: int
    parent_id: int | None
    timestamp_ms: int
    schema_id: int | None


@dataclass(frozen=True, slots=True)
class Ref:
    """A branch or tag with its own retention. None takes the table's."""

    name: str
    snapshot_id: int
    is_branch: bool
    min_snapshots: int | None = None
    max_snapshot_age_ms: int | None = None
    max_age_ms: int | None = None


@dataclass(frozen=True, slots=True)
class TableHistory:
    """The snapshots and refs in metadata: `snapshots` by id and `refs` by name, in the order of the document."""

    snapshots: Mapping[int, KnownSnapshot]
    refs: Mapping[str, Ref]
    current_id: int | None
    properties: Mapping[str, str]
    current_schema_id: int
    schema_ids: tuple[int, ...]
    default_spec_id: int
    spec_ids: tuple[int, ...]

    def parent_of(self, snapshot_id: int) -> int | None:
        """Return the id of a snapshot's parent, None if it has none or the parent is gone."""
        parent = self.snapshots[snapshot_id].parent_id
        return parent if parent is not None and parent in self.snapshots else None


def history(metadata: Mapping[str, Any]) -> TableHistory:
    """Read the snapshots, refs, properties, schema ids and spec ids of parsed metadata. Raises CorruptMetadata.
    Metadata without `refs` is from an old writer: its current snapshot is the branch MAIN."""
    snapshots = _snapshots(metadata)
    current_id = _integer(metadata, "current-snapshot-id", LONG, default=None)
    if current_id is not None and current_id < 0:
        current_id = None
    refs = _refs(metadata, current_id)
    for ref in refs.values():
        if ref.snapshot_id not in snapshots:
            raise _corrupt("refs", "a ref names a snapshot that is not in the metadata")
    if current_id is not None and current_id not in snapshots:
        raise _corrupt("current-snapshot-id", "there is no such snapshot")
    main = refs.get(MAIN)
    if main is not None and main.snapshot_id != current_id:
        raise _corrupt("refs", "the branch main does not point to the current snapshot")
    schema_id, schema_ids = _schemas(metadata)
    spec_id, spec_ids = _specs(metadata)
    return TableHistory(snapshots, refs, current_id, _properties(metadata), schema_id, schema_ids, spec_id, spec_ids)


def _snapshots(metadata: Mapping[str, Any]) -> Mapping[int, KnownSnapshot]:
    snapshots: dict[int, KnownSnapshot] = {}
    for snapshot in _objects(metadata, "snapshots"):
        snapshot_id = _required(snapshot, "snapshot-id", LONG)
        if snapshot_id in snapshots:
            raise _corrupt("snapshots", f"snapshot {snapshot_id} is listed twice")
        snapshots[snapshot_id] = KnownSnapshot(
            snapshot_id,
            _integer(snapshot, "parent-snapshot-id", LONG, default=None),
            _required(snapshot, "timestamp-ms", LONG),
            _integer(snapshot, "schema-id", INT, default=None),
        )
    return snapshots


def _refs(metadata: Mapping[str, Any], current_id: int | None) -> Mapping[str, Ref]:
    if "refs" not in metadata:
        return {} if current_id is None else {MAIN: Ref(MAIN, current_id, is_branch=True)}
    given = metadata["refs"]
    if not isinstance(given, Mapping):
        raise _corrupt("refs", "it is not an object")
    return {str(name): _ref(str(name), ref) for name, ref in given.items()}


def _ref(name: str, given: Any) -> Ref:
    if not isinstance(given, Mapping):
        raise _corrupt("refs", "a ref is not an object")
    type_ = str(given.get("type")).upper()
    if type_ not in ("BRANCH", "TAG"):
        raise _corrupt("refs", "a ref is neither a branch nor a tag")
    minimum = _integer(given, "min-snapshots-to-keep", INT, default=None)
    age = _integer(given, "max-snapshot-age-ms", LONG, default=None)
    ref_age = _integer(given, "max-ref-age-ms", LONG, default=None)
    if type_ == "TAG" and (minimum is not None or age is not None):
        raise _corrupt("refs", "a tag sets snapshot retention, which only branches may set")
    if any(number is not None and number <= 0 for number in (minimum, age, ref_age)):
        raise _corrupt("refs", "a ref's retention is not greater than 0")
    return Ref(name, _required(given, "snapshot-id", LONG), type_ == "BRANCH", minimum, age, ref_age)


def _schemas(metadata: Mapping[str, Any]) -> tuple[int, tuple[int, ...]]:
    if metadata.get("schemas") is None:
        only = metadata.get("schema")
        schema_id = _integer(only if isinstance(only, Mapping) else {}, "schema-id", INT, default=0) or 0
        return schema_id, (schema_id,)
    ids = [_integer(schema, "schema-id", INT, default=0) or 0 for schema in _objects(metadata, "schemas")]
    return _required(metadata, "current-schema-id", INT), tuple(ids)


def _specs(metadata: Mapping[str, Any]) -> tuple[int, tuple[int, ...]]:
    if metadata.get("partition-specs") is None:
        return 0, (0,)
    try:
        ids = [_required(spec, "spec-id", INT) for spec in _objects(metadata, "partition-specs")]
        return _required(metadata, "default-spec-id", INT), tuple(ids)
    except CorruptMetadata:
        # Specs are needed only to remove unused ones, and here none is removed.
        return 0, ()


def _properties(metadata: Mapping[str, Any]) -> Mapping[str, str]:
    if not isinstance(metadata.get("properties") or {}, Mapping):
        raise _corrupt("properties", "it is not a map of strings")
    return properties_of(metadata)


def _objects(metadata: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    given = metadata.get(name)
    if given is None:
        return []
    if not isinstance(given, list) or not all(isinstance(element, Mapping) for element in given):
        raise _corrupt(name, "it is not a list of objects")
    return given


def _required(given: Mapping[str, Any], name: str, within: range) -> int:
    number = _integer(given, name, within, default=None)
    if number is None:
        raise _corrupt(name, "it is missing")
    return number


def _integer(given: Mapping[str, Any], name: str, within: range, *, default: int | None) -> int | None:
    value = given.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value not in within:
        raise _corrupt(name, "it is not an integer, or is out of range")
    return value


def _corrupt(field: str, reason: str) -> CorruptMetadata:
    return CorruptMetadata(_WHERE, field, reason)
