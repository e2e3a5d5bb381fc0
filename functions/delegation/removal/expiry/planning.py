"""Makes the plan of an expiry: the files that only its snapshots reach, stored before the commit."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from delegation.iceberg.avro.manifests import ManifestFile
from delegation.iceberg.errors import ManifestMissing
from delegation.iceberg.history import History, read_history
from delegation.iceberg.metadata import ParsedMetadata, parse_metadata
from delegation.iceberg.paths import ALL_KINDS, RANK, FileType, Row, Spelling, TableFile, read_as
from delegation.iceberg.reach import (
    Fetcher,
    Tolerance,
    Unreadable,
    all_entries,
    manifest_record,
    named_by_metadata,
    read_manifest_lists,
    refuse_cut_off,
)
from delegation.polaris.model import LoadedTable
from delegation.removal.attempt import PlanSegment
from delegation.removal.choice import HandedToSpark, Size
from delegation.removal.chunks import Chunk, Total
from delegation.removal.deletes import PlanEngine
from delegation.removal.expiry.context import ExpiryContext, ExpiryIndex, Removal
from delegation.removal.expiry.retention import Expired, decide
from delegation.removal.index import PlanWriter, Sorter, store_index
from delegation.removal.neighbourhood import LENIENT_PATHS
from delegation.removal.path_guard import PathGuard, covered_roots, own_root, reads, table_roots, unknown_findings
from delegation.removal.unread_neighbours import UnreadNeighbours
from delegation.storage.locations import Roots
from polaris_common.errors import DelegationError, counted

ANY_SPELLING: Final = Spelling(ALL_KINDS)
_DELETE_AFTER_COMMIT: Final = "write.metadata.delete-after-commit.enabled"
_PREVIOUS_VERSIONS: Final = "write.metadata.previous-versions-max"
_PREVIOUS_VERSIONS_DEFAULT: Final = 100
_LONGEST_NUMBER: Final = 10
"""Digits of Java's largest int."""


def metadata_of(table: LoadedTable) -> ParsedMetadata:
    """Return a table's parsed metadata. Raises CorruptMetadata, GuardRefused (UNSUPPORTED_FORMAT_VERSION)."""
    return parse_metadata(table.metadata_location, table.metadata)


def fetcher_of(ctx: ExpiryContext) -> Fetcher:
    """Return a fetcher that reads the table's files ahead of their use."""
    return Fetcher(ctx.store, threads=ctx.settings.read_threads, checkpoint=ctx.attempt.checkpoint)


@dataclass(frozen=True, slots=True)
class Retained:
    """What the remaining snapshots need: small files, and manifests, whose live entries `rows` reads."""

    small: list[TableFile]
    manifests: dict[str, ManifestFile]

    def rows(
        self,
        ctx: ExpiryContext,
        without: Collection[str] = (),
        unreadable: Unreadable = refuse_cut_off,
        *,
        live: bool = True,
    ) -> Iterator[Row]:
        """Yield every file that stays, in any order, except the small files `without` and what such manifests name.
        With `live` an entry with status DELETED keeps no file, because no reader of its snapshot reads it. Objects that
        some reader opens for a path instead of the named one stay too."""
        yield from with_others_read(row for row in self.small if row.path not in without)
        manifests = self.manifests_without(without)
        wanted = [(path, ctx.settings.max_file_bytes) for path in manifests]
        tolerance = Tolerance(unreadable, ANY_SPELLING)
        yield from with_others_read(all_entries(fetcher_of(ctx), manifests, wanted, tolerance, live=live))

    def manifests_without(self, known: Iterable[str] = ()) -> dict[str, ManifestFile]:
        """Return the manifests that are not `known`, by path."""
        without = frozenset(known)
        return {path: manifest for path, manifest in self.manifests.items() if path not in without}


def with_others_read(rows: Iterable[Row]) -> Iterator[Row]:
    """Yield the rows, and a row for each other object that a reader may open for a row's path."""
    for row in rows:
        yield row
        for path in read_as(row[0]):
            yield path, row[1], 0


