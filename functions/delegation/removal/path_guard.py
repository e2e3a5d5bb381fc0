"""Decides which paths an operation may delete, also by table properties, and why others stay."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from itertools import groupby
from operator import itemgetter
from typing import Final, Literal

from delegation.errors import GuardRefused
from delegation.iceberg.errors import (
    CorruptManifestError,
    EncryptedMetadataFile,
    ManifestMismatchError,
    ManifestMissing,
)
from delegation.iceberg.metadata import PROTECTED, ParsedMetadata
from delegation.iceberg.paths import LEFT, MARKS, Row, as_written, is_marked
from delegation.misspellings import did_you_mean, misspelled
from delegation.polaris.model import LoadedTable
from delegation.removal.index import SAMPLE, FileTally, Finding, PlanWriter, common_of_two, without
from delegation.removal.neighbourhood import STRICT_PATHS, PathRules
from delegation.storage.base import FileTooLarge, ObjectStore
from delegation.storage.locations import (
    FOREIGN_LOCATION,
    LOCAL,
    AmbiguousPath,
    ForeignLocations,
    Roots,
    UnsupportedLocation,
    canonical,
    same_storage,
)
from polaris_common.errors import printable

PREFIX: Final = "delegation."
ORPHAN_AGE: Final = "delegation.orphan-files.older-than"
"""The age of orphan files, for jobs that take longer to commit."""
POLICY: Final = "delegation.policy."
POLICY_TYPES: Final = ("snapshot-expiry", "orphan-file-removal", "metadata-compaction", "data-compaction")
"""What follows POLICY. `upkeep.rules` knows the names of each type."""
UNKNOWN: Final = "TABLE_PROPERTY_UNKNOWN"
"""The code of a finding: properties with the service's prefix that no release knows."""
TYPED: Final = tuple(f"{POLICY}{policy_type}." for policy_type in POLICY_TYPES)


