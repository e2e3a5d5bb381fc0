"""Which snapshots, refs, schemas and partition specs an expiry removes: Iceberg's own rule (RemoveSnapshots, 1.11).

The rule, in Iceberg's order:

1. A ref is kept if it is MAIN or its snapshot is at most `max-ref-age-ms` old: its own value, else the table's.
2. The snapshot of a kept ref is kept. A snapshot named in the request must not be among these.
3. Of a kept branch the newest `min-snapshots-to-keep` are kept, and then more while they are at least as new as the
   limit. Both are the branch's own, else the request's, else the table's. The first older one ends the branch.
4. A snapshot that is no ancestor of a kept branch and not at a kept tag is kept if it is as new as the limit of the
   request, else of the table.
5. All others are removed, and so are those named in the request.
6. With `clean_expired_metadata` a schema is removed if it is not the current one and no kept snapshot has it, and a
   partition spec if it is not the default and no manifest of a kept snapshot has it. Snapshots that are removed only
   because the request names them count as kept here.

Two things differ, both to keep more. A snapshot without a recorded schema stops Iceberg with a NullPointerException;
here no schema is removed. Parents in a cycle make Iceberg run forever; here the metadata is corrupt. As in Iceberg, an
id that the table does not have is ignored: after the commit a repeated run finds none of its ids. Iceberg fails only if
there are more ids than snapshots.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from delegation.iceberg.errors import CorruptMetadata
from delegation.removal.expiry.errors import InvalidRetention, SnapshotReferenced
from delegation.removal.expiry.snapshots import INT, LONG, MAIN, Ref, TableHistory, history

MAX_SNAPSHOT_AGE: Final = "history.expire.max-snapshot-age-ms"
MIN_SNAPSHOTS: Final = "history.expire.min-snapshots-to-keep"
MAX_REF_AGE: Final = "history.expire.max-ref-age-ms"
_DEFAULTS: Final = {MAX_SNAPSHOT_AGE: 5 * 24 * 60 * 60 * 1000, MIN_SNAPSHOTS: 1, MAX_REF_AGE: LONG[-1]}

Reason = Literal["ref", "count", "age", "unreferenced"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """What a request or a policy states about the history to keep. None leaves it to the table's properties.

    A ref's own retention precedes all of it. `snapshot_ids` are removed beside what is old. The last three are the
    operator's or a policy's, have no equivalent in Iceberg, and bound everything else, including refs and properties:
    no snapshot younger than `least_age_ms` is removed, at least `least_snapshots` of each branch are kept, and no ref
    whose snapshot is younger than `least_ref_age_ms` is removed. Raises InvalidRetention for a number that Iceberg
    would not accept.
    """

    older_than_ms: int | None = None
    retain_last: int | None = None
    snapshot_ids: tuple[int, ...] = ()
    max_ref_age_ms: int | None = None
    clean_expired_metadata: bool = False
    least_age_ms: int = 0
    least_snapshots: int = 0
    least_ref_age_ms: int = 0

    def __post_init__(self) -> None:
        if self.retain_last is not None and not 1 <= self.retain_last <= INT[-1]:
            raise InvalidRetention(
                f"the number of snapshots to retain is {self.retain_last}; it must be 1 to {INT[-1]}"
            )
        if self.max_ref_age_ms is not None and not 1 <= self.max_ref_age_ms <= LONG[-1]:
            raise InvalidRetention(f"the age of refs is {self.max_ref_age_ms} ms; it must be 1 to {LONG[-1]}")
        if self.older_than_ms is not None and self.older_than_ms not in LONG:
            raise InvalidRetention(f"the time {self.older_than_ms} is not in milliseconds since 1970")


@dataclass(frozen=True, slots=True)
class Expired:
    """What an expiry removes from a table's metadata; never MAIN, the current schema or the default spec."""

    snapshot_ids: frozenset[int] = frozenset()
    refs: frozenset[str] = frozenset()
    schema_ids: frozenset[int] = frozenset()
    spec_ids: frozenset[int] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.snapshot_ids or self.refs or self.schema_ids or self.spec_ids)


