"""The data files of a branch by partition, with the deletes that apply to each, read from manifests without Spark.
Iceberg's DeleteFileIndex defines which deletes apply. Files that need no rewrite are counted and not kept."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from delegation.iceberg.avro.container import read_header
from delegation.iceberg.avro.entries import FileEntry, PartitionValues, read_entries
from delegation.iceberg.avro.manifests import ManifestFile, mismatch_of, read_manifest_list
from delegation.iceberg.errors import CorruptMetadata
from delegation.iceberg.metadata import ParsedMetadata, Snapshot
from delegation.iceberg.paths import CANONICAL
from delegation.iceberg.reach import Fetcher, content_of
from delegation.rewrites.bounds import Column, Columns, ColumnState, EqualityDelete, column_states
from delegation.rewrites.choose import DataFile, Partition, PartitionFiles, Thresholds
from delegation.rewrites.filters import PartitionFilter
from delegation.rewrites.manifests import ManifestState
from delegation.rewrites.pruning import EVERY_FILE, FileFilter
from delegation.rewrites.terms import MAIN

_DELETED: Final = 2
_EQUALITY: Final = 2
_PUFFIN: Final = "PUFFIN"
_REPLACE: Final = "replace"
_Place = tuple[int, PartitionValues]
"""The spec and the partition of a file, as in its manifest."""


@dataclass(slots=True)
class TableFiles:
    """The files of a branch at its snapshot. `snapshot_id` is None if the branch has no snapshot and so no files."""

    snapshot_id: int | None
    partitions: list[PartitionFiles] = field(default_factory=list)
    manifests: list[ManifestFile] = field(default_factory=list)
    states: list[ManifestState] = field(default_factory=list)
    data_files: int = 0
    data_bytes: int = 0
    delete_files: int = 0
    delete_bytes: int = 0


@dataclass(slots=True)
class _Deletes:
    """The deletes of a snapshot. Sequence numbers are sorted before the data files are read. `by_path` has the number
    and the rows of each delete of one data file alone."""

    columns: Mapping[int, Column]
    everywhere: list[EqualityDelete] = field(default_factory=list)
    equality: defaultdict[_Place, list[EqualityDelete]] = field(default_factory=lambda: defaultdict(list))
    positions: defaultdict[_Place, list[int]] = field(default_factory=lambda: defaultdict(list))
    by_path: defaultdict[str, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    vectors: dict[str, int] = field(default_factory=dict)
    equality_ids: frozenset[int] = frozenset()
    """The columns by which equality deletes delete."""

    def add(self, entry: FileEntry, place: _Place, sequence: int) -> None:
        if entry.content == _EQUALITY:
            states = column_states(entry.stats, self.columns, entry.equality_ids)
            delete = EqualityDelete(sequence, tuple(states.items()))
            # Equality deletes in an unpartitioned spec apply to files of every spec.
            (self.equality[place] if place[1] else self.everywhere).append(delete)
        elif entry.referenced_data_file is None:
            self.positions[place].append(sequence)
        elif entry.file_format.upper() == _PUFFIN:
            self.vectors[entry.referenced_data_file] = entry.record_count
        else:
            self.by_path[entry.referenced_data_file].append((sequence, entry.record_count))

    def sort(self) -> None:
        for deletes in (self.everywhere, *self.equality.values()):
            deletes.sort(key=_sequence)
        for numbers in self.positions.values():
            numbers.sort()
        files = (delete for deletes in (self.everywhere, *self.equality.values()) for delete in deletes)
        self.equality_ids = frozenset(field_id for delete in files for field_id, _ in delete.columns)

    def _equal(self, deletes: Sequence[EqualityDelete], states: Mapping[int, ColumnState], sequence: int) -> int:
        """Return how many equality deletes may delete rows of a file: newer ones whose columns may be equal."""
        newer = deletes[bisect_right(deletes, sequence, key=_sequence) :]
        return sum(delete.may_delete_from(states) for delete in newer)

    def of(self, entry: FileEntry, place: _Place, sequence: int) -> DataFile:
        """Return a data file with the deletes that apply to it: equality deletes to older files, others also to those
        of the same commit. A vector replaces the position deletes of its file."""
        states = column_states(entry.stats, self.columns, self.equality_ids)
        deletes = self._equal(self.everywhere, states, sequence)
        deletes += self._equal(self.equality.get(place, ()), states, sequence)
        if entry.file_path in self.vectors:
            deletes, deleted = deletes + 1, self.vectors[entry.file_path]
        else:
            own = [rows for number, rows in self.by_path.get(entry.file_path, ()) if number >= sequence]
            deletes += _from(self.positions.get(place, ()), sequence) + len(own)
            deleted = sum(own)
        return DataFile(entry.file_size_in_bytes, entry.record_count, deletes, deleted)

    def lasting(self, place: _Place, sequence: int) -> int:
        """Return the number of position deletes that apply to a file written with this sequence number."""
        return _from(self.positions.get(place, ()), sequence)


def _sequence(delete: EqualityDelete) -> int:
    return delete.sequence


def _from(numbers: Any, least: int) -> int:
    return len(numbers) - bisect_left(numbers, least)


def head_of(document: Mapping[str, Any], branch: str = MAIN) -> Mapping[str, Any] | None:
    """Return a branch's snapshot from table metadata, None without the branch or a snapshot."""
    ref = (document.get("refs") or {}).get(branch) or {}
    head = ref.get("snapshot-id") if ref.get("type", "branch") == "branch" else None
    if head is None and branch == MAIN:
        head = document.get("current-snapshot-id")
    return next((snapshot for snapshot in document.get("snapshots") or () if snapshot.get("snapshot-id") == head), None)


