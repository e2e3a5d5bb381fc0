"""Which paths may be deleted, and which tables may be purged at all. Pure but for the probe; every refusal is typed.

| guard                              | refuses with              | setting                          |
|------------------------------------|---------------------------|----------------------------------|
| gc.enabled=false                   | GC_DISABLED               | gc-disabled=refuse (default), ignore |
| another table-uuid at the name     | TABLE_UUID_MISMATCH       | none: the purge is of one uuid   |
| older metadata than planned        | METADATA_REPLACED         | none: the plan is of newer files |
| `#`, `?`, `..`, no bucket          | AMBIGUOUS_PATH            | none: the object is not known    |
| other schemes, S3 Tables           | UNSUPPORTED_LOCATION      | none: they cannot be deleted     |
| outside the table's locations      | PATHS_OUTSIDE_TABLE       | outside=keep (default), refuse, delete |
| not covered by the credentials     | CREDENTIALS_DO_NOT_COVER  | uncovered=refuse (default), keep |
| referenced by another live table   | FILES_SHARED              | shared=subtract (default), refuse |
| a bucket that keeps versions       | VERSIONED_BUCKET          | versioned=report (default), refuse |
| credentials that cannot delete     | CREDENTIALS_CANNOT_DELETE | delete-probe=true (default), false |
Settings are in `behavior.limits`; gc-disabled and delete-probe are the operator's alone.
"""

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

# What Polaris' session policy covers beside the vended prefixes, without naming it (observed on 1.4.1 and 1.7.0).
COVERED_WRITE_PATHS = ("write.data.path", "write.metadata.path")

OUTSIDE = "PATHS_OUTSIDE_TABLE"
UNCOVERED = "CREDENTIALS_DO_NOT_COVER"
SHARED = "FILES_SHARED"
FOREIGN_METADATA = "FOREIGN_METADATA"
VERSIONED_BUCKET = "VERSIONED_BUCKET"

GuardVerdict = Literal["", "outside", "uncovered", "shared", "foreign"]


def check_table(metadata: ParsedMetadata, options: PurgeOptions, *, table_uuid: str) -> None:
    """Raise TableUuidMismatch or GcDisabled."""
    if metadata.table_uuid != table_uuid.lower():
        raise errors.TableUuidMismatch(table_uuid.lower(), metadata.table_uuid)
    if not metadata.gc_enabled and options.gc_disabled == "refuse":
        raise errors.GcDisabled("the table's property gc.enabled is false")


def covered_roots(table: LoadedTable) -> Roots:
    """Where the vended credentials reach: their prefixes, and the present location and write paths of the table.

    A prefix that names no bucket ("" or a scheme alone) is how a catalog says nothing, not that it vends everything.
    """
    vended = (credential.prefix for credential in table.credentials)
    prefixes = [prefix for prefix in vended if prefix.partition("://")[2]]
    write_paths = [path for name in COVERED_WRITE_PATHS if (path := table.properties.get(name))]
    return Roots([table.location, *write_paths, *prefixes])


