"""The input of a purge, the guards that refuse a table, its result and what only its receipt has.

docs/architecture/guards.md has the guards: which tables may be purged, which paths may be deleted, what a plan is for.

A caller may have loaded the table before the last commits: the purge continues with the catalog's state. Any other
difference from the caller's state means another table, or a state that the table never had.

A plan that was lost after its first delete is made again. Manifests are deleted after all files, manifest lists after
all manifests, and the head records the done steps: so it is known whether this purge deleted a missing manifest.
Readable parts of the lost plan are used, as they may be the last to name former metadata files. Altered parts are
refused.
"""

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from delegation.errors import GuardRefused
from delegation.iceberg.errors import (
    CorruptManifestError,
    EncryptedMetadataFile,
    ManifestMismatchError,
    ManifestMissing,
)
from delegation.iceberg.metadata import ParsedMetadata
from delegation.iceberg.paths import RANK, FileType, Spelling, TableFile
from delegation.polaris.model import LoadedTable
from delegation.removal.attempt import PlanSegment, StepsDone
from delegation.removal.choice import Forecast, by_type
from delegation.removal.chunks import DeleteStep, Phase, read_chunk
from delegation.removal.context import RemovalContext, RemovalResult
from delegation.removal.errors import NeighbourUnreadable, PlanLost, gc_disabled, table_protected, table_uuid_mismatch
from delegation.removal.index import SAMPLE, Finding, PlanIndex, load_index, planned_paths
from delegation.removal.marks import Marks, paths_digest, seconds_since_planned
from delegation.removal.path_guard import (
    AT_ANOTHER_TABLE,
    OUTSIDE,
    SHARED,
    UNCOVERED,
    VERSIONED_BUCKET,
    GuardVerdict,
    protection_of,
)
from delegation.removal.purge import errors
from delegation.removal.purge.errors import metadata_replaced, table_state_mismatch
from delegation.removal.purge.requests import PurgeOptions, PurgeSettings
from delegation.storage.base import FileTooLarge, PlanStore
from delegation.storage.locations import LOCAL, AmbiguousPath, Root, UnsupportedLocation, canonical
from polaris_common.errors import DelegationError, shown

if TYPE_CHECKING:
    from delegation.storage.listing.model import ListableStore


# Errors of a manifest list or manifest that an operator's setting keeps: the setting, and the verdict.
_KEPT_FOR: Final[Mapping[type[DelegationError], tuple[str, GuardVerdict]]] = {
    ManifestMissing: ("damaged", "missing"),
    CorruptManifestError: ("damaged", "corrupt"),
    ManifestMismatchError: ("damaged", "mismatch"),
    FileTooLarge: ("damaged", "too-large"),
    EncryptedMetadataFile: ("unsupported", "encrypted"),
}
# Findings that only a plan made under a looser setting of the operator has.
_SETTING_OF: Final = {
    **{kind.code: setting for kind, (setting, _) in _KEPT_FOR.items()},
    UnsupportedLocation.code: "unsupported",
    AmbiguousPath.code: "ambiguous",
    NeighbourUnreadable.code: "neighbour",
}


def check_table(metadata: ParsedMetadata, options: PurgeOptions, *, table_uuid: str) -> None:
    """Raise GuardRefused (TABLE_UUID_MISMATCH, TABLE_PROTECTED, GC_DISABLED)."""
    if metadata.table_uuid != table_uuid.lower():
        raise table_uuid_mismatch(table_uuid.lower(), metadata.table_uuid)
    protection = protection_of(metadata.properties)
    if protection is not None:
        raise table_protected(protection)
    if not metadata.gc_enabled and options.gc_disabled == "refuse":
        raise gc_disabled(
            "the table's property gc.enabled is false, so other tables may own its files. Drop the table without purge"
        )


def kept_for(error: DelegationError, options: PurgeOptions) -> GuardVerdict:
    """Return why an unreadable manifest list or manifest is kept. Raises its error unless a setting keeps it."""
    setting, verdict = _KEPT_FOR.get(type(error), ("", ""))
    if setting and getattr(options, setting) == "keep":
        return verdict
    raise error


