"""Manifest entries with the fields needed to choose files: partition, sequence number, rows, and the data file of a
delete file. `manifests` reads fewer fields, and is faster."""

import math
import struct
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import lru_cache
from typing import Any, Final, NamedTuple

from delegation.iceberg.avro.container import (
    MAX_BLOCK_BYTES,
    AvroType,
    Node,
    parse_schema,
    read_header,
    read_long,
)
from delegation.iceberg.avro.decoder import DecodedRow, Wanted, locate, record_of
from delegation.iceberg.avro.manifests import DATA_FILE, read_fields
from delegation.iceberg.errors import CorruptManifestError, MalformedError

PartitionValues = tuple[tuple[int, Any], ...]
"""The id of each partition field and its value as Avro encodes it, None for null, in the order of the ids."""

_PATH_ID: Final = 2147483546
"""The id of the column `file_path` of position deletes (Iceberg Table Spec, Reserved Field IDs)."""
_PARTITION: Final = Wanted((DATA_FILE, (102, ("partition",))), raw=True)
_VALUES: Final = Wanted((DATA_FILE, (109, ("value_counts",))), raw=True)
_NULLS: Final = Wanted((DATA_FILE, (110, ("null_value_counts",))), raw=True)
_LOWER: Final = Wanted((DATA_FILE, (125, ("lower_bounds",))), raw=True)
_UPPER: Final = Wanted((DATA_FILE, (128, ("upper_bounds",))), raw=True)
_FIELDS: Final = (
    Wanted(((0, ("status",)),), required=True, least=0, most=2),
    Wanted(((1, ("snapshot_id",)),)),
    Wanted(((3, ("sequence_number",)),)),
    Wanted((DATA_FILE, (134, ("content",))), default=0, least=0, most=2),
    Wanted((DATA_FILE, (100, ("file_path",))), text=True, required=True),
    Wanted((DATA_FILE, (101, ("file_format",))), text=True, required=True),
    Wanted((DATA_FILE, (103, ("record_count",))), required=True, default=0, least=0, lenient=True),
    Wanted((DATA_FILE, (104, ("file_size_in_bytes",))), required=True, default=0, least=0, lenient=True),
    _PARTITION,
)
_OF_DELETES: Final = (
    Wanted((DATA_FILE, (143, ("referenced_data_file",))), text=True),
    Wanted((DATA_FILE, (145, ("content_size_in_bytes",))), least=0),
    Wanted((DATA_FILE, (135, ("equality_ids",))), raw=True),
)
_STATS: Final = (_VALUES, _NULLS, _LOWER, _UPPER)
_EQUALITY: Final = 2
_UNDECODED: Final = "a partition or bounds cannot be decoded"


class ColumnStats(NamedTuple):
    """What an entry states of a column: numbers of values and of nulls, and bounds. None if not stated."""

    values: int | None = None
    nulls: int | None = None
    lower: bytes | None = None
    upper: bytes | None = None


class FileEntry(NamedTuple):
    """A manifest entry. `snapshot_id` and `sequence_number` are None if inherited from the manifest.
    `referenced_data_file` is set if a delete file belongs to one data file, which it names directly or by equal bounds
    of its paths. `stats` are those of the requested columns, for an equality delete those of `equality_ids`."""

    status: int
    snapshot_id: int | None
    sequence_number: int | None
    content: int
    file_path: str
    file_format: str
    record_count: int
    file_size_in_bytes: int
    partition: PartitionValues
    referenced_data_file: str | None = None
    content_size_in_bytes: int | None = None
    equality_ids: tuple[int, ...] = ()
    stats: Mapping[int, ColumnStats] = {}


def read_entries(
    data: bytes,
    path: str,
    *,
    deletes: bool,
    columns: Set[int] = frozenset(),
    max_block_bytes: int = MAX_BLOCK_BYTES,
) -> Iterator[list[FileEntry]]:
    """Yield all entries of a manifest in lists of up to 1,024. `deletes` is true for a manifest of delete files. For
    data files the stats of `columns` are read. Raises CorruptManifestError while iterating."""
    partitions: dict[bytes, PartitionValues] = {}
    schema = b""
    fields = (*_FIELDS, *_OF_DELETES, *_STATS) if deletes else (*_FIELDS, *_STATS) if columns else _FIELDS
    for rows in read_fields(data, path, fields, max_block_bytes):
        schema = schema or read_header(data).schema
        try:
            for raw in {row[8] for row in rows} - partitions.keys():
                partitions[raw] = _partition(_decoded(schema, _PARTITION, raw))
            yield [
                FileEntry._make((*row[:8], partitions[row[8]], *_more(schema, row, columns, deletes=deletes)))
                for row in rows
            ]
        except MalformedError as error:
            why = f"{error.reason}, at byte {error.position} of the value"
            raise CorruptManifestError(path, None, f"{_UNDECODED}: {why}") from error
        except (IndexError, struct.error, UnicodeDecodeError) as error:
            raise CorruptManifestError(path, None, f"{_UNDECODED}: {error}") from error


