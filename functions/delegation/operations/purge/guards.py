"""Guards: which tables may be purged, and which paths may be deleted (docs/architecture/guards.md)."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from itertools import groupby
from typing import Final, Literal

from delegation.errors import DelegationError, GuardRefused
from delegation.iceberg.errors import (
    CorruptManifestError,
    EncryptedMetadataFile,
    ManifestMismatchError,
    ManifestMissing,
)
from delegation.iceberg.files import FileType, Row
from delegation.iceberg.metadata import PROTECTED, ParsedMetadata
from delegation.iceberg.paths import MARKS, as_written, is_marked
from delegation.operations.purge import errors
from delegation.operations.purge.options import PurgeOptions
from delegation.polaris.model import LoadedTable
from delegation.storage.base import FileTooLarge, ObjectStore
from delegation.storage.locations import LOCAL, AmbiguousPath, Roots, UnsupportedLocation, canonical, same_storage
from delegation.worksets.index import SAMPLE, Finding, PlanIndex

# Polaris' session policy also covers these paths, without a vended prefix for them (observed with 1.4.1 and 1.7.0).
COVERED_WRITE_PATHS = ("write.data.path", "write.metadata.path")

OUTSIDE = "PATHS_OUTSIDE_TABLE"
UNCOVERED = "CREDENTIALS_DO_NOT_COVER"
SHARED = "FILES_SHARED"
AT_ANOTHER_TABLE = "FILES_AT_ANOTHER_TABLE"
NOT_COVERED = "NOT_COVERED"
FOREIGN_METADATA = "FOREIGN_METADATA"
FORMER_UNREADABLE = "FORMER_METADATA_UNREADABLE"
VERSIONED_BUCKET = "VERSIONED_BUCKET"

_ANOTHER = "make a new plan, with a dry run that has the same options"
GuardVerdict = Literal[
    "", "outside", "uncovered", "shared", "foreign", "at-another-table", "unsupported", "ambiguous",
    "missing", "corrupt", "mismatch", "too-large", "encrypted", "former-unreadable", "not-covered",
]  # fmt: skip
_CODES: Final[Mapping[GuardVerdict, str]] = {
    "outside": OUTSIDE,
    "uncovered": UNCOVERED,
    "shared": SHARED,
    "at-another-table": AT_ANOTHER_TABLE,
    "foreign": FOREIGN_METADATA,
    "unsupported": UnsupportedLocation.code,
    "ambiguous": AmbiguousPath.code,
    "missing": ManifestMissing.code,
    "corrupt": CorruptManifestError.code,
    "mismatch": ManifestMismatchError.code,
    "too-large": FileTooLarge.code,
    "encrypted": EncryptedMetadataFile.code,
    "former-unreadable": FORMER_UNREADABLE,
    "not-covered": NOT_COVERED,
}
# Errors in a manifest list or manifest for which a setting of the operator keeps it: the setting, and the verdict.
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
    errors.NeighbourUnreadable.code: "neighbour",
}


def check_table(metadata: ParsedMetadata, options: PurgeOptions, *, table_uuid: str) -> None:
    """Raise TableUuidMismatch, TableProtected or GcDisabled."""
    if metadata.table_uuid != table_uuid.lower():
        raise errors.TableUuidMismatch(table_uuid.lower(), metadata.table_uuid)
    if metadata.protected:
        raise errors.TableProtected(metadata.properties[PROTECTED])
    if not metadata.gc_enabled and options.gc_disabled == "refuse":
        raise errors.GcDisabled("the table's property gc.enabled is false")


def kept_for(error: DelegationError, options: PurgeOptions) -> GuardVerdict:
    """Return why a manifest list or manifest that cannot be read is kept; raise its error unless a setting keeps it."""
    setting, verdict = _KEPT_FOR.get(type(error), ("", ""))
    if not setting or getattr(options, setting) != "keep":
        raise error
    return verdict


def kept_spellings(options: PurgeOptions) -> frozenset[type[GuardRefused]]:
    """Return the kinds of paths that name no object of the storage and are kept by a setting."""
    return frozenset(kind for kind, mark in MARKS.items() if getattr(options, mark.rstrip(":")) == "keep")


def covered_roots(table: LoadedTable, options: PurgeOptions | None = None) -> Roots:
    """Return what the vended credentials cover: their prefixes, the table's current location and its write paths.

    A prefix without a bucket ("" or only a scheme) states nothing; it does not mean that everything is covered.
    """
    vended = (credential.prefix for credential in table.credentials)
    prefixes = [prefix for prefix in vended if prefix.partition("://")[2]]
    write_paths = [path for name in COVERED_WRITE_PATHS if (path := table.properties.get(name))]
    return Roots(_usable([table.location, *write_paths, *prefixes], options or PurgeOptions()))


def table_roots(metadata: ParsedMetadata, former: Iterable[str], options: PurgeOptions) -> Roots:
    """Return every current or former location of the table.

    A current location that is ambiguous, unsupported or in another storage than the metadata raises GuardRefused, or
    is left out by a setting, unless it is the only one. Such a former location is left out, so that no path counts as
    inside it.
    """
    before = []
    for location in former:
        try:
            Roots([location])
        except GuardRefused:
            continue
        before.extend([location] if same_storage(location, metadata.path) else [])
    locations = [*_usable(metadata.locations, options, of=metadata.path), *before]
    if not locations:
        _usable(metadata.locations, PurgeOptions(), of=metadata.path)
    return Roots(locations)


def own_root(metadata: ParsedMetadata, options: PurgeOptions) -> Roots:
    """Return the table's present location, nothing if it is left out."""
    return Roots(_usable([metadata.location], options, of=metadata.path))