def check_plan(index: PlanIndex, options: PurgeOptions) -> None:
    """Check an earlier plan against the current options. Raises PlanNotAllowed, and as `refuse_findings`."""
    if index.outside == "delete" and options.outside != "delete":
        raise errors.PlanNotAllowed(
            f"plan {index.plan_id} was made with outside=delete, but the request has {options.outside}. Make a new plan"
        )
    if FileType.DIRECTORY_MARKER in index.counts and not options.remove_directory_markers:
        raise errors.PlanNotAllowed(
            f"plan {index.plan_id} was made with deleteMarkerFiles=true, but the request has false. Make a new plan"
        )
    for finding in index.findings:
        setting = _SETTING_OF.get(finding.code)
        if setting is not None and getattr(options, setting) == "refuse":
            raise errors.PlanNotAllowed(
                f"plan {index.plan_id} has the finding {finding.code}, which delegation.purge.{setting}=refuse does "
                "not allow. Make a new plan"
            )
    refuse_findings(index.findings, options)


def check_same_options(index: PlanIndex, options: PurgeOptions) -> None:
    """Raise PlanNotAllowed for a plan that other options would have made. `check_plan` decides the rest."""
    if difference := difference_of(index, options):
        raise errors.PlanNotAllowed(f"{difference}. Make a new dry run with the request's options")


def difference_of(index: PlanIndex, options: PurgeOptions) -> str | None:
    """Return how these options differ from those that the plan was made with, None if they would make the same."""
    deletes = "delete" if options.outside == "delete" else "keep or refuse"
    made = "delete" if index.outside == "delete" else "keep or refuse"
    if made != deletes:
        return f"plan {index.plan_id} was made with outside={index.outside}, but the request has {options.outside}"
    markers = index.directory_markers
    if markers is not None and markers != options.remove_directory_markers:
        return (
            f"plan {index.plan_id} was made with deleteMarkerFiles={str(markers).lower()}, but the request has "
            f"{str(options.remove_directory_markers).lower()}"
        )
    return None


def refuse_findings(findings: Iterable[Finding], options: PurgeOptions) -> None:
    """Raise the error of a finding that the options refuse."""
    for finding in findings:
        if finding.code == OUTSIDE and options.outside == "refuse":
            raise errors.PathsOutsideTable(finding.count, finding.sample)
        if finding.code == UNCOVERED and options.uncovered == "refuse":
            raise errors.CredentialsDoNotCover(finding.count, finding.sample)
        if finding.code == SHARED and options.shared == "refuse":
            raise errors.FilesShared(finding.count, finding.sample)
        if finding.code == AT_ANOTHER_TABLE and options.shared == "refuse":
            raise errors.FilesAtAnotherTable(finding.count, finding.sample)
        if finding.code == VERSIONED_BUCKET and options.versioned == "refuse":
            raise GuardRefused(
                f"deleting frees nothing in {shown(finding.sample)}, because the bucket keeps versions. Set "
                "versioned=report, and delete old versions with a lifecycle rule",
                code="VERSIONED_BUCKET",
            )


_METADATA: Final = (Phase.META, Phase.ROOT, Phase.KEPT)
_RANKS: Final = frozenset({RANK[FileType.ROOT], RANK[FileType.FORMER_METADATA]})


@dataclass(frozen=True, slots=True)
class StatedTable:
    """The table's state as its caller loaded it, which may be older than the catalog's."""

    metadata_location: str
    location: str
    format_version: int


def check_stated(stated: StatedTable | None, metadata: ParsedMetadata) -> None:
    """Raise GuardRefused (TABLE_STATE_MISMATCH), with both values, unless the table has or had the stated state. The
    location must be the current one, the metadata file the current one or in the metadata log, and the format version
    at most the current one, because a table never returns to an older version."""
    if stated is None:
        return
    if _place(stated.location) != _place(metadata.location):
        raise table_state_mismatch("location", stated.location, metadata.location)
    if _place(stated.metadata_location) not in {_place(path) for path in (metadata.path, *metadata.former)}:
        raise table_state_mismatch("metadata_location", stated.metadata_location, metadata.path)
    if stated.format_version > metadata.format_version:
        raise table_state_mismatch("format-version", str(stated.format_version), str(metadata.format_version))


