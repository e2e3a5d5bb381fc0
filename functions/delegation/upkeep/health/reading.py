"""Reads a table's health: its metadata, the manifest lists of new snapshots, and new manifests.

The bytes that an expiry frees are bounded by what each snapshot added and removed; no paths are compared. A file is
freed if an expired snapshot has it and no retained one does. If an expired snapshot has a retained descendant, each of
its files is still in that descendant, or was removed on the way by a snapshot with an expired parent. The other expired
snapshots are `dead`: an abandoned branch, a rolled back or staged commit. Their files were added by a dead snapshot, or
were in a parent that is not dead. So the upper bound is what those snapshots removed and the dead ones added. The lower
bound is what common ancestors of all retained snapshots removed, if their parents are expired, unless the file was
added again. Manifests are small and not counted.

Every manifest of the current snapshot counts; of other snapshots, those that they added. Each is read once and its
totals are stored, so memory holds a few numbers for each, never the entries.
"""

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from delegation.errors import GuardRefused
from delegation.iceberg.avro.manifests import ManifestFile, read_manifest_list, read_sizes
from delegation.iceberg.errors import CorruptMetadata, IcebergError
from delegation.iceberg.metadata import ParsedMetadata, parse_metadata
from delegation.iceberg.paths import CANONICAL
from delegation.iceberg.reach import Content, Fetcher, content_of
from delegation.misspellings import misspelled
from delegation.polaris.model import LoadedTable, properties_of
from delegation.removal.path_guard import POLICY
from delegation.storage.base import ObjectStoreError
from delegation.upkeep.errors import TooManyManifests
from delegation.upkeep.health.model import (
    MOST_CHANGES,
    REVIEW_EVERY,
    Expirable,
    FreedBytes,
    ManifestSizes,
    ReadState,
    SnapshotChange,
    TableHealth,
    review_at,
)
from delegation.upkeep.rules.model import PolicyType
from delegation.upkeep.rules.settings import SETTINGS


def freed_bytes(
    parents: Mapping[int, int | None],
    expired: Collection[int],
    changes: Mapping[int, SnapshotChange],
) -> FreedBytes:
    """Return the bounds if `expired` snapshots go; `parents` maps each snapshot to its parent. A needed snapshot
    without `changes` makes the upper bound unknown. Raises CorruptMetadata if a snapshot is its own ancestor."""
    gone = frozenset(expired) & parents.keys()
    if not gone:
        return FreedBytes()
    below = _retained_below(parents, gone)
    retained = len(parents) - len(gone)
    lower, upper, is_known = 0, 0, True
    for snapshot, parent in parents.items():
        is_dead = below[snapshot] == 0
        if not is_dead and parent not in gone:
            continue
        change = changes.get(snapshot)
        # Once a dead snapshot's parent is gone, the files of that parent are unknown.
        if change is None or (is_dead and parent is not None and parent not in parents):
            is_known = False
        if change is None:
            continue
        upper += change.added if is_dead else change.removed
        lower += change.removed_least if not is_dead and below[snapshot] == retained else 0
    return FreedBytes(lower, max(upper, lower) if is_known else None)


def _retained_below(parents: Mapping[int, int | None], gone: Collection[int]) -> dict[int, int]:
    """Return the number of retained snapshots at or below each snapshot. Raises CorruptMetadata for a cycle."""
    children = dict.fromkeys(parents, 0)
    for parent in parents.values():
        if parent in children:
            children[parent] += 1
    below = {snapshot: int(snapshot not in gone) for snapshot in parents}
    leaves = [snapshot for snapshot, count in children.items() if not count]
    seen = 0
    while leaves:
        leaf = leaves.pop()
        seen += 1
        parent = parents[leaf]
        if parent in children:
            below[parent] += below[leaf]
            children[parent] -= 1
            if not children[parent]:
                leaves.append(parent)
    if seen != len(parents):
        raise CorruptMetadata("the table's metadata", "parent-snapshot-id", "snapshots are their own ancestors")
    return below


_OWN: Final = f"{POLICY}{PolicyType.SNAPSHOT_EXPIRY.short}."
_ICEBERG: Final = frozenset(
    setting.iceberg for setting in SETTINGS[PolicyType.SNAPSHOT_EXPIRY] if setting.iceberg is not None
)
_KNOWN: Final = frozenset(
    {f"{_OWN}{setting.key}" for setting in SETTINGS[PolicyType.SNAPSHOT_EXPIRY]} | {f"{_OWN}enable"}
)
_LONGEST_VALUE: Final = 100
"""A longer text is not a number that a rule accepts, and neither is its truncated text."""
_OTHER: Final = f"{_OWN}unknown"


