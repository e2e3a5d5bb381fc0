"""Guards: which tables may be purged, and which paths may be deleted (docs/architecture.md, Purging)."""

from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from delegation.errors import GuardRefused
from delegation.iceberg.files import FileType, Row
from delegation.iceberg.metadata import ParsedMetadata
from delegation.operations.purge import errors
from delegation.operations.purge.options import PurgeOptions
from delegation.polaris.model import LoadedTable
from delegation.storage.base import ObjectStore
from delegation.storage.locations import LOCAL, Roots, UnsupportedLocation, same_storage
from delegation.worksets.index import SAMPLE, Finding, PlanIndex

# Polaris' session policy also covers these paths, without a vended prefix for them (observed with 1.4.1 and 1.7.0).
COVERED_WRITE_PATHS = ("write.data.path", "write.metadata.path")

OUTSIDE = "PATHS_OUTSIDE_TABLE"
UNCOVERED = "CREDENTIALS_DO_NOT_COVER"
SHARED = "FILES_SHARED"
AT_ANOTHER_TABLE = "FILES_AT_ANOTHER_TABLE"
FOREIGN_METADATA = "FOREIGN_METADATA"
VERSIONED_BUCKET = "VERSIONED_BUCKET"

GuardVerdict = Literal["", "outside", "uncovered", "shared", "foreign", "at-another-table"]


def check_table(metadata: ParsedMetadata, options: PurgeOptions, *, table_uuid: str) -> None:
    """Raise TableUuidMismatch or GcDisabled."""
    if metadata.table_uuid != table_uuid.lower():
        raise errors.TableUuidMismatch(table_uuid.lower(), metadata.table_uuid)
    if not metadata.gc_enabled and options.gc_disabled == "refuse":
        raise errors.GcDisabled("the table's property gc.enabled is false")


def covered_roots(table: LoadedTable) -> Roots:
    """Return what the vended credentials cover: their prefixes, the table's current location and its write paths.

    A prefix without a bucket ("" or only a scheme) states nothing; it does not mean that everything is covered.
    """
    vended = (credential.prefix for credential in table.credentials)
    prefixes = [prefix for prefix in vended if prefix.partition("://")[2]]
    write_paths = [path for name in COVERED_WRITE_PATHS if (path := table.properties.get(name))]
    return Roots([table.location, *write_paths, *prefixes])


def table_roots(metadata: ParsedMetadata, former: Iterable[str]) -> Roots:
    """Return every current or former location of the table.

    A current location that is ambiguous, unsupported or in another storage than the metadata raises GuardRefused; such
    a former location is left out, so that no path counts as inside it.
    """
    usable = []
    for location in former:
        try:
            Roots([location])
        except GuardRefused:
            continue
        usable.extend([location] if same_storage(location, metadata.path) else [])
    for location in metadata.locations:
        if not same_storage(location, metadata.path):
            raise UnsupportedLocation(location, "not in the storage of the table's metadata")
    return Roots([*metadata.locations, *usable])


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
    nothing there. Iceberg's removal of orphan files too takes all that is below a location for that table's.
    """

    def __init__(
        self,
        roots: Roots,
        covered: Roots | None,
        options: PurgeOptions,
        *,
        own: Roots | None = None,
        others: Roots | None = None,
    ) -> None:
        self.roots = roots
        self.covered = covered
        self.own = roots if own is None else own
        self.others = Roots(()) if others is None else others
        self._storage = "file:///" if roots.roots[0].bucket == LOCAL else "s3://"
        self._options = options
        self._tallies: dict[str, _Tally] = {}

    def covers(self, path: str) -> bool:
        return self.covered is None or self.covered.contains(path)

    def judge(self, path: str, *, shared: bool = False, foreign: bool = False) -> GuardVerdict:
        """Return "" to delete the path, else why it is kept, and count it; raise UnsupportedLocation."""
        if not path.startswith(self._storage):
            raise UnsupportedLocation(path, "not in the storage of the table's metadata")
        verdict = self._verdict(path, shared=shared, foreign=foreign)
        if verdict:
            self._tallies.setdefault(verdict, _Tally()).add(path)
        return verdict

    def judge_all(
        self, rows: list[Row], *, shared: Set[str] = frozenset(), foreign: Set[str] = frozenset()
    ) -> Iterator[tuple[GuardVerdict, list[Row]]]:
        """Yield sorted rows in order, grouped while their verdict is the same; mostly one group."""
        first, last = rows[0][0], rows[-1][0]
        in_storage = first.startswith(self._storage) and last.startswith(self._storage)
        inside = (self._options.outside == "delete" and in_storage) or self.roots.contain_range(first, last)
        covered = self.covered is None or self.covered.contain_range(first, last)
        kept = shared or any(first <= path <= last for path in foreign) or self._disputed(first, last)
        if inside and covered and not kept:
            yield "", rows
            return
        for verdict, group in groupby(
            rows, lambda row: self.judge(row[0], shared=row[0] in shared, foreign=row[0] in foreign)
        ):
            yield verdict, list(group)

    def _disputed(self, first: str, last: str) -> bool:
        """Return whether a path from `first` to `last`, in text order, may be at another table's location only."""
        return self.others.meet_range(first, last) and not self.own.contain_range(first, last)

    def _verdict(self, path: str, *, shared: bool, foreign: bool) -> GuardVerdict:
        if foreign:
            return "foreign"
        if shared:
            return "shared"
        if self.others.contains(path) and not self.own.contains(path):
            return "at-another-table"
        if self._options.outside != "delete" and not self.roots.contains(path):
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
        codes: dict[GuardVerdict, str] = {
            "outside": OUTSIDE,
            "uncovered": UNCOVERED,
            "shared": SHARED,
            "at-another-table": AT_ANOTHER_TABLE,
            "foreign": FOREIGN_METADATA,
        }
        return [
            (verdict, Finding(code=code, count=self._tallies[verdict].count, sample=self._tallies[verdict].sample))
            for verdict, code in codes.items()
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
    refuse_findings(index.findings, options)


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