def retained(ctx: ExpiryContext, metadata: ParsedMetadata, known: Collection[str] = ()) -> Retained:
    """Read what the snapshots of the metadata need, and the metadata files that it names. `known` manifest lists, with
    all that they name, are not read again. Nothing else may stay unread: raises the errors of files that are missing,
    damaged, encrypted or not covered by the credentials, or whose paths name no object."""
    reached = read_manifest_lists(
        metadata, fetcher_of(ctx), limit=ctx.settings.max_file_bytes, readable=lambda path: path not in known
    )
    former = (TableFile(ANY_SPELLING.one(path), RANK[FileType.FORMER_METADATA], 0) for path in metadata.former)
    manifests = (manifest_record(path, manifest) for path, manifest in reached.manifests.items())
    small = [*named_by_metadata(metadata, ANY_SPELLING), *former, *reached.lists, *manifests]
    return Retained(small, reached.manifests)


@dataclass(frozen=True, slots=True)
class ExpiringFiles:
    """What the expired snapshots have, before the rest of the table is subtracted: small files, and the manifests that
    no snapshot keeps, of which the `readable` ones may be read."""

    small: list[TableFile]
    manifests: dict[str, ManifestFile]
    readable: Callable[[str], bool]

    def manifests_to_read(self) -> dict[str, ManifestFile]:
        return {path: manifest for path, manifest in self.manifests.items() if self.readable(path)}

    def entries(self, ctx: ExpiryContext, unreadable: Unreadable) -> Iterator[Row]:
        """Yield the files of all entries of the manifests, including status DELETED: after an expiry that kept the
        files, nothing else names some of them. Raises what `unreadable` raises."""
        wanted = [(path, ctx.settings.max_file_bytes) for path in self.manifests_to_read()]
        yield from all_entries(fetcher_of(ctx), self.manifests, wanted, Tolerance(unreadable, ANY_SPELLING))


def unless_missing(note: Callable[[str], None]) -> Unreadable:
    """Return a function for errors in files that only expiring snapshots need. It notes missing files."""

    def unreadable(path: str, error: DelegationError) -> None:
        if not isinstance(error, ManifestMissing):
            raise error
        note(path)

    return unreadable


def only_named_by(
    ctx: ExpiryContext, metadata: ParsedMetadata, kept: Retained, covered: Roots | None, unreadable: Unreadable
) -> ExpiringFiles:
    """Return the files of `metadata`, which has only the expired snapshots, without the `kept` manifests. Files that
    the credentials do not cover are named and not read. Raises what `unreadable` raises for a manifest list."""
    readable = reads(metadata, covered)
    reached = read_manifest_lists(
        metadata,
        fetcher_of(ctx),
        limit=ctx.settings.max_file_bytes,
        readable=readable,
        tolerance=Tolerance(unreadable, ANY_SPELLING),
    )
    root = ANY_SPELLING.one(metadata.path)
    own = {path: manifest for path, manifest in reached.manifests.items() if path not in kept.manifests}
    named = (file for file in named_by_metadata(metadata, ANY_SPELLING) if file.path != root)
    manifests = (manifest_record(path, manifest) for path, manifest in own.items())
    return ExpiringFiles([*named, *reached.lists, *manifests], own, readable)


def history_of(ctx: ExpiryContext, metadata: ParsedMetadata, covered: Roots | None) -> History:
    """Return the former metadata files and locations. Locations in unreadable files are missing."""
    tolerance = Tolerance(lambda _path, _error: None, ANY_SPELLING)
    return read_history(metadata, fetcher_of(ctx), reads(metadata, covered), tolerance, statistics=True)


