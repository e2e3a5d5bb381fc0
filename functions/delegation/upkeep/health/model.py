"""The health of one table: its contents, what maintenance would change, and its past runs. The past is kept here,
bounded, because a table has one task id for each kind, which records only the last submission."""

import json
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from delegation.identifiers import TableIdentifier
from delegation.items import SetAside
from delegation.removal.expiry.task_type import TASK_TYPE
from delegation.upkeep.schedule import NOTHING, Amount

MOST_PAST: Final = 10
"""Ended runs kept of each kind."""
LONGEST_PAST: Final = 2_048
"""Bytes of all ended runs as stored, compressed."""
_LONGEST_POLICY: Final = 300
_LONGEST_WORD: Final = 100


@dataclass(frozen=True, slots=True)
class PastRun:
    """One ended run: its task, its policy, its outcome, and what it deleted. `task_id` is empty if the run was refused
    before it started. `snapshots` counts those removed, None if this kind removes none. Times are in whole seconds."""

    task_type: str
    task_id: str
    policy: str
    began: datetime
    ended: datetime
    outcome: str
    files: int = 0
    bytes: int = 0
    snapshots: int | None = None

    def bounded(self) -> "PastRun":
        return PastRun(
            self.task_type[:_LONGEST_WORD],
            self.task_id[:_LONGEST_WORD],
            self.policy[:_LONGEST_POLICY],
            self.began.replace(microsecond=0),
            self.ended.replace(microsecond=0),
            self.outcome[:_LONGEST_WORD],
            self.files,
            self.bytes,
            self.snapshots,
        )


def newest_of_each_type(past: Iterable[PastRun]) -> tuple[PastRun, ...]:
    """Return at most MOST_PAST runs of each kind as stored, newest first."""
    kept: list[PastRun] = []
    of_type: Counter[str] = Counter()
    for run in sorted(past, key=lambda each: each.ended, reverse=True):
        of_type[run.task_type] += 1
        if of_type[run.task_type] <= MOST_PAST:
            kept.append(run.bounded())
    return tuple(kept)


def rows_of_past(past: Sequence[PastRun]) -> list[list[Any]]:
    return [
        [
            run.task_type,
            run.task_id,
            run.policy,
            int(run.began.timestamp()),
            int(run.ended.timestamp()),
            run.outcome,
            run.files,
            run.bytes,
            run.snapshots,
        ]
        for run in past
    ]


def past_of_rows(rows: Iterable[Sequence[Any]]) -> tuple[PastRun, ...]:
    """Return the runs written by `rows_of_past`. Columns of a later release are ignored."""
    return tuple(
        PastRun(task_type, task_id, policy, _moment(began), _moment(ended), outcome, files, size, snapshots)
        for task_type, task_id, policy, began, ended, outcome, files, size, snapshots, *_ in rows
    )