def _usable(locations: Iterable[str], options: PurgeOptions, *, of: str | None = None) -> list[str]:
    """Return the locations without those that a setting leaves out; raise the error of any other unusable one."""
    kept, usable = kept_spellings(options), []
    for location in locations:
        try:
            _check_location(location, of)
        except (AmbiguousPath, UnsupportedLocation) as error:
            if type(error) not in kept:
                raise
            continue
        usable.append(location)
    return usable


def _check_location(location: str, of: str | None) -> None:
    if of is not None and not same_storage(location, of):
        raise UnsupportedLocation(location, "not in the storage of the table's metadata")
    Roots([location])


def storage_of(path: str) -> str:
    """Return how all canonical paths of a file's kind of storage begin."""
    return "file:///" if canonical(path).startswith("file:") else "s3://"


def reads(metadata: ParsedMetadata, covered: Roots | None) -> Callable[[str], bool]:
    """Return a function that decides whether a path can be read: in the metadata's storage, and covered."""
    storage = storage_of(metadata.path)
    return lambda path: path.startswith(storage) and (covered is None or covered.contains(path))


@dataclass(slots=True)
class _Tally:
    count: int = 0
    sample: tuple[str, ...] = ()

    def add(self, path: str) -> None:
        self.count += 1
        if len(self.sample) < SAMPLE:
            self.sample = (*self.sample, path)


class PathGuard:
    """Decides which canonical paths are deleted and counts the others; `covered` None means every path is covered.

    `own` is the table's present location and `others` are those of neighbour tables. A file at another table's location
    that is not at `own` is kept: a write path or a former location, which anyone who writes metadata can choose, claims
    nothing there. Iceberg's removal of orphan files too takes all that is below a location for that table's. Below the
    `last_known` areas of neighbours of which nothing can be read every file is kept.
    `damaged` has the verdict on each manifest list and manifest that cannot be read, and on former metadata in a bucket
    that does not exist: there is nothing to delete, and to try would fail for ever. `storage` is how every canonical
    path of the table's kind of storage begins.
    """

    def __init__(
        self,
        roots: Roots,
        covered: Roots | None,
        options: PurgeOptions,
        *,
        own: Roots | None = None,
        others: Roots | None = None,
        last_known: Roots | None = None,
    ) -> None:
        self.roots = roots
        self.covered = covered
        self.own = roots if own is None else own
        self.others = Roots(()) if others is None else others
        self.last_known = Roots(()) if last_known is None else last_known
        self.damaged: dict[str, GuardVerdict] = {}
        self.storage = "file:///" if roots.roots[0].bucket == LOCAL else "s3://"
        self._options = options
        self._tallies: dict[str, _Tally] = {}

    def covers(self, path: str) -> bool:
        return self.covered is None or self.covered.contains(path)

    def judge(self, path: str, *, shared: bool = False, foreign: bool = False, taken: bool = False) -> GuardVerdict:
        """Return "" to delete the path, else why it is kept, and count it; raise UnsupportedLocation.

        One that was `taken` over is of a table that was purged before: the purge of this one need not cover it.
        """
        if path in self.damaged:
            verdict = self.damaged[path]
        elif not path.startswith(self.storage):
            verdict = self._elsewhere(path)
        else:
            verdict = self._verdict(path, shared=shared, foreign=foreign, taken=taken)
        if verdict:
            self._tallies.setdefault(verdict, _Tally()).add(as_written(path))
        return verdict

    def _elsewhere(self, path: str) -> GuardVerdict:
        """Return the verdict on a path that names no object of this storage."""
        if path.startswith(MARKS[AmbiguousPath]):
            return "ambiguous"
        if self._options.unsupported == "refuse" and not is_marked(path):
            raise UnsupportedLocation(path, "not in the storage of the table's metadata")
        return "unsupported"

    def judge_all(
        self,
        rows: list[Row],
        *,
        shared: Set[str] = frozenset(),
        foreign: Set[str] = frozenset(),
        taken: Set[str] = frozenset(),
    ) -> Iterator[tuple[GuardVerdict, list[Row]]]:
        """Yield sorted rows in order, grouped while their verdict is the same; mostly one group."""
        first, last = rows[0][0], rows[-1][0]
        in_storage = first.startswith(self.storage) and last.startswith(self.storage)
        inside = (self._options.outside == "delete" and in_storage) or self.roots.contain_range(first, last)
        covered = self.covered is None or self.covered.contain_range(first, last)
        apart = any(first <= path <= last for path in (*foreign, *self.damaged))
        kept = shared or taken or apart or self._disputed(first, last)
        if inside and covered and not kept:
            yield "", rows
            return
        for verdict, group in groupby(
            rows,
            lambda row: self.judge(row[0], shared=row[0] in shared, foreign=row[0] in foreign, taken=row[0] in taken),
        ):
            yield verdict, list(group)

    def _disputed(self, first: str, last: str) -> bool:
        """Return whether a path from `first` to `last`, in text order, may be kept for another table's location."""
        disputed = self.others.meet_range(first, last) and not self.own.contain_range(first, last)
        return disputed or self.last_known.meet_range(first, last)

    def _verdict(self, path: str, *, shared: bool, foreign: bool, taken: bool) -> GuardVerdict:
        if foreign:
            return "foreign"
        if shared:
            return "shared"
        if self.last_known.contains(path) or (self.others.contains(path) and not self.own.contains(path)):
            return "at-another-table"
        if taken and not self.covers(path):
            return "not-covered"
        if self._options.outside != "delete" and not (taken or self.roots.contains(path)):
            return "outside"
        return "" if self.covers(path) else "uncovered"

    def add(self, findings: Iterable[tuple[GuardVerdict, Finding]]) -> None:
        """Add the counts of guards in other processes."""
        for verdict, finding in findings:
            tally = self._tallies.setdefault(verdict, _Tally())
            tally.count += finding.count
            tally.sample = (*tally.sample, *finding.sample)[:SAMPLE]

    def counted(self) -> list[tuple[GuardVerdict, Finding]]:
        """Return what was kept, by verdict."""
        return [
            (verdict, Finding(code=code, count=self._tallies[verdict].count, sample=self._tallies[verdict].sample))
            for verdict, code in _CODES.items()
            if verdict in self._tallies
        ]