def outdated_metadata(metadata: ParsedMetadata, history: History) -> list[TableFile]:
    """Return the former metadata files beyond those that the table keeps after one more commit; none unless the table
    gives them up. Excludes files of another table."""
    most = versions_kept(metadata)
    if most is None:
        return []
    log = [ANY_SPELLING.one(path) for path in (*metadata.former, metadata.path)]
    kept = {*log[-most:], log[-1]}
    return [file for file in history.files if file.path not in kept and file.path not in history.foreign]


def versions_kept(metadata: ParsedMetadata) -> int | None:
    """Return the number of former metadata files that the table keeps, None if it keeps all: unless its property
    `write.metadata.delete-after-commit.enabled` is true and `write.metadata.previous-versions-max` is a number (Iceberg
    documentation, Configuration; TableMetadata.addPreviousFile)."""
    if metadata.properties.get(_DELETE_AFTER_COMMIT, "false").lower() != "true":
        return None
    text = metadata.properties.get(_PREVIOUS_VERSIONS)
    if text is None:
        return _PREVIOUS_VERSIONS_DEFAULT
    digits = text.removeprefix("-").removeprefix("+")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _LONGEST_NUMBER):
        return None
    return max(1, int(text))


_INLINE_SPEC: Final = 0
"""The partition spec of manifests that a version 1 snapshot lists inline."""


def decided(ctx: ExpiryContext, table: LoadedTable, keep_refs: Collection[str] = ()) -> Expired:
    """Return what is expired now. Manifest lists are read only if unused partition specs are to be removed."""
    now = ctx.now_ms()
    decision = decide(table.metadata, ctx.retention, now_ms=now, keep_refs=keep_refs)
    specs = table.metadata.get("partition-specs")
    if not ctx.retention.clean_expired_metadata or not isinstance(specs, list) or len(specs) <= 1:
        return decision.expired
    part = metadata_of(table).of_snapshots(lambda snapshot_id: snapshot_id in decision.counted)
    limit = ctx.settings.max_file_bytes
    try:
        lists = read_manifest_lists(part, fetcher_of(ctx), limit=limit, readable=lambda _path: True)
    except ManifestMissing:
        # It belongs to a snapshot named in the request, or the plan raises it. So the specs in use are unknown.
        return decision.expired
    specs = {_spec_of(manifest) for manifest in lists.manifests.values()}
    return decide(table.metadata, ctx.retention, now_ms=now, specs_in_use=specs, keep_refs=keep_refs).expired


def _spec_of(manifest: ManifestFile) -> int:
    return _INLINE_SPEC if manifest.partition_spec_id is None else manifest.partition_spec_id


def covered_of(ctx: ExpiryContext, table: LoadedTable) -> Roots | None:
    """Return what the vended credentials cover, None if they reach every file."""
    return covered_roots(table, LENIENT_PATHS) if ctx.settings.vended else None


@dataclass(frozen=True, slots=True)
class ExpirySurvey:
    """What a plan needs except the manifests' entries, read from metadata and manifest lists. `small` are the
    candidates that no manifest names. `kept` has what the remaining snapshots need, except the `outdated` metadata
    files. `unread` has the missing files that only expiring snapshots need."""

    metadata: ParsedMetadata
    guard: PathGuard
    foreign: frozenset[str]
    kept: Retained
    going: ExpiringFiles
    outdated: frozenset[str]
    small: list[TableFile]
    unread: UnreadNeighbours