def _moment(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


REVIEW_WITHIN: Final = timedelta(days=30)
REVIEW_EVERY: Final = timedelta(days=1)
_REVIEW_STEP: Final = timedelta(minutes=10)

Expirable = Callable[[Mapping[str, Any], datetime], Collection[int]]
"""The snapshots of parsed metadata that a rule expires at a time. They only grow with time."""


def review_at(document: Mapping[str, Any], expirable: Expirable, now: datetime, *, has_expirable: bool) -> datetime:
    """Return when to read an unchanged table again, because its snapshots age. If nothing expires yet: when the first
    snapshot will, within REVIEW_WITHIN. Otherwise in a day."""
    if has_expirable:
        return now + REVIEW_EVERY
    early, late = 0, REVIEW_WITHIN // _REVIEW_STEP
    if not expirable(document, now + REVIEW_WITHIN):
        return now + REVIEW_WITHIN
    while late - early > 1:
        middle = (early + late) // 2
        if expirable(document, now + middle * _REVIEW_STEP):
            late = middle
        else:
            early = middle
    return now + late * _REVIEW_STEP


LONGEST_PROBLEM: Final = 1_000
LONGEST_LOCATION: Final = 4_096
_PROTECTED: Final = frozenset({"GC_DISABLED", "TABLE_PROTECTED", "UNSUPPORTED"})
"""Codes of guards that waiting does not change: the table's owner decided so, or its manifests are encrypted."""
MOST_KINDS: Final = 16
"""Kinds of maintenance whose last runs are kept."""


@dataclass(frozen=True, slots=True)
class FreedBytes:
    """Bytes of data and delete files that an expiry would free, from `lower` to `upper`, None if unknown."""

    lower: int = 0
    upper: int | None = 0


@dataclass(frozen=True, slots=True)
class LastRun:
    """The last run of one kind of maintenance: its task, its policy and its outcome, None while it runs. `failures`
    counts failures in a row. `reserved` is its share of the budget, `used` what it used. `waiting` is the id of its
    plan that waits for approval."""

    task_type: str
    task_id: str
    policy: str
    began: datetime
    reserved: Amount = NOTHING
    ended: datetime | None = None
    outcome: str | None = None
    used: Amount = NOTHING
    failures: int = 0
    waiting: str = ""


@dataclass(frozen=True, slots=True)
class OwnPolicy:
    """A policy attached to the table itself, with the part of its content that can have an effect."""

    type: str
    namespace: tuple[str, ...]
    name: str
    version: int
    content: str


@dataclass(frozen=True, slots=True)
class OwnPolicies:
    """A table's own policies as of a time. Those of its namespaces are read in each pass."""

    as_of: datetime
    policies: tuple[OwnPolicy, ...] = ()


@dataclass(frozen=True, slots=True)
class TableHealth:
    """A table as last read. All but `runs` and `past` belongs to `metadata_location`.

    `files` are the data files of the current snapshot, `bytes` those of its data and delete files without deletion
    vectors. A data file is small below three quarters of the table's target size, and oversized above 1.8 times it. The
    bytes of both and the number of the latter are None if a former release read the table. `metadata_bytes` is the size
    of metadata.json, without the manifests' `manifest_bytes`. `expirable` snapshots are those that the rule `rule`
    expires, None without a rule; `since` is when one was first found. `review_at` is when to read the table again even
    if it does not change. `again_at` is when more of the same snapshots expire, for which the table need not be read.
    `properties` are the table's that can change its rule; `own` are the table's own policies, None if never read.
    `problem` is why the table could not be read completely; the numbers are then the former ones. `past` are the ended
    runs, newest first. `asides` states what fails for the table, and when it is tried again. `wanted` is when a run of
    each kind that has none yet was first needed. `revision` is that of the stored health, 0 for none.
    """

    identifier: TableIdentifier
    table_uuid: str
    metadata_location: str
    as_of: datetime
    snapshots: int = 0
    refs: int = 0
    files: int = 0
    bytes: int = 0
    small_files: int = 0
    delete_files: int = 0
    deletion_vectors: int = 0
    manifests: int = 0
    manifest_bytes: int = 0
    metadata_bytes: int = 0
    small_bytes: int | None = None
    oversized_files: int | None = None
    oversized_bytes: int | None = None
    expirable: int | None = None
    freed: FreedBytes = FreedBytes()
    rule: str = ""
    since: datetime | None = None
    review_at: datetime | None = None
    again_at: datetime | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    own: OwnPolicies | None = None
    problem: str | None = None
    runs: Mapping[str, LastRun] = field(default_factory=dict)
    past: tuple[PastRun, ...] = ()
    asides: Mapping[str, SetAside] = field(default_factory=dict)
    wanted: Mapping[str, datetime] = field(default_factory=dict)
    revision: int = 0

    @property
    def protection(self) -> str | None:
        """The code of the guard that refused the table's last expiry, None without one."""
        run = self.runs.get(TASK_TYPE)
        return run.outcome if run is not None and run.failures and run.outcome in _PROTECTED else None

    def set_aside(self, key: str, aside: SetAside | None) -> "TableHealth":
        """Return the health with a current failure of the table. None removes it."""
        others = {name: aside for name, aside in self.asides.items() if name != key}
        return replace(self, asides=others if aside is None else {**others, key: aside})

    def wanted_since(self, task_type: str, since: datetime | None) -> "TableHealth":
        """Return the health with the time at which a run of a kind was first needed. None removes it."""
        others = {name: moment for name, moment in self.wanted.items() if name != task_type}
        return replace(self, wanted=others if since is None else {**others, task_type: since})

    def with_run(self, run: LastRun, *, snapshots: int | None = None) -> "TableHealth":
        """Return the health with the last run of its kind; an ended run is also added to its past. `snapshots` is the
        number that it removed."""
        noted = replace(self.wanted_since(run.task_type, None), runs={**self.runs, run.task_type: run})
        if run.ended is None or run.outcome is None:
            return noted
        ended = PastRun(
            run.task_type,
            run.task_id,
            run.policy,
            run.began,
            run.ended,
            run.outcome,
            run.used.files,
            run.used.bytes,
            snapshots,
        )
        return replace(noted, past=newest_of_each_type((ended, *self.past)))

    def bounded(self) -> "TableHealth":
        """The health as stored, bounded to fit an item, whatever the table's writer chose."""
        return replace(
            self,
            metadata_location=self.metadata_location[:LONGEST_LOCATION],
            problem=None if self.problem is None else self.problem[:LONGEST_PROBLEM],
            runs=dict(sorted(self.runs.items())[:MOST_KINDS]),
            asides=dict(sorted(self.asides.items())[:MOST_KINDS]),
            past=_fitting(self.past),
        )


def _fitting(past: tuple[PastRun, ...]) -> tuple[PastRun, ...]:
    """Return as many of the newest runs as fit."""
    kept = newest_of_each_type(past)
    while len(packed_past(kept)) > LONGEST_PAST:
        kept = kept[:-1]
    return kept


def packed_past(past: tuple[PastRun, ...]) -> bytes:
    return packed({"runs": rows_of_past(past)})


@dataclass(frozen=True, slots=True)
class ManifestSizes:
    """Totals of a manifest's live entries, and its own `length` in bytes. `files` are data files; `bytes` are of data
    files and of position and equality delete files. A former release stored nothing after `length`."""

    files: int = 0
    bytes: int = 0
    small_files: int = 0
    delete_files: int = 0
    deletion_vectors: int = 0
    length: int = 0
    small_bytes: int = 0
    oversized_files: int = 0
    oversized_bytes: int = 0

    def __add__(self, other: "ManifestSizes") -> "ManifestSizes":
        return ManifestSizes(
            self.files + other.files,
            self.bytes + other.bytes,
            self.small_files + other.small_files,
            self.delete_files + other.delete_files,
            self.deletion_vectors + other.deletion_vectors,
            self.length + other.length,
            self.small_bytes + other.small_bytes,
            self.oversized_files + other.oversized_files,
            self.oversized_bytes + other.oversized_bytes,
        )


@dataclass(frozen=True, slots=True)
class SnapshotChange:
    """What a snapshot changed, by its own manifests, in bytes of data and delete files. `removed_least` excludes
    deletion vectors, whose file is removed only when all its vectors are."""

    added: int = 0
    removed: int = 0
    removed_least: int = 0

    def __add__(self, other: "SnapshotChange") -> "SnapshotChange":
        return SnapshotChange(
            self.added + other.added,
            self.removed + other.removed,
            self.removed_least + other.removed_least,
        )


MOST_MANIFESTS: Final = 3_000
MOST_CHANGES: Final = 3_000
LONGEST_HISTORY: Final = 65_536
"""Bytes, compressed: about 4,000 snapshots."""


@dataclass(frozen=True, slots=True)
class ReadState:
    """What is stored of manifests and snapshots, so that each is read once. `manifests` are the current snapshot's, by
    digest; those beyond MOST_MANIFESTS are read again when the table changes. `changes` are by snapshot id; a missing
    one is unknown. `small` is the size below which a file counted as small. `history` decides rules
    (`upkeep.health.reading`); if it is too large it is None, and the table is loaded. It belongs to
    `metadata_location`, which a former release did not store."""

    table_uuid: str = ""
    small: int = 0
    manifests: Mapping[bytes, ManifestSizes] = field(default_factory=dict)
    changes: Mapping[int, SnapshotChange] = field(default_factory=dict)
    history: Mapping[str, Any] | None = None
    metadata_location: str = ""

    def history_of(self, health: TableHealth) -> Mapping[str, Any] | None:
        """Return the history if it belongs to the health's metadata file. State and health are written one after the
        other, so another process may have written one of them since."""
        return self.history if self.metadata_location in {"", health.metadata_location} else None

    def bounded(self) -> "ReadState":
        """The state as stored: the manifests with the most files, and the newest snapshots."""
        manifests, changes = self.manifests, self.changes
        if len(manifests) > MOST_MANIFESTS:
            by_size = sorted(
                manifests.items(), key=lambda entry: (-entry[1].files - entry[1].deletion_vectors, entry[0])
            )
            manifests = dict(by_size[:MOST_MANIFESTS])
        if len(changes) > MOST_CHANGES:
            changes = dict(list(changes.items())[-MOST_CHANGES:])
        fits = self.history is not None and len(packed(self.history)) <= LONGEST_HISTORY
        return replace(
            self,
            manifests=manifests,
            changes=changes,
            history=self.history if fits else None,
            metadata_location=self.metadata_location[:LONGEST_LOCATION],
        )


def packed(document: Mapping[str, Any]) -> bytes:
    return zlib.compress(json.dumps(document, separators=(",", ":")).encode())