def _more(schema: bytes, row: DecodedRow, columns: Set[int], *, deletes: bool) -> Sequence[Any]:
    """Return the fields of an entry that follow its partition."""
    if not deletes:
        return None, None, (), _stats(schema, row[9:], columns) if columns else {}
    content, (named, size, raw_ids), stats = row[3], row[9:12], row[12:]
    ids = tuple(_decoded(schema, _OF_DELETES[2], raw_ids) or ()) if content == _EQUALITY and raw_ids else ()
    lower, upper = stats[2:]
    if named is None and content == 1 and lower and upper:
        first, last = (_path_in(_decoded(schema, want, raw)) for want, raw in ((_LOWER, lower), (_UPPER, upper)))
        named = first if first == last else None
    return named, size, ids, _stats(schema, stats, frozenset(ids)) if ids else {}


def _stats(schema: bytes, raws: Sequence[bytes], columns: Set[int]) -> Mapping[int, ColumnStats]:
    maps = [_map(_decoded(schema, want, raw), columns) if raw else {} for want, raw in zip(_STATS, raws, strict=True)]
    return {column: ColumnStats(*(of_kind.get(column) for of_kind in maps)) for column in columns}


def _map(entries: Any, keys: Set[int]) -> Mapping[int, Any]:
    """Return a map with integer keys, which Avro stores as a list of records."""
    pairs = (tuple(entry.values()) for entry in entries or () if isinstance(entry, dict))
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2 and pair[0] in keys}


def _partition(values: Any) -> PartitionValues:
    if not isinstance(values, dict):
        raise MalformedError(0, "the partition is not a record")
    return tuple(
        sorted(((key, value) for key, value in values.items() if isinstance(key, int)), key=lambda item: item[0])
    )


def _path_in(bounds: Any) -> str | None:
    """Return the bound of the paths in a position delete file, None without one."""
    path = _map(bounds, frozenset({_PATH_ID})).get(_PATH_ID)
    return None if path is None else bytes(path).decode()


def _decoded(schema: bytes, want: Wanted, raw: bytes) -> Any:
    nodes, index = _node_of(schema, want)
    return _value(nodes, index, raw, 0)[0]


@lru_cache(maxsize=64)
def _node_of(raw_schema: bytes, want: Wanted) -> tuple[tuple[Node, ...], int]:
    schema = parse_schema(raw_schema)
    tree: Any = locate(schema, (want,))
    index = schema.root
    while isinstance(tree, dict):
        ((position, tree),) = tree.items()
        index = schema.nodes[record_of(schema.nodes, index)].children[position]
    return schema.nodes, index


def _value(nodes: Sequence[Node], index: int, raw: bytes, pos: int) -> tuple[Any, int]:
    """Return a value of a few simple types, and the next position. A record becomes a mapping by field id, or by
    position for fields without an id."""
    node = nodes[index]
    if node.kind is AvroType.UNION:
        branch, pos = read_long(raw, pos)
        return _value(nodes, node.children[branch], raw, pos)
    if node.kind is AvroType.RECORD:
        record: dict[Any, Any] = {}
        for position, (field_id, child) in enumerate(zip(node.ids, node.children, strict=True)):
            record[field_id if field_id is not None else str(position)], pos = _value(nodes, child, raw, pos)
        return record, pos
    if node.kind is AvroType.ARRAY:
        return _items(nodes, node, raw, pos)
    if node.width is not None:
        return _fixed(node, raw, pos), pos + node.width
    number, pos = read_long(raw, pos)
    if node.kind in (AvroType.INT, AvroType.LONG):
        return number, pos
    if node.kind in (AvroType.STRING, AvroType.BYTES):
        value = raw[pos : pos + number]
        return (value.decode() if node.kind is AvroType.STRING else value), pos + number
    raise MalformedError(pos, f"the Avro type {node.kind} is not supported here")


def _fixed(node: Node, raw: bytes, pos: int) -> Any:
    if node.kind is AvroType.NULL:
        return None
    if node.kind is AvroType.BOOLEAN:
        return raw[pos] == 1
    if node.kind is AvroType.FIXED:
        return raw[pos : pos + node.size]
    if node.kind not in (AvroType.FLOAT, AvroType.DOUBLE):
        raise MalformedError(pos, f"the Avro type {node.kind} is not supported here")
    number = struct.unpack_from("<f" if node.kind is AvroType.FLOAT else "<d", raw, pos)[0]
    # One object for all NaNs makes equal partitions compare as equal.
    return math.nan if math.isnan(number) else number


def _items(nodes: Sequence[Node], node: Node, raw: bytes, pos: int) -> tuple[list[Any], int]:
    items = []
    count, pos = read_long(raw, pos)
    while count:
        if count < 0:
            count, (_, pos) = -count, read_long(raw, pos)
        for _ in range(count):
            value, pos = _value(nodes, node.children[0], raw, pos)
            items.append(value)
        count, pos = read_long(raw, pos)
    return items, pos