@dataclass(frozen=True, slots=True)
class KeptSnapshot:
    """Why a snapshot is kept: a `ref` is at it, it is one of the ref's newest, or it is as new as the limit.
    `unreferenced`: no ref reaches it, but it is not old enough."""

    why: Reason
    ref: str | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """What is removed, and why each other snapshot is `kept`. `refs` are the kept ones with the maximum age in
    milliseconds of their snapshot, None without a limit. `counted` are the snapshots whose manifests decide which
    partition specs are in use: the kept ones, and those that are removed only because the request names them."""

    expired: Expired
    kept: Mapping[int, KeptSnapshot]
    refs: Mapping[str, int | None]
    counted: frozenset[int]


def expired(
    metadata: Mapping[str, Any], retention: Retention, *, now_ms: int, specs_in_use: Collection[int] | None = None
) -> Expired:
    """Return what `decide` removes."""
    return decide(metadata, retention, now_ms=now_ms, specs_in_use=specs_in_use).expired


def decide(
    metadata: Mapping[str, Any],
    retention: Retention,
    *,
    now_ms: int,
    specs_in_use: Collection[int] | None = None,
    keep_refs: Collection[str] = (),
) -> Decision:
    """Apply Iceberg's rule to the parsed metadata at a time in milliseconds since 1970.

    `keep_refs` are kept whatever their age, with what rules 2 to 4 keep for them. `specs_in_use` are the partition spec
    ids of all manifests of the `counted` snapshots; a manifest that a snapshot lists inline (format version 1) has spec
    0, as in Iceberg. None: not known, so no spec is removed.

    Raises CorruptMetadata, InvalidRetention for a table property that is not a number, and SnapshotReferenced.
    """
    table = history(metadata)
    properties = {name: _number(table.properties, name) for name in _DEFAULTS}
    older_than = retention.older_than_ms
    limits = _Limits(
        now=now_ms,
        older_than=_long(now_ms - properties[MAX_SNAPSHOT_AGE]) if older_than is None else older_than,
        newest=now_ms - retention.least_age_ms if retention.least_age_ms else LONG[-1],
        least_snapshots=retention.least_snapshots,
        min_snapshots=retention.retain_last or properties[MIN_SNAPSHOTS],
        max_ref_age=retention.max_ref_age_ms or properties[MAX_REF_AGE],
        least_ref_age=retention.least_ref_age_ms,
    )
    refs = {name: ref for name, ref in table.refs.items() if name in keep_refs or limits.keeps(ref, table)}
    _refuse_referenced(retention.snapshot_ids, refs)
    if retention.least_age_ms:
        _refuse_young(retention.snapshot_ids, table, limits.newest)
    retained = _retained(table, refs, limits)
    named = frozenset(retention.snapshot_ids)
    kept = {snapshot_id: why for snapshot_id, why in retained.items() if snapshot_id not in named}
    removed = frozenset(snapshot_id for snapshot_id in table.snapshots if snapshot_id not in kept)
    if table.current_id in removed:
        raise CorruptMetadata(
            "the table's metadata", "refs", "there is a current snapshot, but the branch main does not point to it"
        )
    schemas, specs = frozenset[int](), frozenset[int]()
    if retention.clean_expired_metadata:
        schemas = _unused_schemas(table, retained)
        if specs_in_use is not None:
            specs = frozenset(table.spec_ids) - {table.default_spec_id} - frozenset(specs_in_use)
    gone = Expired(removed, frozenset(table.refs.keys() - refs.keys()), schemas, specs)
    ages = {name: limits.age_of(ref) for name, ref in refs.items()}
    return Decision(gone, kept, ages, frozenset(retained))


def unknown_ids(metadata: Mapping[str, Any], retention: Retention) -> frozenset[int]:
    """Return the ids in the request that are no snapshots of the table. Raises CorruptMetadata."""
    return frozenset(retention.snapshot_ids) - history(metadata).snapshots.keys()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limits:
    """The numbers for refs without their own."""

    now: int
    older_than: int
    newest: int
    min_snapshots: int
    least_snapshots: int
    max_ref_age: int
    least_ref_age: int

    def keeps(self, ref: Ref, table: TableHistory) -> bool:
        limit = self.age_of(ref)
        return limit is None or _long(self.now - table.snapshots[ref.snapshot_id].timestamp_ms) <= limit

    def age_of(self, ref: Ref) -> int | None:
        """Return the maximum age of a ref's snapshot, None for any age."""
        limit = self.max_ref_age if ref.max_age_ms is None else ref.max_age_ms
        if self.least_ref_age:  # without the operator's bound a negative age keeps Iceberg's meaning
            limit = max(limit, self.least_ref_age)
        return None if ref.name == MAIN or limit == LONG[-1] else limit

    def of(self, branch: Ref) -> tuple[int, int]:
        """Return how many snapshots of a branch are kept, and the time since when all are."""
        count = self.min_snapshots if branch.min_snapshots is None else branch.min_snapshots
        age = branch.max_snapshot_age_ms
        limit = self.older_than if age is None else _long(self.now - age)
        return max(count, self.least_snapshots), min(limit, self.newest)


