"""Expiries by policy: what a rule expires by a table's health, the start of a run, and the state after its end."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Final

from delegation.errors import GuardRefused
from delegation.iceberg.errors import IcebergError
from delegation.iceberg.metadata import parse_metadata
from delegation.identifiers import TableIdentifier
from delegation.polaris.answers import NoSuchNamespace, NoSuchTable, TableMetadataMissing
from delegation.polaris.model import LoadedTable
from delegation.removal.errors import POLICY_WITHDRAWN
from delegation.removal.expiry.errors import check_table
from delegation.removal.expiry.requests import TableExpiry
from delegation.removal.expiry.retention import expired
from delegation.removal.expiry.task_type import TASK_TYPE, ExpiryDetails
from delegation.removal.requests import TableWork
from delegation.tasks.errors import MalformedRecord
from delegation.tasks.life.model import Status, Task
from delegation.upkeep.errors import TooManyManifests, UpkeepError
from delegation.upkeep.execution.asked import (
    EXPIRY,
    AskedExpiryRule,
    CatalogPolicies,
    ExpiryRule,
    RuleOf,
    TableRule,
    rule_of,
)
from delegation.upkeep.execution.kinds import KeptTables, KindEvaluation, PolicyKind, in_turn, outcome_of, run_after
from delegation.upkeep.health.model import (
    REVIEW_EVERY,
    FreedBytes,
    LastRun,
    OwnPolicies,
    ReadState,
    TableHealth,
    review_at,
)
from delegation.upkeep.health.reading import document_of, freed_bytes
from delegation.upkeep.rules.model import PolicyType
from delegation.upkeep.schedule import NOTHING, Amount, Choice, UpkeepNeed
from delegation.wire.requests import TableState

_GIB: Final = 1024**3
_STORED_MICROS: Final = 23_000
"""A GB-month of S3 Standard in us-east-1, in millionths of a dollar (Amazon S3 pricing). Orders needs, bills nobody."""
_RUN_MICROS: Final = 600
"""The state machine and the function of one short run."""
_READ_MICROS: Final = 1
_FILES_PER_MICRO: Final = 100
_FIRST_PAUSE: Final = timedelta(hours=1)
_LONGEST_PAUSE: Final = timedelta(days=7)
_TYPICAL_FILE: Final = 32 * 1024 * 1024
"""Bytes assumed for a file of a table whose current snapshot is empty."""


def can_be_decided(health: TableHealth) -> bool:
    """Return whether a table's stored history is current. Its manifests are not needed."""
    return health.problem is None or health.problem.startswith(f"{TooManyManifests.code}:")


def is_outdated(health: TableHealth, asked: AskedExpiryRule | None, now: datetime) -> bool:
    """Return whether a table's need comes from another rule, or has changed with time."""
    if asked is None:
        return bool(health.rule) or health.since is not None
    return health.rule != asked.version or (health.again_at is not None and health.again_at <= now)


def without_rule(health: TableHealth) -> TableHealth:
    return replace(health, expirable=None, freed=FreedBytes(), rule="", since=None, again_at=None)


def with_need(
    health: TableHealth, document: Mapping[str, Any], state: ReadState, asked: AskedExpiryRule, now: datetime
) -> TableHealth:
    """Return the health with what the rule expires now, and when more will expire. If the history cannot be decided,
    nothing expires until the table's next change."""
    try:
        gone = _expirable(asked.rule, document, now)
        parents = {
            snapshot["snapshot-id"]: snapshot.get("parent-snapshot-id") for snapshot in document.get("snapshots") or ()
        }
        freed = freed_bytes(parents, gone, state.changes)
        again = review_at(
            document, lambda past, moment: _expirable(asked.rule, past, moment), now, has_expirable=bool(gone)
        )
    except (GuardRefused, IcebergError):
        return replace(without_rule(health), rule=asked.version, again_at=now + REVIEW_EVERY)
    since = (health.since or now) if gone else None
    return replace(health, expirable=len(gone), freed=freed, rule=asked.version, since=since, again_at=again)


def _expirable(rule: ExpiryRule, document: Mapping[str, Any], now: datetime) -> Collection[int]:
    now_ms = int(now.astimezone(UTC).timestamp() * 1000)
    return expired(document, rule.retention(now_ms), now_ms=now_ms).snapshot_ids