def check_not_replaced(plans: PlanStore, metadata: ParsedMetadata, earlier: Sequence[PlanIndex]) -> None:
    """Raise GuardRefused (METADATA_REPLACED) if the metadata does not continue the table's history from a planned
    segment. The metadata log decides (Iceberg Table Spec, Table Metadata Fields), because the writers' clocks may
    differ. A plan has the former metadata files of its table, so a rollback to one, and a commit after a rollback, are
    recognized."""
    if not earlier or _place(metadata.path) == _place(earlier[-1].metadata_location):
        return
    log = frozenset(_place(path) for path in metadata.former)
    if _place(earlier[-1].metadata_location) in log:
        return
    own = {_place(metadata.path), *log}
    if _meets(own, plans, earlier) or _is_older(metadata, earlier):
        raise metadata_replaced(
            f"the catalog names the metadata file {metadata.path}, which does not continue the history of the planned "
            f"metadata file {earlier[-1].metadata_location}: the table was rolled back or restored. Find out who "
            "registered the new file, then repeat the request"
        )


def continues(metadata: ParsedMetadata, location: str, *, exactly: bool = False) -> bool:
    """Return whether a metadata file is this one or, unless `exactly`, in its log."""
    before = () if exactly else metadata.former
    return _place(location) in {_place(path) for path in (metadata.path, *before)}


def metadata_files(plans: PlanStore, indexes: Sequence[PlanIndex]) -> tuple[str, ...]:
    """Return the metadata files of a plan's table, without those of lost chunks. Raises PlanTampered."""
    paths: set[str] = set()
    for index in indexes:
        for chunk in (each for each in index.chunks if each.kind in _METADATA):
            with suppress(PlanLost):
                records = read_chunk(plans, index.plan_id, chunk)
                paths.update(record.path for record in records if record.rank in _RANKS)
    return tuple(sorted(paths))


def _meets(own: Set[str], plans: PlanStore, earlier: Sequence[PlanIndex]) -> bool:
    """Return whether the plans have one of these metadata files, so that the histories share it."""
    return any(path in own for path in planned_paths(plans, earlier, _METADATA))


def _is_older(metadata: ParsedMetadata, earlier: Sequence[PlanIndex]) -> bool:
    """Compare the times of two histories without a common file, because a log was cut between them.
    `write.metadata.previous-versions-max` limits the log (Iceberg documentation, Configuration)."""
    return metadata.last_updated_ms < max(index.last_updated_ms for index in earlier)


def _place(location: str) -> str:
    """Return one spelling of a location. An unreadable location is compared as text."""
    text = location.rstrip("/")
    try:
        return canonical(text)
    except GuardRefused:
        return text


REPLANNED: Final = "REPLANNED"
_MOST_ROOTS: Final = 64
_MOST_ROOT_BYTES: Final = 16_384
"""A task's record has at most 400 KB (Amazon DynamoDB, Quotas)."""