def _number(properties: Mapping[str, str], name: str) -> int:
    """Return a property as Java's parseLong or parseInt reads it. Raises InvalidRetention."""
    text = properties.get(name)
    if text is None:
        return _DEFAULTS[name]
    # Such a number has at most 20 characters besides leading zeros. Longer texts must not cost time.
    number = int(text) if len(text) <= 1_000 and re.fullmatch(r"[+-]?\d+", text) else None
    if number is None or number not in (INT if name == MIN_SNAPSHOTS else LONG):
        raise InvalidRetention(
            f"the table's property {name} is {text[:40]!r}, which Iceberg cannot read as a number. Set it to a number, "
            "or remove it"
        )
    return number


def _long(value: int) -> int:
    """Return a difference of longs as Java computes it, with overflow."""
    return (value + 2**63) % 2**64 - 2**63


def _refuse_referenced(snapshot_ids: Collection[int], refs: Mapping[str, Ref]) -> None:
    at: dict[int, list[str]] = {}
    for ref in refs.values():
        at.setdefault(ref.snapshot_id, []).append(ref.name)
    for snapshot_id in sorted(set(snapshot_ids)):
        if snapshot_id in at:
            raise SnapshotReferenced(snapshot_id, sorted(at[snapshot_id]))


def _refuse_young(snapshot_ids: Collection[int], table: TableHistory, newest: int) -> None:
    for snapshot_id in sorted(set(snapshot_ids) & table.snapshots.keys()):
        if table.snapshots[snapshot_id].timestamp_ms >= newest:
            raise InvalidRetention(
                f"snapshot {snapshot_id} is younger than the operator's setting delegation.expiry.least-snapshot-age "
                "allows. Leave it out of the request"
            )


def _retained(table: TableHistory, refs: Mapping[str, Ref], limits: _Limits) -> dict[int, KeptSnapshot]:
    """Return every snapshot that rules 2 to 4 keep, each with one reason, in the order of the document."""
    order = list(_parents_first(table))
    branches = [ref for ref in refs.values() if ref.is_branch]
    reasons: dict[int, KeptSnapshot] = {}
    _keep_newest(table, order, branches, limits, reasons)
    referenced = {ref.snapshot_id for ref in branches}
    for snapshot_id in reversed(order):
        parent = table.parent_of(snapshot_id)
        if snapshot_id in referenced and parent is not None:
            referenced.add(parent)
    referenced |= {ref.snapshot_id for ref in refs.values()}
    for snapshot in table.snapshots.values():
        if snapshot.snapshot_id not in referenced and snapshot.timestamp_ms >= min(limits.older_than, limits.newest):
            reasons[snapshot.snapshot_id] = KeptSnapshot("unreferenced")
    for ref in sorted(refs.values(), key=lambda ref: (ref.name != MAIN, ref.name), reverse=True):
        reasons[ref.snapshot_id] = KeptSnapshot("ref", ref.name)
    return {snapshot_id: reasons[snapshot_id] for snapshot_id in table.snapshots if snapshot_id in reasons}


def _keep_newest(
    table: TableHistory, order: list[int], branches: Collection[Ref], limits: _Limits, reasons: dict[int, KeptSnapshot]
) -> None:
    """Record the snapshots that rule 3 keeps. Many branches may share a long history, so each snapshot passes to its
    parent once what is left to keep: the number, and the oldest age limit that every snapshot of a branch so far has
    met."""
    position = {snapshot_id: at for at, snapshot_id in enumerate(order)}
    remaining: dict[int, tuple[int, str]] = {}
    since: dict[int, tuple[int, str]] = {}
    for branch, start in _starts_of_age(table, order, branches, limits):
        count, limit = limits.of(branch)
        if count > 0:
            head = branch.snapshot_id
            remaining[head] = max(remaining.get(head, (0, branch.name)), (min(count, len(position)), branch.name))
        if start is not None:
            since[start] = min(since.get(start, (limit, branch.name)), (limit, branch.name))
    for snapshot_id in reversed(order):
        snapshot, parent = table.snapshots[snapshot_id], table.parent_of(snapshot_id)
        more, age = remaining.get(snapshot_id), since.get(snapshot_id)
        if age is not None and snapshot.timestamp_ms >= age[0]:
            reasons[snapshot_id] = KeptSnapshot("age", age[1])
            if parent is not None:
                since[parent] = min(since.get(parent, age), age)
        if more is not None:
            reasons[snapshot_id] = KeptSnapshot("count", more[1])
            if parent is not None and more[0] > 1:
                handed = (more[0] - 1, more[1])
                remaining[parent] = max(remaining.get(parent, handed), handed)