def check_plan(index: PlanIndex, options: PurgeOptions) -> None:
    """Check an earlier plan against the current options; raise PlanNotAllowed or what `refuse_findings` raises."""
    if index.outside == "delete" and options.outside != "delete":
        raise errors.PlanNotAllowed(
            f"plan {index.plan_id} was made with outside=delete, the request has {options.outside}; make a new plan"
        )
    if FileType.DIRECTORY_MARKER in index.counts and not options.remove_directory_markers:
        raise errors.PlanNotAllowed(
            f"plan {index.plan_id} was made with deleteMarkerFiles=true, the request has false; make a new plan"
        )
    for finding in index.findings:
        setting = _SETTING_OF.get(finding.code)
        if setting is not None and getattr(options, setting) == "refuse":
            raise errors.PlanNotAllowed(
                f"plan {index.plan_id} leaves out what {finding.code} names, and delegation.purge.{setting} is refuse "
                "now; make a new plan"
            )
    refuse_findings(index.findings, options)


def check_same_options(index: PlanIndex, options: PurgeOptions) -> None:
    """Raise PlanNotAllowed for a plan that other options would have made; the rest is decided by `check_plan`."""
    deletes = "delete" if options.outside == "delete" else "keep or refuse"
    made = "delete" if index.outside == "delete" else "keep or refuse"
    if made != deletes:
        raise errors.PlanNotAllowed(
            f"plan {index.plan_id} was made with outside={index.outside}, the request has {options.outside}; {_ANOTHER}"
        )
    markers = index.directory_markers
    if markers is not None and markers != options.remove_directory_markers:
        raise errors.PlanNotAllowed(
            f"plan {index.plan_id} was made with deleteMarkerFiles={str(markers).lower()}, the request has "
            f"{str(options.remove_directory_markers).lower()}; {_ANOTHER}"
        )


def refuse_findings(findings: Iterable[Finding], options: PurgeOptions) -> None:
    """Raise the error of a finding that the options `refuse`."""
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
            raise errors.VersionedBucket(finding.sample)


def check_can_delete(store: ObjectStore, prefixes: Iterable[str]) -> None:
    """Delete a key that never existed below each prefix; raise CredentialsCannotDelete.

    Credentials that Polaris vends without TABLE_WRITE_DATA look like any others, so a delete has to be tried.
    """
    for prefix in prefixes:
        code = store.probe_delete(prefix)
        if code is not None:
            raise errors.CredentialsCannotDelete(prefix, code)