def unknown_properties(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Return the property names with the service's prefix that have no effect."""
    ours = (name for name in properties if name.startswith(PREFIX))
    return tuple(sorted(name for name in ours if name not in {PROTECTED, ORPHAN_AGE} and not name.startswith(TYPED)))


def unknown_findings(properties: Mapping[str, str]) -> tuple[Finding, ...]:
    """Return the finding about properties without effect, if any."""
    names = unknown_properties(properties)
    sample = tuple(
        f"{printable(name)} ({did_you_mean(name, (PROTECTED, ORPHAN_AGE, *TYPED))})" for name in names[:SAMPLE]
    )
    return (Finding(code=UNKNOWN, count=len(names), sample=sample),) if names else ()


def protection_of(properties: Mapping[str, str]) -> str | None:
    """Return the property, with its value, that forbids deleting the table's files, None without one. Every text but
    "false" in any case protects, and so does a misspelled name."""
    for name, value in properties.items():
        if value.lower() != "false" and misspelled(name, (PROTECTED,)):
            meant = "" if name == PROTECTED else f" (taken for {PROTECTED})"
            return f"{printable(name)}{meant} is {printable(value)}"
    return None


def age_text_of(properties: Mapping[str, str], who: str) -> str | None:
    """Return a table's age of orphan files. Raises GuardRefused (AGE_INVALID) for a misspelled name."""
    for name in properties:
        if name != ORPHAN_AGE and misspelled(name, (ORPHAN_AGE,)):
            raise GuardRefused(
                f"{printable(who)} has the property {printable(name)}; did you mean {ORPHAN_AGE}? Set that property "
                "and remove the other",
                code="AGE_INVALID",
            )
    return properties.get(ORPHAN_AGE)


# Polaris' session policy covers these paths too, without vended prefixes for them (observed with 1.4.1 and 1.7.0).
COVERED_WRITE_PATHS = ("write.data.path", "write.metadata.path")
OUTSIDE = "PATHS_OUTSIDE_TABLE"
UNCOVERED = "CREDENTIALS_DO_NOT_COVER"
SHARED = "FILES_SHARED"
AT_ANOTHER_TABLE = "FILES_AT_ANOTHER_TABLE"
NOT_COVERED = "NOT_COVERED"
FOREIGN_METADATA = "FOREIGN_METADATA"
FORMER_UNREADABLE = "FORMER_METADATA_UNREADABLE"
VERSIONED_BUCKET = "VERSIONED_BUCKET"
OF_DAMAGED = "FILES_OF_DAMAGED_MANIFESTS"
"""The code of a finding: files that only damaged manifests name stay, as far as these can be read."""
_RANK: Final = itemgetter(1)
GuardVerdict = Literal[
    "", "outside", "uncovered", "shared", "foreign", "at-another-table", "unsupported", "ambiguous",
    "missing", "corrupt", "mismatch", "too-large", "encrypted", "of-damaged", "former-unreadable", "not-covered",
    "foreign-location",
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
    "of-damaged": OF_DAMAGED,
    "former-unreadable": FORMER_UNREADABLE,
    "not-covered": NOT_COVERED,
    "foreign-location": FOREIGN_LOCATION,
}
NOBODYS: Final = ForeignLocations()
"""No location is foreign."""


def kept_spellings(options: PathRules) -> frozenset[type[GuardRefused]]:
    """Return the kinds of paths that name no object of the storage and that a setting keeps."""
    return frozenset(kind for kind, mark in MARKS.items() if getattr(options, mark.rstrip(":")) == "keep")


def covered_roots(table: LoadedTable, options: PathRules = STRICT_PATHS) -> Roots:
    """Return the prefixes of the vended credentials, without those that name no bucket, the table's current location
    and its write paths."""
    vended = (credential.prefix for credential in table.credentials)
    prefixes = [prefix for prefix in vended if prefix.partition("://")[2]]
    write_paths = [path for name in COVERED_WRITE_PATHS if (path := table.properties.get(name))]
    return Roots(_usable([table.location, *write_paths, *prefixes], options))


def table_roots(metadata: ParsedMetadata, former: Iterable[str], options: PathRules) -> Roots:
    """Return every current and former location of the table. A current location that is ambiguous, unsupported or in
    another storage than the metadata raises GuardRefused, or a setting leaves it out unless it is the only one. Such a
    former location is left out, so that no path counts as inside it."""
    before = []
    for location in former:
        try:
            Roots([location])
        except GuardRefused:
            continue
        before.extend([location] if same_storage(location, metadata.path) else [])
    locations = [*_usable(metadata.locations, options, of=metadata.path), *before]
    if not locations:
        _usable(metadata.locations, STRICT_PATHS, of=metadata.path)
    return Roots(locations)


def own_root(metadata: ParsedMetadata, options: PathRules) -> Roots:
    """Return the table's current location, empty if it is left out."""
    return Roots(_usable([metadata.location], options, of=metadata.path))


def _usable(locations: Iterable[str], options: PathRules, *, of: str | None = None) -> list[str]:
    """Return the locations without those that a setting leaves out. Raises the error of any other unusable one."""
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
        raise UnsupportedLocation(location, "its storage differs from that of the table's metadata file")
    Roots([location])


def storage_of(path: str) -> str:
    """Return the prefix of all canonical paths in a file's kind of storage."""
    return "file:///" if canonical(path).startswith("file:") else "s3://"


def reads(metadata: ParsedMetadata, covered: Roots | None) -> Callable[[str], bool]:
    """Return a function that returns whether a path can be read: in the metadata's storage, and covered."""
    storage = storage_of(metadata.path)
    return lambda path: path.startswith(storage) and (covered is None or covered.contains(path))


class PathGuard:
    """Decides which canonical paths are deleted and counts the others. `covered` None means that every path is covered.

    `own` is the table's current location, `neighbour_roots` are those of neighbours. A file at a neighbour's location
    but not at `own` is kept: write paths and former locations claim nothing there, because anyone who writes metadata
    can choose them. (Iceberg's removal of orphan files also treats everything below a location as that table's.) Every
    file below the `last_known` areas of wholly unreadable neighbours is kept, and at `foreign` locations, which belong
    to others by the operator's setting. `damaged` has the verdicts on unreadable manifest lists and manifests, and on
    former metadata in a missing bucket, where a delete would fail forever. `storage` is the prefix of every canonical
    path in the table's kind of storage.
    """

    def __init__(
        self,
        roots: Roots,
        covered: Roots | None,
        options: PathRules,
        *,
        own: Roots | None = None,
        neighbour_roots: Roots | None = None,
        last_known: Roots | None = None,
        foreign: ForeignLocations = NOBODYS,
    ) -> None:
        self.roots = roots
        self.covered = covered
        self.own = roots if own is None else own
        self.neighbour_roots = Roots(()) if neighbour_roots is None else neighbour_roots
        self.last_known = Roots(()) if last_known is None else last_known
        self.foreign = foreign
        self.damaged: dict[str, GuardVerdict] = {}
        self.storage = "file:///" if roots.roots[0].bucket == LOCAL else "s3://"
        self._options = options
        self._tallies: dict[str, FileTally] = {}

    def fresh(self) -> "PathGuard":
        """Return a guard with the same decisions and no counts, for one part of a plan."""
        guard = PathGuard(
            self.roots,
            self.covered,
            self._options,
            own=self.own,
            neighbour_roots=self.neighbour_roots,
            last_known=self.last_known,
            foreign=self.foreign,
        )
        guard.damaged = dict(self.damaged)
        return guard

    def covers(self, path: str) -> bool:
        return self.covered is None or self.covered.contains(path)

    def verdict(self, path: str, *, shared: bool = False, foreign: bool = False, taken: bool = False) -> GuardVerdict:
        """Return "" to delete the path, else why it is kept, and count it. Raises UnsupportedLocation. A path that was
        `taken` over is of a formerly purged table, so this one's credentials need not cover it."""
        if path in self.damaged:
            verdict = self.damaged[path]
        elif not path.startswith(self.storage):
            verdict = self._elsewhere(path)
        else:
            verdict = self._verdict(path, shared=shared, foreign=foreign, taken=taken)
        if verdict:
            self._tallies.setdefault(verdict, FileTally()).add(as_written(path))
        return verdict

    def _elsewhere(self, path: str) -> GuardVerdict:
        """Return the verdict on a path that names no object of this storage."""
        if path.startswith(MARKS[AmbiguousPath]):
            return "ambiguous"
        if self._options.unsupported == "refuse" and not is_marked(path):
            raise UnsupportedLocation(path, "its storage differs from that of the table's metadata file")
        return "unsupported"

    def verdicts(
        self,
        rows: list[Row],
        *,
        shared: Set[str] = frozenset(),
        foreign: Set[str] = frozenset(),
        taken: Set[str] = frozenset(),
    ) -> Iterator[tuple[GuardVerdict, list[Row]]]:
        """Yield sorted rows in order, grouped while their verdict is the same; mostly one group."""
        if max(map(_RANK, rows)) >= LEFT:
            for is_left, alike in groupby(rows, lambda row: row[1] >= LEFT):
                some = list(alike)
                if not is_left:
                    yield from self.verdicts(some, shared=shared, foreign=foreign, taken=taken)
                    continue
                for path, _, _ in some:
                    self._tallies.setdefault("of-damaged", FileTally()).add(as_written(path))
                yield "of-damaged", [(path, rank - LEFT, size) for path, rank, size in some]
            return
        first, last = rows[0][0], rows[-1][0]
        in_storage = first.startswith(self.storage) and last.startswith(self.storage)
        inside = (self._options.outside == "delete" and in_storage) or self.roots.contain_range(first, last)
        covered = self.covered is None or self.covered.contain_range(first, last)
        apart = any(first <= path <= last for path in (*foreign, *self.damaged))
        apart = apart or any(self.foreign.contain(row[0]) for row in (rows if self.foreign.uris else ()))
        kept = shared or taken or apart or self._disputed(first, last)
        if inside and covered and not kept:
            yield "", rows
            return
        for verdict, group in groupby(
            rows,
            lambda row: self.verdict(row[0], shared=row[0] in shared, foreign=row[0] in foreign, taken=row[0] in taken),
        ):
            yield verdict, list(group)

    def write(
        self,
        writer: PlanWriter,
        batches: Iterable[list[Row]],
        needed: Iterable[str],
        foreign: Set[str],
        *,
        shared: Iterable[str] = (),
        taken: Iterable[str] = (),
    ) -> None:
        """Write the sorted rows that are not `needed`, by their verdicts. All paths must be in order."""
        for rows, theirs, ours in common_of_two(without(batches, needed), shared, taken):
            for verdict, group in self.verdicts(rows, shared=theirs, foreign=foreign, taken=ours):
                writer.write(group, verdict)

    def _disputed(self, first: str, last: str) -> bool:
        """Return whether a path from `first` to `last`, in text order, may be kept for another table's location."""
        disputed = self.neighbour_roots.meet_range(first, last) and not self.own.contain_range(first, last)
        return disputed or self.last_known.meet_range(first, last)

    def _verdict(self, path: str, *, shared: bool, foreign: bool, taken: bool) -> GuardVerdict:
        if self.foreign.contain(path):
            return "foreign-location"
        if foreign:
            return "foreign"
        if shared:
            return "shared"
        if self.last_known.contains(path) or (self.neighbour_roots.contains(path) and not self.own.contains(path)):
            return "at-another-table"
        if taken and not self.covers(path):
            return "not-covered"
        if self._options.outside != "delete" and not (taken or self.roots.contains(path)):
            return "outside"
        return "" if self.covers(path) else "uncovered"

    def add(self, findings: Iterable[tuple[GuardVerdict, Finding]]) -> None:
        """Add the counts of guards in other processes."""
        for verdict, finding in findings:
            tally = self._tallies.setdefault(verdict, FileTally())
            tally.count += finding.count
            tally.sample = [*tally.sample, *finding.sample][:SAMPLE]

    def counted(self) -> list[tuple[GuardVerdict, Finding]]:
        """Return what was kept, by verdict."""
        tallies = self._tallies
        return [(verdict, tallies[verdict].finding(code)) for verdict, code in _CODES.items() if verdict in tallies]


def check_can_delete(store: ObjectStore, prefixes: Iterable[str]) -> None:
    """Delete a key that never existed below each prefix. Raises GuardRefused (CREDENTIALS_CANNOT_DELETE). Only a delete
    shows it: credentials that Polaris vends without TABLE_WRITE_DATA look like any others."""
    for prefix in prefixes:
        code = store.probe_delete(prefix)
        if code is not None:
            raise GuardRefused(
                f"the vended credentials cannot delete below {printable(prefix)} ({code}). Grant TABLE_WRITE_DATA to "
                "the service's principal",
                code="CREDENTIALS_CANNOT_DELETE",
            )