def _starts_of_age(
    table: TableHistory, order: list[int], branches: Collection[Ref], limits: _Limits
) -> Iterator[tuple[Ref, int | None]]:
    """Yield each branch with its first snapshot that is not kept by number, None if all are. `order` is depth first, so
    the path from a root to a snapshot is known at its turn."""
    at: dict[int, list[Ref]] = {}
    for branch in branches:
        at.setdefault(branch.snapshot_id, []).append(branch)
    depth: dict[int, int] = {}
    path: list[int] = []
    for snapshot_id in order:
        parent = table.parent_of(snapshot_id)
        depth[snapshot_id] = 0 if parent is None else depth[parent] + 1
        del path[depth[snapshot_id] :]
        path.append(snapshot_id)
        for branch in at.get(snapshot_id, ()):
            index = len(path) - 1 - max(0, limits.of(branch)[0])
            yield branch, path[index] if index >= 0 else None


def _parents_first(table: TableHistory) -> Iterator[int]:
    """Yield the snapshots depth first, from those without a parent. Raises CorruptMetadata for a cycle."""
    children: dict[int, list[int]] = {}
    pending: list[int] = []
    for snapshot_id in table.snapshots:
        parent = table.parent_of(snapshot_id)
        siblings = pending if parent is None else children.setdefault(parent, [])
        siblings.append(snapshot_id)
    seen = 0
    while pending:
        snapshot_id = pending.pop()
        seen += 1
        yield snapshot_id
        pending.extend(children.get(snapshot_id, ()))
    if seen != len(table.snapshots):
        raise CorruptMetadata("the table's metadata", "parent-snapshot-id", "snapshots are their own ancestors")


def _unused_schemas(table: TableHistory, retained: Collection[int]) -> frozenset[int]:
    used = {table.snapshots[snapshot_id].schema_id for snapshot_id in retained}
    if None in used:
        return frozenset()
    return frozenset(
        schema_id for schema_id in table.schema_ids if schema_id not in used and schema_id != table.current_schema_id
    )


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """Nothing more may be expired. `reason` is the beginning of a sentence."""

    reason: str


Permission = Retention | Withdrawn
"""What may be expired now, at most what the task was to expire, or that it must stop."""


def stricter(first: Retention, second: Retention) -> Retention:
    """Return what keeps as much as both. None leaves a number to the other, then to the table's properties."""
    ages = [rule.older_than_ms for rule in (first, second) if rule.older_than_ms is not None]
    counts = [rule.retain_last for rule in (first, second) if rule.retain_last is not None]
    refs = [rule.max_ref_age_ms for rule in (first, second) if rule.max_ref_age_ms is not None]
    return Retention(
        older_than_ms=min(ages, default=None),
        retain_last=max(counts, default=None),
        snapshot_ids=tuple(snapshot_id for snapshot_id in first.snapshot_ids if snapshot_id in second.snapshot_ids),
        max_ref_age_ms=max(refs, default=None),
        clean_expired_metadata=first.clean_expired_metadata and second.clean_expired_metadata,
        least_age_ms=max(first.least_age_ms, second.least_age_ms),
        least_snapshots=max(first.least_snapshots, second.least_snapshots),
        least_ref_age_ms=max(first.least_ref_age_ms, second.least_ref_age_ms),
    )


def keeps_more(now: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    """Return whether one retention keeps anything that the other removes, both as by `asdict`."""
    if (now["older_than_ms"] or 0) < (before["older_than_ms"] or 0):
        return True
    rising = ("retain_last", "max_ref_age_ms", "least_age_ms", "least_snapshots", "least_ref_age_ms")
    return any((now[name] or 0) > (before[name] or 0) for name in rising)