def survey(ctx: ExpiryContext, table: LoadedTable, gone: Expired) -> ExpirySurvey:
    """Read metadata and manifest lists. Raises the errors of damaged, encrypted or unreadable ones. A missing manifest
    list is no error if only expiring snapshots have it."""
    metadata, unread = metadata_of(table), UnreadNeighbours(ctx)
    ctx.note_size(counted(len(metadata.snapshots), "snapshot"))
    covered = covered_of(ctx, table)
    history = history_of(ctx, metadata, covered)
    roots = table_roots(metadata, history.locations, ctx.options.paths)
    own, foreign = own_root(metadata, ctx.options.paths), ctx.settings.delete.foreign
    guard = PathGuard(roots, covered, ctx.options.paths, own=own, foreign=foreign)
    kept = retained(ctx, metadata.of_snapshots(lambda snapshot_id: snapshot_id not in gone.snapshot_ids))
    outdated = outdated_metadata(metadata, history)
    part = metadata.of_snapshots(lambda snapshot_id: snapshot_id in gone.snapshot_ids)
    going = only_named_by(ctx, part, kept, covered, unless_missing(unread.note_missing))
    replaced = [file for snapshot_id, file in history.statistics if snapshot_id in gone.snapshot_ids]
    return ExpirySurvey(
        metadata=metadata,
        guard=guard,
        foreign=frozenset(history.foreign),
        kept=kept,
        going=going,
        outdated=frozenset(file.path for file in outdated),
        small=[*going.small, *outdated, *replaced],
        unread=unread,
    )


def write_here(ctx: ExpiryContext, surveyed: ExpirySurvey, plan_id: str) -> tuple[Sequence[Chunk], dict[str, Total]]:
    """Write the chunks of a plan in this process. Memory holds a sort run, a chunk and the manifests' names. Raises
    HandedToSpark if a function lacks the time or memory to read everything."""
    _check_size(ctx, [*surveyed.kept.manifests.values(), *surveyed.going.manifests.values()])
    run_records, unread = ctx.settings.run_records, surveyed.unread
    with Sorter(run_records=run_records) as candidates, Sorter(run_records=run_records) as needed:
        candidates.extend(surveyed.small)
        candidates.extend(surveyed.going.entries(ctx, unless_missing(unread.note_missing)))
        if not candidates.empty:
            rows = surveyed.kept.rows(ctx, unreadable=unread.of_itself())
            needed.extend(row for row in rows if row[0] not in surveyed.outdated)
        writer = PlanWriter(ctx.plans, plan_id, chunk_paths=ctx.settings.lot_paths)
        paths = (row[0] for row in needed.sorted())
        surveyed.guard.write(writer, candidates.batches(), paths, surveyed.foreign)
        return writer.close()


def make_plan(
    ctx: ExpiryContext,
    table: LoadedTable,
    gone: Expired,
    engine: PlanEngine[ExpiryContext, ExpirySurvey],
) -> tuple[ExpiryIndex, PlanSegment]:
    """Make a plan, without publishing it: candidates, minus what retained snapshots need, checked by the guards. Raises
    the errors of damaged, encrypted and unreadable metadata, except missing files that only expiring snapshots need."""
    surveyed = survey(ctx, table, gone)
    plan_id = ctx.new_plan_id()
    chunks, totals = engine.write(ctx, surveyed, plan_id)
    metadata, guard = surveyed.metadata, surveyed.guard
    index = ExpiryIndex(
        **ctx.plan_head(plan_id, metadata),
        snapshots=len(gone.snapshot_ids),
        engine=engine.name,
        roots=guard.roots.uris,
        covered=None if guard.covered is None else guard.covered.uris,
        chunks=tuple(chunks),
        counts=totals,
        findings=(
            *(finding for _, finding in guard.counted()),
            *surveyed.unread.findings(),
            *unknown_findings(metadata.properties),
        ),
        removal=Removal.of(table.metadata, gone),
    )
    return index, store_index(ctx.plans, index)


def _check_size(ctx: ExpiryContext, manifests: Collection[ManifestFile]) -> None:
    """Raise HandedToSpark if a function lacks the time or memory to read these entries and Spark is available."""
    size = Size.of(manifests, 0, threads=ctx.settings.read_threads)
    fits = size.is_planned_in_a_function(ctx.settings)
    ctx.note_size(f"{counted(size.files, 'file')} or more, {counted(len(manifests), 'manifest')}", fits)
    if ctx.spark_above is not None and not fits:
        raise HandedToSpark(ctx.attempt.task_id, size.files, does="finds the files that snapshots need")