@dataclass(frozen=True, slots=True)
class LostPlan:
    """A plan with missing parts: its segments, the remaining indexes, and the head's record."""

    segments: tuple[PlanSegment, ...]
    left: tuple[PlanIndex, ...]
    done: StepsDone | None

    @classmethod
    def read(cls, plans: PlanStore, segments: Sequence[PlanSegment], done: StepsDone | None) -> "LostPlan":
        """Read the remains of published segments. Raises PlanTampered for an altered part."""
        left = []
        for segment in segments:
            try:
                index = load_index(plans, segment)
            except PlanLost:
                continue
            stored = set(plans.keys(f"{segment.id}/"))
            chunks = tuple(chunk for chunk in index.chunks if f"{segment.id}/{chunk.name}" in stored)
            left.append(index.model_copy(update={"chunks": chunks}))
        return cls(tuple(segments), tuple(left), done)

    @property
    def roots(self) -> tuple[str, ...]:
        """The table's known current and former locations."""
        recorded = () if self.done is None else self.done.roots
        return (*recorded, *(root for index in self.left for root in index.roots))

    @property
    def is_known(self) -> bool:
        """Whether the head records that this plan is lost."""
        return self.done is not None and self.done.lost == self.segments[-1].id

    def known(self) -> StepsDone:
        """Return the head's record of that."""
        return replace(self.done or StepsDone(of="", state="", steps=()), lost=self.segments[-1].id)

    @property
    def root(self) -> str | None:
        """The metadata file that the plan was to delete last, if known."""
        if self.left:
            return self.left[-1].metadata_location
        return (self.done.state or None) if self.done is not None else None

    def steps_known(self, *, root_is_next: bool) -> tuple[str, ...]:
        """Return the steps that are completely deleted, by the head's record or the mark that the root is next."""
        if root_is_next:
            order = list(DeleteStep)
            return tuple(order[: order.index(DeleteStep.ROOT)])
        done = self.done
        return done.steps if done is not None and done.of == self.segments[-1].id else ()

    def files(self, plans: PlanStore) -> Iterator[TableFile]:
        """Yield the plan's files still to delete, except data files, which the remaining manifests name."""
        for index in self.left:
            done = Marks(plans, index.plan_id).once_done()
            for chunk in index.chunks:
                if chunk.kind is Phase.META and chunk.name not in done:
                    yield from read_chunk(plans, index.plan_id, chunk)

    def check_continues(self, plans: PlanStore, metadata: ParsedMetadata) -> None:
        """Raise GuardRefused (METADATA_REPLACED) if the metadata does not continue from the plan's."""
        check_not_replaced(plans, metadata, self.left)
        if self.done is not None and self.done.state and not self.left and not continues(metadata, self.done.state):
            raise metadata_replaced(
                f"the purge deleted files of {self.done.state}, but the catalog now names {metadata.path}, whose log "
                "lacks that file. The plan is lost, so the table's files are unknown. Find out who registered the new "
                "file"
            )

    def excuses(self, metadata: ParsedMetadata, spelling: Spelling) -> Callable[[str], bool]:
        """Return a function that returns whether this purge deleted a missing manifest or manifest list."""
        steps = self.steps_of(metadata)
        named = (snapshot.manifest_list for snapshot in metadata.snapshots if snapshot.manifest_list is not None)
        lists = {spelling.one(path) for path in named}
        return lambda path: (DeleteStep.META if path in lists else DeleteStep.DATA) in steps

    def steps_of(self, metadata: ParsedMetadata) -> frozenset[str]:
        """Return the steps that are done for this state of the table, by this plan's record."""
        done = self.done
        if (
            done is None
            or not done.state
            or done.of != self.segments[-1].id
            or not continues(metadata, done.state, exactly=True)
        ):
            return frozenset()
        return frozenset(done.steps)

    def finding(self) -> Finding:
        """Return the finding that names the lost parts."""
        return Finding(
            code=REPLANNED, count=len(self.segments), sample=tuple(segment.id for segment in self.segments[:SAMPLE])
        )


def steps_before(step: DeleteStep, indexes: Sequence[PlanIndex]) -> StepsDone:
    """Return the record that all steps before this one are deleted."""
    order = list(DeleteStep)
    roots = tuple(dict.fromkeys(root for index in indexes for root in index.roots))
    if len(roots) > _MOST_ROOTS or sum(len(root.encode()) for root in roots) > _MOST_ROOT_BYTES:
        roots = ()
    last = indexes[-1]
    return StepsDone(last.plan_id, last.metadata_location, tuple(order[: order.index(step)]), roots)


PAGES: Final = 3
"""The maximum number of requests of a count, each for 1,000 objects, so that a wide location takes little time."""