def need_of(health: TableHealth, asked: AskedExpiryRule) -> UpkeepNeed | None:
    """Return what a table needs; None if nothing, or if its last run ended after it was read."""
    if not health.expirable or health.rule != asked.version or not can_be_decided(health):
        return None
    last = health.runs.get(TASK_TYPE)
    failures = 0 if last is None else last.failures
    ended = None if last is None else last.ended
    aside = health.asides.get(TASK_TYPE)
    times = [] if aside is None else [aside.next_try]
    if ended is not None and failures:
        times.append(ended + pause_after(failures))
    return UpkeepNeed(
        table=health.identifier,
        task_type=TASK_TYPE,
        policy=asked.policy,
        score=_freed(health) * _STORED_MICROS // _GIB + health.expirable,
        cost=cost_of(health),
        since=health.since or health.as_of,
        not_before=max(times, default=None),
    )


def longest_waiting(healths: Iterable[TableHealth]) -> TableHealth | None:
    """Return the table that has waited longest for a run and has none in progress. It uses the results stored by former
    passes, so it is known however this pass ends. Tables that are protected or unreadable do not count as waiting."""
    waiting = [
        health
        for health in healths
        if health.expirable
        and health.since is not None
        and not _runs(health)
        and can_be_decided(health)
        and not health.protection
    ]
    return min(waiting, key=lambda health: (health.since, str(health.identifier)), default=None)


def _runs(health: TableHealth) -> bool:
    run = health.runs.get(TASK_TYPE)
    return run is not None and run.ended is None