def table_roots(metadata: ParsedMetadata, former: Iterable[str]) -> Roots:
    """Every location that is or was the table's own.

    A present one that is ambiguous, unsupported or in another kind of storage than the metadata raises; a former one is
    left out, so that nothing counts as lying below.
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
    """Judges canonical paths and keeps count of what it holds back; `covered` None means the credentials reach all."""

    def __init__(self, roots: Roots, covered: Roots | None, options: PurgeOptions) -> None:
        self.roots = roots
        self.covered = covered
        self._storage = "file:///" if roots.roots[0].bucket == LOCAL else "s3://"
        self._options = options
        self._tallies: dict[str, _Tally] = {}

    def covers(self, path: str) -> bool:
        return self.covered is None or self.covered.contains(path)

    def judge(self, path: str, *, shared: bool = False, foreign: bool = False) -> GuardVerdict:
        """ "" to delete the path, otherwise why it is kept; what was kept is counted. Raises UnsupportedLocation."""
        if not path.startswith(self._storage):
            raise UnsupportedLocation(path, "not in the storage of the table's metadata")
        verdict = self._verdict(path, shared=shared, foreign=foreign)
        if verdict:
            self._tallies.setdefault(verdict, _Tally()).add(path)
        return verdict

    def judge_all(
        self, rows: list[Row], *, shared: Set[str] = frozenset(), foreign: Set[str] = frozenset()
    ) -> Iterator[tuple[GuardVerdict, list[Row]]]:
        """Sorted rows in order, those with one verdict that follow each other together; nearly always all of them."""
        first, last = rows[0][0], rows[-1][0]
        stored_alike = first.startswith(self._storage) and last.startswith(self._storage)
        anywhere = (self._options.outside == "delete" and stored_alike) or self.roots.contain_range(first, last)
        reached = self.covered is None or self.covered.contain_range(first, last)
        if anywhere and reached and not shared and not any(first <= path <= last for path in foreign):
            yield "", rows
            return
        for verdict, group in groupby(
            rows, lambda row: self.judge(row[0], shared=row[0] in shared, foreign=row[0] in foreign)
        ):
            yield verdict, list(group)

    def _verdict(self, path: str, *, shared: bool, foreign: bool) -> GuardVerdict:
        if foreign:
            return "foreign"
        if shared:
            return "shared"
        if self._options.outside != "delete" and not self.roots.contains(path):
            return "outside"
        return "" if self.covers(path) else "uncovered"

    def add(self, findings: Iterable[tuple[GuardVerdict, Finding]]) -> None:
        """Take in what guards in other processes counted."""
        for verdict, finding in findings:
            tally = self._tallies.setdefault(verdict, _Tally())
            tally.count += finding.count
            tally.sample = (*tally.sample, *finding.sample)[:SAMPLE]

    def counted(self) -> list[tuple[GuardVerdict, Finding]]:
        """What was kept, by verdict."""
        codes: dict[GuardVerdict, str] = {
            "outside": OUTSIDE,
            "uncovered": UNCOVERED,
            "shared": SHARED,
            "foreign": FOREIGN_METADATA,
        }
        return [
            (verdict, Finding(code=code, count=self._tallies[verdict].count, sample=self._tallies[verdict].sample))
            for verdict, code in codes.items()
            if verdict in self._tallies
        ]


def check_plan(index: PlanIndex, options: PurgeOptions) -> None:
    """Judge a plan made before by the options of now; raises what planning with them would, or PlanNotAllowed."""
    if index.outside == "delete" and options.outside != "delete":
        raise errors.PlanNotAllowed(
            f"plan {index.plan_id} was made with outside=delete, this request says {options.outside}"
        )
    if FileType.DIRECTORY_MARKER in index.counts and not options.remove_directory_markers:
        raise errors.PlanNotAllowed(
            f"plan {index.plan_id} was made with deleteMarkerFiles=true, this request says false"
        )
    refuse_findings(index.findings, options)


def refuse_findings(findings: Iterable[Finding], options: PurgeOptions) -> None:
    """Raise for what was found where keeping or reporting it is not what was asked."""
    for finding in findings:
        if finding.code == OUTSIDE and options.outside == "refuse":
            raise errors.PathsOutsideTable(finding.count, finding.sample)
        if finding.code == UNCOVERED and options.uncovered == "refuse":
            raise errors.CredentialsDoNotCover(finding.count, finding.sample)
        if finding.code == SHARED and options.shared == "refuse":
            raise errors.FilesShared(finding.count, finding.sample)
        if finding.code == VERSIONED_BUCKET and options.versioned == "refuse":
            raise errors.VersionedBucket(finding.sample)


def check_can_delete(store: ObjectStore, prefixes: Iterable[str]) -> None:
    """Delete a key that never existed below each prefix; raises CredentialsCannotDelete.

    Credentials vended to a principal without TABLE_WRITE_DATA look like any others: only trying tells.
    """
    for prefix in prefixes:
        code = store.probe_delete(prefix)
        if code is not None:
            raise errors.CredentialsCannotDelete(prefix, code)