def rule_properties(document: Mapping[str, Any]) -> dict[str, str]:
    """Return the properties that can change a table's expiry rule, at most eight short ones. One of the unknown
    properties that turn the rule off represents all of them."""
    properties = properties_of(document)
    values = {
        name: value if len(value) <= _LONGEST_VALUE else f"{value[:_LONGEST_VALUE]}…"
        for name, value in properties.items()
        if name in _ICEBERG or name in _KNOWN
    }
    if any(name not in _KNOWN and (name.startswith(_OWN) or misspelled(name, _KNOWN)) for name in properties):
        values[_OTHER] = ""
    return values


def history_in(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of table metadata that decide which snapshots and refs expire, in compact form."""
    snapshots = [
        [snapshot["snapshot-id"], snapshot.get("parent-snapshot-id"), snapshot.get("timestamp-ms")]
        for snapshot in document.get("snapshots") or ()
    ]
    properties = {name: value for name, value in rule_properties(document).items() if name in _ICEBERG}
    history = {"snapshots": snapshots, "current": document.get("current-snapshot-id"), "properties": properties}
    return history if "refs" not in document else {**history, "refs": document["refs"]}


def document_of(history: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of the metadata that the decision needs. The decision removes no schema and no spec."""
    snapshots = [
        {"snapshot-id": snapshot, **({} if parent is None else {"parent-snapshot-id": parent}), "timestamp-ms": moment}
        for snapshot, parent, moment in history["snapshots"]
    ]
    document = {"snapshots": snapshots, "current-snapshot-id": history["current"], "properties": history["properties"]}
    return document if "refs" not in history else {**document, "refs": history["refs"]}


DIGEST_BYTES: Final = 8
MOST_LISTS: Final = 1_000
"""The newest manifest lists that are read of one table at a time. What older snapshots changed stays unknown."""
MOST_READ: Final = 20_000
"""Manifests that are read of one table at a time, so that an attempt of the task can finish it."""
TARGET_SIZE: Final = "write.target-file-size-bytes"
_DEFAULT_TARGET: Final = 512 * 1024 * 1024
"""Iceberg documentation, Configuration, write properties."""
_SMALL_NUMERATOR, _SMALL_DENOMINATOR = 3, 4
"""A file below three quarters of the target is rewritten (Iceberg, SizeBasedFileRewritePlanner)."""
_LARGE_NUMERATOR, _LARGE_DENOMINATOR = 9, 5
"""A file above 1.8 times the target is rewritten too (Iceberg, SizeBasedFileRewritePlanner)."""
_DELETED: Final = 2
_ADDED: Final = 1
_PUFFIN: Final = "PUFFIN"

LASTING: Final = (IcebergError, GuardRefused, ObjectStoreError, TooManyManifests)
"""Errors that a retry would repeat, unless they are retryable."""


@dataclass(frozen=True, slots=True)
class ExpiryByRule:
    """What expires in a table, and a text that changes with the rule."""

    version: str
    expirable: Expirable


@dataclass(frozen=True, slots=True)
class HealthLimits:
    """The concurrency of reads, the maximum size of one file, and the maximum number and bytes (by the manifest lists)
    of one table's new manifests. None means no limit."""

    threads: int = 8
    max_file_bytes: int = 256 * 1024 * 1024
    most: int = MOST_READ
    most_bytes: int | None = None


def read_health(
    table: LoadedTable,
    fetcher: Fetcher,
    known: TableHealth | None,
    state: ReadState,
    *,
    rule: ExpiryByRule | None,
    now: datetime,
    limits: HealthLimits = HealthLimits(),
) -> tuple[TableHealth, ReadState]:
    """Return a table's health and the state for the next run. If something cannot be read, that is the health's
    problem, and the former numbers stay. Raises the store's retryable errors, what the fetcher's checkpoint raises, and
    TooManyManifests for too many new manifests if a run of the task may read more."""
    same = known if known is not None and known.table_uuid == table.table_uuid else None
    base = same or TableHealth(table.identifier, table.table_uuid, "", now)
    # A table that was dropped and recreated under its name keeps nothing, but its item is replaced.
    base = replace(base, revision=0 if known is None else known.revision)
    try:
        metadata = parse_metadata(table.metadata_location, table.metadata, experimental=True)
        small = _small_below(metadata)
        if state.table_uuid != metadata.table_uuid:
            state = ReadState(metadata.table_uuid, small)
        elif state.small != small:
            state = replace(state, small=small, manifests={})
        state = _TableReader(table, metadata, fetcher, state, limits).read()
        state = replace(state, history=history_in(table.metadata), metadata_location=table.metadata_location)
        health = health_of(table, state, base, rule, now)
    except LASTING as error:
        if error.retryable:
            raise
        problem = f"{error.code}: {error}"
        failed = replace(
            base, metadata_location=table.metadata_location, as_of=now, problem=problem, review_at=now + REVIEW_EVERY
        )
        if isinstance(error, TooManyManifests):
            # What expires is known without any manifest, and such a table needs it most.
            known_now = replace(
                failed, snapshots=len(_parents(table.metadata)), properties=rule_properties(table.metadata)
            )
            history = history_in(table.metadata)
            return replace(known_now, rule=""), replace(
                state, history=history, metadata_location=table.metadata_location
            )
        return failed, state
    return health, state


def health_of(
    table: LoadedTable, state: ReadState, base: TableHealth, rule: ExpiryByRule | None, now: datetime
) -> TableHealth:
    """Return the health by the table's metadata and the manifests' totals. Pure. `state` is not yet bounded; `base` is
    the former health. Raises CorruptMetadata, and what the rule raises."""
    document = table.metadata
    parents = _parents(document)
    sizes = sum(state.manifests.values(), ManifestSizes())
    expired = frozenset[int]() if rule is None else frozenset(rule.expirable(document, now))
    # Without a rule here, the reader of the rules computes the need, and its start stays.
    since = base.since if rule is None else (base.since or now) if expired else None
    refs = document.get("refs")
    return replace(
        base,
        metadata_location=table.metadata_location,
        as_of=now,
        snapshots=len(parents),
        refs=len(refs) if isinstance(refs, Mapping) else int(_current(document) is not None),
        files=sizes.files,
        bytes=sizes.bytes,
        small_files=sizes.small_files,
        small_bytes=sizes.small_bytes,
        oversized_files=sizes.oversized_files,
        oversized_bytes=sizes.oversized_bytes,
        delete_files=sizes.delete_files,
        deletion_vectors=sizes.deletion_vectors,
        manifests=len(state.manifests),
        manifest_bytes=sizes.length,
        metadata_bytes=len(json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()),
        expirable=None if rule is None else len(expired),
        freed=freed_bytes(parents, expired, state.changes),
        rule="" if rule is None else rule.version,
        since=since,
        properties=rule_properties(document),
        again_at=None,
        review_at=None if rule is None else review_at(document, rule.expirable, now, has_expirable=bool(expired)),
        problem=None,
    )


class _TableReader:
    def __init__(
        self, table: LoadedTable, metadata: ParsedMetadata, fetcher: Fetcher, state: ReadState, limits: HealthLimits
    ) -> None:
        self._metadata = metadata
        self._fetcher = fetcher
        self._state = state
        self._large = _large_above(metadata)
        self._limit = limits.max_file_bytes
        self._most, self._most_bytes = limits.most, limits.most_bytes
        self._current = _current(table.metadata)
        self._snapshots = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
        if len(self._snapshots) != len(metadata.snapshots):
            raise CorruptMetadata(metadata.path, "snapshots", "two snapshots have the same id")
        if self._current is not None and self._current not in self._snapshots:
            raise CorruptMetadata(metadata.path, "current-snapshot-id", "there is no such snapshot")

    def read(self) -> ReadState:
        """Return the state with what is new, without what the table no longer has."""
        changes = {snapshot: change for snapshot, change in self._state.changes.items() if snapshot in self._snapshots}
        newest = list(self._snapshots)[-MOST_CHANGES:]
        unknown = [snapshot for snapshot in newest if snapshot not in changes][-MOST_LISTS:]
        self._check_few(len(unknown), self._most, "manifest lists")
        wanted: dict[str, ManifestFile] = {}
        added_by: dict[str, int] = {}
        now_there: dict[str, ManifestFile] = {}
        read: set[int] = set()
        for snapshot_id, manifests in self._lists(unknown):
            read.add(snapshot_id)
            for manifest in manifests:
                path = CANONICAL.one(manifest.manifest_path)
                if snapshot_id == self._current:
                    now_there[path] = manifest
                if manifest.added_snapshot_id == snapshot_id and snapshot_id not in changes:
                    added_by[path] = snapshot_id
                    wanted[path] = manifest
        kept: dict[bytes, ManifestSizes] = {}
        for path, manifest in now_there.items():
            before = self._state.manifests.get(digest(path))
            if before is None:
                wanted[path] = manifest
            else:
                kept[digest(path)] = before
        self._check_few(len(wanted), self._most, "manifests")
        self._check_few(sum(manifest.manifest_length or 0 for manifest in wanted.values()), self._most_bytes, "bytes")
        new_changes = {
            snapshot: SnapshotChange() for snapshot in read if snapshot in unknown and self._states_authors(snapshot)
        }
        for path, sizes, change in self._manifests(wanted):
            if path in now_there:
                kept[digest(path)] = sizes
            author = added_by.get(path)
            if author in new_changes:
                new_changes[author] = new_changes[author] + change
        both = {**changes, **new_changes}
        return replace(
            self._state,
            manifests=kept,
            changes={snapshot: both[snapshot] for snapshot in self._snapshots if snapshot in both},
        )

    def _check_few(self, count: int, most: int | None, what: str) -> None:
        if most is not None and count > most:
            text = f"{count:,} {what} are new since the last reading. One reading may read at most {most:,}"
            raise TooManyManifests(text, retryable=self._most < MOST_READ)

    def _states_authors(self, snapshot_id: int) -> bool:
        """Whether the list states which manifests a snapshot added. Inline lists of version 1 do not."""
        return self._snapshots[snapshot_id].manifest_list is not None

    def _lists(self, unknown: Collection[int]) -> Iterator[tuple[int, list[ManifestFile]]]:
        asked = [*unknown, *([] if self._current is None or self._current in unknown else [self._current])]
        by_path: dict[str, list[int]] = {}
        for snapshot_id in asked:
            snapshot = self._snapshots[snapshot_id]
            if snapshot.manifest_list is None:
                yield snapshot_id, [ManifestFile(path, None) for path in snapshot.manifests]
            else:
                by_path.setdefault(CANONICAL.one(snapshot.manifest_list), []).append(snapshot_id)
        for path, content in self._fetcher.fetch((path, self._limit) for path in by_path):
            manifests = list(read_manifest_list(content_of(path, content), path))
            for snapshot_id in by_path[path]:
                yield snapshot_id, manifests

    def _manifests(self, wanted: Mapping[str, ManifestFile]) -> Iterator[tuple[str, ManifestSizes, SnapshotChange]]:
        for path, content in self._fetcher.fetch((path, self._limit) for path in wanted):
            yield path, *_added_up(path, content, self._state.small, self._large)


def _added_up(path: str, content: Content, small: int, large: int) -> tuple[ManifestSizes, SnapshotChange]:
    """Return the totals of a manifest's live entries, and of those that its snapshot added and removed. Raises
    CorruptManifestError, ManifestMissing, EncryptedMetadataFile."""
    data = content_of(path, content)
    files = size = smalls = deletes = vectors = added = removed = least = 0
    small_bytes = larges = large_bytes = 0
    for rows in read_sizes(data, path):
        for status, kind, form, length in rows:
            is_vector = kind != 0 and form.upper() == _PUFFIN
            if status == _DELETED:
                removed += length
                least += 0 if is_vector else length
                continue
            added += length if status == _ADDED else 0
            if is_vector:
                vectors += 1
                continue
            files, size = files + 1, size + length
            if kind:
                deletes += 1
            elif length < small:
                smalls, small_bytes = smalls + 1, small_bytes + length
            elif length > large:
                larges, large_bytes = larges + 1, large_bytes + length
    own = files - deletes, size, smalls, deletes, vectors, len(data)
    sizes = ManifestSizes(*own, small_bytes, larges, large_bytes)
    return sizes, SnapshotChange(added, removed, least)


def digest(path: str) -> bytes:
    return hashlib.blake2b(path.encode(), digest_size=DIGEST_BYTES).digest()


def _small_below(metadata: ParsedMetadata) -> int:
    return _target(metadata) * _SMALL_NUMERATOR // _SMALL_DENOMINATOR


def _large_above(metadata: ParsedMetadata) -> int:
    return _target(metadata) * _LARGE_NUMERATOR // _LARGE_DENOMINATOR


def _target(metadata: ParsedMetadata) -> int:
    text = metadata.properties.get(TARGET_SIZE, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else _DEFAULT_TARGET


def _current(document: Mapping[str, Any]) -> int | None:
    """The current snapshot's id. Some writers of version 1 write -1 for none."""
    current = document.get("current-snapshot-id")
    return current if isinstance(current, int) and not isinstance(current, bool) and current != -1 else None


def _parents(document: Mapping[str, Any]) -> dict[int, int | None]:
    """The parent of each snapshot. `parse_metadata` has checked that they are objects with an id."""
    return {snapshot["snapshot-id"]: snapshot.get("parent-snapshot-id") for snapshot in document.get("snapshots") or ()}