def read_files(
    metadata: ParsedMetadata,
    document: Mapping[str, Any],
    fetcher: Fetcher,
    thresholds: Thresholds,
    *,
    branch: str = MAIN,
    filtered: FileFilter = EVERY_FILE,
    limit: int,
) -> TableFiles:
    """Read a branch's files. `document` is the table metadata of `metadata`, `limit` the maximum size of one manifest.
    Only files that `filtered` may match are candidates. Raises the errors of the store and of manifests."""
    head = head_of(document, branch)
    snapshot = next(
        (snapshot for snapshot in metadata.snapshots if head and snapshot.snapshot_id == head["snapshot-id"]), None
    )
    if snapshot is None or head is None:
        return TableFiles(None)
    reading = _Reading(document, thresholds, head.get("sequence-number") or 0, fetcher, filtered=filtered, limit=limit)
    return reading.read(snapshot)


class _Reading:
    def __init__(
        self,
        document: Mapping[str, Any],
        thresholds: Thresholds,
        sequence: int,
        fetcher: Fetcher,
        *,
        filtered: FileFilter,
        limit: int,
    ) -> None:
        self._sequence = sequence
        self._fetcher = fetcher
        self._thresholds = thresholds
        self._filtered = filtered
        self._limit = limit
        self._spec = document.get("default-spec-id", 0)
        self._fields = tuple(field.field_id for field in PartitionFilter.of(document).fields)
        self._times = {
            snapshot["snapshot-id"]: snapshot.get("timestamp-ms") or 0
            for snapshot in document.get("snapshots") or ()
            if (snapshot.get("summary") or {}).get("operation") != _REPLACE
        }
        self._deletes = _Deletes(Columns.of(document).by_id)
        self._partitions: dict[Partition, PartitionFiles] = {}
        self._found = TableFiles(None)
        self._specs: dict[str, int] = {}
        self._places: defaultdict[str, set[PartitionValues]] = defaultdict(set)

    def read(self, snapshot: Snapshot) -> TableFiles:
        manifests = self._manifests(snapshot)
        self._found.snapshot_id = snapshot.snapshot_id
        self._found.manifests = list(manifests.values())
        for manifest, entry in self._entries(manifests, deletes=True):
            self._add_delete(manifest, entry)
        self._deletes.sort()
        columns = self._deletes.equality_ids | self._filtered.ids
        for manifest, entry in self._entries(manifests, deletes=False, columns=columns):
            self._add_data(manifest, entry)
        self._found.partitions = list(self._partitions.values())
        self._found.states = self._states(manifests)
        return self._found

    def _states(self, manifests: Mapping[str, ManifestFile]) -> list[ManifestState]:
        """Return the manifests by spec and content, with the partitions of each."""
        states: list[ManifestState] = []
        by_kind: defaultdict[tuple[int, bool], list[str]] = defaultdict(list)
        for path, manifest in manifests.items():
            by_kind[self._specs[path], manifest.content == 1].append(path)
        for (spec, is_of_deletes), paths in sorted(by_kind.items()):
            partitions = set[PartitionValues]().union(*(self._places[path] for path in paths))
            states.append(
                ManifestState(
                    spec,
                    is_of_deletes,
                    len(paths),
                    sum(manifests[path].manifest_length or 0 for path in paths),
                    len(partitions),
                    sum(len(self._places[path]) for path in paths),
                    sum(manifests[path].entries is None for path in paths),
                )
            )
        return states

    def _manifests(self, snapshot: Snapshot) -> dict[str, ManifestFile]:
        if snapshot.manifest_list is None:
            listed = [ManifestFile(path, None) for path in snapshot.manifests]
        else:
            path = CANONICAL.one(snapshot.manifest_list)
            ((_, content),) = self._fetcher.fetch([(path, self._limit)])
            listed = list(read_manifest_list(content_of(path, content), path))
        return {CANONICAL.one(manifest.manifest_path): manifest for manifest in listed}

    def _entries(
        self, manifests: Mapping[str, ManifestFile], *, deletes: bool, columns: frozenset[int] = frozenset()
    ) -> Iterator[tuple[ManifestFile, FileEntry]]:
        wanted = [(path, self._limit) for path, manifest in manifests.items() if (manifest.content == 1) is deletes]
        for path, content in self._fetcher.fetch(wanted):
            data, manifest = content_of(path, content), manifests[path]
            mismatch = mismatch_of(manifest, data, path)
            if mismatch is not None:
                raise mismatch
            if manifest.partition_spec_id is None:
                text = read_header(data).metadata.get(b"partition-spec-id", b"0").decode("ascii", "replace")
                if not text.isdecimal():
                    raise CorruptMetadata(path, "partition-spec-id", "it is not a number")
                manifest = manifest._replace(partition_spec_id=int(text))
            self._specs[path] = manifest.partition_spec_id or 0
            for batch in read_entries(data, path, deletes=deletes, columns=columns):
                self._fetcher.checkpoint()
                self._places[path].update(entry.partition for entry in batch if entry.status != _DELETED)
                for entry in batch:
                    yield manifest, entry

    def _place(self, manifest: ManifestFile, entry: FileEntry) -> _Place:
        return manifest.partition_spec_id or 0, entry.partition

    def _of(self, manifest: ManifestFile, entry: FileEntry) -> PartitionFiles:
        """Return the partition with which the planner groups a file, and note the time of its commit."""
        is_current = manifest.partition_spec_id == self._spec
        values = dict(entry.partition) if is_current else {}
        key = Partition(self._spec, tuple((field_id, values.get(field_id)) for field_id in self._fields))
        files = self._partitions.get(key)
        if files is None:
            files = self._partitions[key] = PartitionFiles(key)
        written = self._times.get(manifest.added_snapshot_id if entry.snapshot_id is None else entry.snapshot_id)
        if written is not None and (files.newest_ms is None or written > files.newest_ms):
            files.newest_ms = written
        return files

    def _sequence_of(self, manifest: ManifestFile, entry: FileEntry) -> int:
        return entry.sequence_number if entry.sequence_number is not None else manifest.sequence_number or 0

    def _add_delete(self, manifest: ManifestFile, entry: FileEntry) -> None:
        self._of(manifest, entry)
        if entry.status == _DELETED:
            return
        self._found.delete_files += 1
        self._found.delete_bytes += entry.content_size_in_bytes or entry.file_size_in_bytes
        self._deletes.add(entry, self._place(manifest, entry), self._sequence_of(manifest, entry))

    def _add_data(self, manifest: ManifestFile, entry: FileEntry) -> None:
        partition = self._of(manifest, entry)
        if entry.status == _DELETED:
            return
        place = self._place(manifest, entry)
        file = self._deletes.of(entry, place, self._sequence_of(manifest, entry))
        partition.files += 1
        partition.bytes += file.size
        partition.former += manifest.partition_spec_id != self._spec
        self._found.data_files += 1
        self._found.data_bytes += file.size
        is_wanted = self._filtered.may_match(*place, entry.stats)
        if is_wanted and self._thresholds.is_candidate(file):
            partition.candidates.append(file)
            partition.lasting = max(partition.lasting, self._deletes.lasting(place, self._sequence))