def cost_of(health: TableHealth) -> Amount:
    """Return an expiry's expected use, an upper estimate if the files are known."""
    snapshots, size = health.expirable or 0, _freed(health)
    typical = health.bytes // health.files if health.bytes and health.files else _TYPICAL_FILE
    # Each snapshot has, besides its data, a manifest list and about one manifest.
    files = -(-size // max(typical, 1)) + 2 * snapshots
    reads = snapshots + health.manifests
    return Amount(files, size, _RUN_MICROS + reads * _READ_MICROS + files // _FILES_PER_MICRO)


def pause_after(failures: int) -> timedelta:
    """Return the pause of a table after this many failures in a row."""
    return min(_FIRST_PAUSE * (1 << min(max(failures, 1) - 1, 10)), _LONGEST_PAUSE)


def _freed(health: TableHealth) -> int:
    return health.freed.lower if health.freed.upper is None else health.freed.upper


STOPPED: Final = "STOPPED"
"""The outcome of a run whose policy was withdrawn."""


def to_submit(expiry: TableExpiry, stored: Task | None) -> TableExpiry | None:
    """Return the expiry to submit, None while another expiry of the table is in progress. An expiry that failed after
    its commit is resumed unchanged: only its plan names the files to delete. Raises UpkeepError (EXPIRY_UNFINISHED) for
    a caller's expiry."""
    if stored is None or expiry.obstacle(stored) is None:
        return expiry
    if not stored.is_terminal:
        return None
    former = TableExpiry.readable(stored)
    if former is not None and former.policy is not None and expiry.resumes(stored):
        return former
    raise UpkeepError(
        f"a caller's expiry of {expiry.identifier} failed after its commit ({stored.error_code}). Retry it with "
        f"`delegation tasks retry {stored.task_id}`. Until it is complete, no policy expires snapshots of the table",
        code="EXPIRY_UNFINISHED",
    )


def ended(health: TableHealth, run: LastRun, task: Task, now: datetime) -> TableHealth:
    succeeded = task.status is Status.SUCCESS
    used, codes, snapshots = _details(task)
    outcome = outcome_of(task)
    if succeeded and POLICY_WITHDRAWN in codes:
        outcome = STOPPED
    noted = health.with_run(run_after(run, task, outcome, used, failed=not succeeded), snapshots=snapshots)
    if outcome == STOPPED:
        # The current need is computed again.
        return replace(noted, rule="", expirable=None)
    if succeeded and task.task_type == TASK_TYPE:
        # Until the changed table is read again, no further need is known.
        again = now + REVIEW_EVERY
        return replace(noted, expirable=0, freed=FreedBytes(), since=None, again_at=again)
    return noted


def _details(task: Task) -> tuple[Amount, frozenset[str], int | None]:
    try:
        details = ExpiryDetails.of(task)
    except MalformedRecord:
        return NOTHING, frozenset(), None
    codes = frozenset(finding.code for finding in details.findings)
    return Amount(details.files_deleted, details.bytes_deleted), codes, details.snapshots_expired


MOST_LOADS: Final = 100
"""Tables loaded in one pass because their history is too large to be stored."""
_GONE: Final = (NoSuchTable, NoSuchNamespace, TableMetadataMissing)


class ExpiryEvaluation(KindEvaluation[AskedExpiryRule]):
    """The expiry policies that one pass has read."""

    def __init__(self, kind: "PolicyExpiries", tables: KeptTables) -> None:
        super().__init__(kind, tables)
        self._policies = CatalogPolicies(kind.applicable)
        self._loads_left = kind.loads
        self._to_read = self._own_to_read()

    def need(self, health: TableHealth, asked: AskedExpiryRule) -> UpkeepNeed | None:
        return need_of(health, asked)

    def is_due(self, health: TableHealth) -> bool:  # noqa: ARG002 - a stored rule costs no request
        return True

    def to_read(self) -> Sequence[TableIdentifier]:
        return self._tables.names

    def _own_to_read(self) -> set[TableIdentifier]:
        """Return the tables whose own policies this pass reads."""
        kind, now = self._kind, self._kind.clock()
        known = [health for health in self._tables if not self._tables.is_aside(health.identifier, kind.rules, now)]
        changed = [health.identifier for health in known if health.own is None or health.own.as_of < health.as_of][
            : kind.most_asked
        ]
        rest = sorted({health.identifier for health in known} - set(changed), key=str)
        return {*changed, *in_turn(rest, kind.most_asked - len(changed), now, kind.settings.interval)}

    def ruled(self, health: TableHealth) -> tuple[TableHealth, TableRule[AskedExpiryRule]]:
        if health.identifier in self._to_read:
            health = replace(health, own=self._own(health, self._kind.clock()))
        applicable = self._policies.applying(health.identifier, health.own)
        return health, self.rule(health.identifier, applicable, health.properties)

    def _own(self, health: TableHealth, now: datetime) -> OwnPolicies:
        own, before = self._policies.own(health.identifier, now), health.own
        if before is None or before.policies != own.policies or before.as_of < health.as_of:
            return own
        return before  # a new time alone is no reason to write

    def needed(self, health: TableHealth, asked: AskedExpiryRule | None) -> TableHealth:
        now = self._kind.clock()
        if not can_be_decided(health) or not is_outdated(health, asked, now):
            return health
        return without_rule(health) if asked is None else self._with_need(health, asked, now)

    def _with_need(self, health: TableHealth, asked: AskedExpiryRule, now: datetime) -> TableHealth:
        state = self._kind.healths.read_state(health.identifier)
        if (history := state.history_of(health)) is not None:
            document = document_of(history)
        elif self._loads_left > 0:
            self._loads_left -= 1
            self._kind.pace()
            try:
                document = dict(self._kind.catalog.load_table(health.identifier, vend=False).metadata)
            except _GONE:
                return without_rule(health)
        else:
            return health
        self._computed += 1
        return with_need(health, document, state, asked, now)

    def check(self, table: LoadedTable, asked: AskedExpiryRule) -> None:  # noqa: ARG002
        check_table(parse_metadata(table.metadata_location, table.metadata), table_uuid=table.table_uuid)

    def turned_off(self, health: TableHealth, need: UpkeepNeed) -> TableHealth:  # noqa: ARG002
        return without_rule(health)

    def wanted(self, table: LoadedTable, asked: AskedExpiryRule, need: UpkeepNeed) -> TableWork | None:
        expiry = TableExpiry(
            realm=self._kind.realm,
            identifier=need.table,
            table=TableState.of(table),
            properties=asked.rule.options(),
            policy=asked.policy,
        )
        return to_submit(expiry, self._kind.tasks.reads.find(expiry.task_id))


@dataclass(frozen=True)
class PolicyExpiries(PolicyKind):
    """Expires the tables of a catalog by its policies. The own policies of changed tables are read first, then those of
    others in turn."""

    loads: int = MOST_LOADS

    task_type: ClassVar[str] = TASK_TYPE
    policy_type: ClassVar[PolicyType] = EXPIRY
    work: ClassVar[type[TableWork]] = TableExpiry
    rules: ClassVar[str] = "upkeep.rules"
    unread: ClassVar[str] = "upkeep.policies"
    rule_of: ClassVar[RuleOf] = staticmethod(rule_of)
    evaluation: ClassVar[type[KindEvaluation[Any]]] = ExpiryEvaluation

    def count_wait(self, tables: KeptTables, choice: Choice | None = None) -> None:
        longest = longest_waiting(tables)
        if choice is None and longest is not None and longest.since is not None:
            self.waited(max(self.clock() - longest.since, timedelta(0)), longest.identifier)
        elif choice is None:
            self.waited(timedelta(0), None)

    def ended(self, health: TableHealth, run: LastRun, task: Task | None) -> TableHealth:
        return health if task is None else ended(health, run, task, self.clock())