@dataclass(frozen=True, slots=True)
class LocationContents:
    """How many objects a location has, and their bytes. `is_whole` is False if there may be more. `problem` is the code
    of an error that left the contents unknown."""

    location: str
    objects: int = 0
    size: int = 0
    is_whole: bool = True
    problem: str | None = None

    def recorded(self) -> dict[str, Any]:
        """Return the receipt's entry: the figures and, if there are objects, a command that shows them."""
        if self.problem is not None:
            return {"location": self.location, "problem": self.problem}
        figures = {"objects": self.objects, "bytes": self.size, "is_whole": self.is_whole}
        return {"location": self.location, **figures, **({"command": self._command()} if self.objects else {})}

    def _command(self) -> str:
        # This service has no command that lists the location of a table that has left the catalog.
        if self.location.startswith(LOCAL):
            return f"find {shlex.quote(self.location.removeprefix('file://'))} -type f"
        return f"aws s3 ls --recursive --summarize {shlex.quote(self.location)}"


def count_stayed(store: "ListableStore", root: Root) -> LocationContents:
    """Count the objects at a location, of any table or job. At most PAGES requests, the first failed one last."""
    objects, size, after = 0, 0, ""
    prefix = f"{root.prefix}/" if root.prefix else ""
    for _ in range(PAGES):
        try:
            page = store.page(root.bucket, prefix, after=after)
        except DelegationError as error:
            # Everything is deleted, so an error of the count, such as missing rights to list, does not fail the purge.
            return LocationContents(root.uri, problem=error.code)
        objects += len(page.objects)
        size += sum(item.size for item in page.objects)
        if page.is_last or not page.objects:
            return LocationContents(root.uri, objects, size)
        after = page.objects[-1].key
    return LocationContents(root.uri, objects, size, is_whole=False)


@dataclass(frozen=True, kw_only=True)
class PurgeContext(RemovalContext):
    """One attempt at purging one table. `stated` is compared with the table if no plan exists yet. `loaded` is the
    table as loaded to choose the engine. A plan may be made from it, because the table is loaded and compared again
    before the first delete. `lost_plan` is what remains of a lost plan, while it is made again."""

    options: PurgeOptions = field(default_factory=PurgeOptions)
    settings: PurgeSettings = field(default_factory=PurgeSettings)
    stated: StatedTable | None = None
    loaded: LoadedTable | None = None
    lost_plan: LostPlan | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeResult(RemovalResult):
    """What a purge deleted, or with `status` PLANNED would delete, and a `forecast` of that.

    `metadata_location` is the current metadata file, which is deleted last unless `root_kept`. `files_kept` were
    reachable and not deleted. `metadata_files` are the current and former metadata files that the purge removed from
    the table's history. `left_over` is the operator's command for files that the credentials do not cover. `stayed` is
    what is at the table's location afterwards, None if that was not counted. INCOMPLETE means that some keys could not
    be deleted; the receipt lists them.
    """

    status: Literal["PURGED", "PLANNED", "INCOMPLETE"]
    metadata_location: str
    files_kept: int = 0
    root_kept: bool = False
    metadata_files: tuple[str, ...] = ()
    forecast: Forecast | None = None
    left_over: str | None = None
    stayed: LocationContents | None = None


def own_of_receipt(
    ctx: PurgeContext, result: PurgeResult, indexes: Sequence[PlanIndex], segments: Sequence[PlanSegment]
) -> dict[str, Any]:
    """Return the members of the receipt that only purges have."""
    return {
        "format_version": indexes[-1].format_version,
        "snapshots": indexes[-1].snapshots,
        "options": ctx.options.recorded(),
        "plan": [asdict(segment) for segment in segments],
        "seconds_since_planned": seconds_since_planned(ctx, indexes),
        **({"files_absent": result.files_absent} if result.files_absent else {}),
        "files_kept": result.files_kept,
        "by_type": {name: total.model_dump() for name, total in by_type(indexes).items()},
        "neighbours": [asked.model_dump() for index in indexes for asked in index.neighbours],
        **({} if result.left_over is None else {"not_covered": result.left_over}),
        **({} if result.stayed is None else {"stayed": result.stayed.recorded()}),
        "paths_sha256": paths_digest(ctx.plans, indexes),
    }
