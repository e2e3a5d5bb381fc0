"""One pass over a catalog for all kinds of upkeep: what tables need of each competes for the same places. All state is
in the healths, so the next pass repeats one that is killed: a run is reserved in its table's health before its task is
submitted, and a table's task has one id. A table that fails is set aside and takes no place."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict

from delegation.identifiers import TableIdentifier
from delegation.items import Asides, SetAside, each_item, is_answer
from delegation.polaris.answers import PoliciesNotSupported
from delegation.references.names import CATALOG_UPKEEP
from delegation.references.recurring import RecurringCatalog
from delegation.tasks.errors import MalformedRecord
from delegation.tasks.work.behaviors import Behavior, Run
from delegation.upkeep.errors import HealthChanged, UpkeepError
from delegation.upkeep.health.model import TableHealth
from delegation.upkeep.health.store import HealthStore
from delegation.upkeep.policy_file import PolicyFileInvalid
from delegation.upkeep.rules.limits import UpkeepSettings
from delegation.upkeep.schedule import Choice, UpkeepNeed, UpkeepRun, choose
from polaris_common.errors import DelegationError, ErrorScope

T = TypeVar("T")

ASIDE_FOR: Final = timedelta(minutes=30)
"""After its first failure a table is left out for so long, two intervals."""
MOST_FAILED_STARTS: Final = 100
"""Runs that do not start in one pass, before the others are left to the next one."""
_LONGEST_REASON: Final = 600
_GOLDEN: Final = 0.6180339887498949
_KEPT: Final = UpkeepError("a task that a caller asked for keeps the table, or it is gone", code="UPKEEP_RUN_KEPT")


@dataclass(frozen=True, slots=True)
class UpkeepCounts:
    """What a pass did: tables, executed rules, needs, started runs, and the reasons of those that wait. `invalid` are
    policies that apply somewhere and cannot be executed, `unread` tables whose policies cannot be read, `why_unread`
    the reason of one of them."""

    tables: int = 0
    ruled: int = 0
    computed: int = 0
    started: int = 0
    waiting: Mapping[str, int] = field(default_factory=dict)
    invalid: frozenset[str] = frozenset()
    unread: int = 0
    why_unread: str | None = None


Waited = Callable[[timedelta, TableIdentifier | None], object]
"""Called with the longest time that a table has been waiting for a run, and with that table."""


def nobody_counts(_wait: timedelta, _table: TableIdentifier | None) -> None: ...


class KeptTables:
    """A catalog's table healths, as one pass has read and written them."""

    def __init__(self, healths: HealthStore, catalog: str) -> None:
        self._healths = healths
        self._by_name = {one.identifier: one for one in healths.healths(catalog)}
        self.unsettled: set[TableIdentifier] = set()
        """Tables of which it cannot be known whether their last run has ended."""

    @property
    def names(self) -> Sequence[TableIdentifier]:
        return list(self._by_name)

    def __iter__(self) -> Iterator[TableHealth]:
        return iter(list(self._by_name.values()))

    def __len__(self) -> int:
        return len(self._by_name)

    def __getitem__(self, name: TableIdentifier) -> TableHealth:
        return self._by_name[name]

    def put(self, after: TableHealth) -> bool:
        """Store what changed; return False if another process wrote meanwhile, whose pass continues."""
        if after == self._by_name[after.identifier]:
            return True
        try:
            self._by_name[after.identifier] = self._healths.put(after)
        except HealthChanged:
            return False
        return True

    def note_unread(self, name: TableIdentifier, key: str, reason: str, now: datetime) -> None:
        """Store why a table's policies cannot be read, once for each reason; every pass reads the table."""
        before = self[name].asides.get(key)
        if before is None or before.error != reason[:_LONGEST_REASON]:
            self.put(self[name].set_aside(key, SetAside(reason[:_LONGEST_REASON], now, 1, now)))

    def is_aside(self, name: TableIdentifier, key: str, now: datetime) -> bool:
        aside = self[name].asides.get(key)
        return aside is not None and now < aside.next_try


@dataclass(frozen=True, slots=True)
class TableAsides(Asides[TableIdentifier]):
    """Asides in the healths of tables, each kind of failure under its own `key`."""

    tables: KeptTables
    key: str

    def of(self, item: TableIdentifier) -> SetAside | None:
        return self.tables[item].asides.get(self.key)

    def put(self, item: TableIdentifier, aside: SetAside | None) -> None:
        """Store or remove an aside; if that fails the next pass tries the table again."""
        with suppress(UpkeepError):
            self.tables.put(self.tables[item].set_aside(self.key, aside))


@dataclass(frozen=True, slots=True)
class _NeedAsides(Asides[UpkeepNeed]):
    """Asides of runs that did not start, under the type of their task."""

    tables: KeptTables

    def of(self, item: UpkeepNeed) -> SetAside | None:
        return TableAsides(self.tables, item.task_type).of(item.table)

    def put(self, item: UpkeepNeed, aside: SetAside | None) -> None:
        TableAsides(self.tables, item.task_type).put(item.table, aside)


class KindLook(Protocol):
    @property
    def needs(self) -> Sequence[UpkeepNeed]: ...

    @property
    def counts(self) -> UpkeepCounts: ...

    def start(self, need: UpkeepNeed) -> bool:
        """Start one run by the table's current state and policies; return whether a task was submitted."""
        ...


class PolicyKind(Protocol):
    """One kind of upkeep by policy; the kinds of a pass share healths, settings and clock."""

    @property
    def task_type(self) -> str: ...

    @property
    def is_allowed(self) -> bool:
        """Whether the operator allows it; nothing is read otherwise."""
        ...

    @property
    def healths(self) -> HealthStore: ...

    @property
    def settings(self) -> UpkeepSettings: ...

    @property
    def clock(self) -> Callable[[], datetime]: ...

    @property
    def checkpoint(self) -> Callable[[], None]: ...

    def count_wait(self, tables: KeptTables, choice: Choice | None = None) -> None:
        """Count the longest wait, before the catalog is read, and again with the first choice."""
        ...

    def settled(self, health: TableHealth) -> TableHealth:
        """Return the health with the end of its last run, or without a run that never began."""
        ...

    def look(self, tables: KeptTables) -> KindLook:
        """Read the policies, compute what tables need, and store it."""
        ...

    def probe(self, catalog: str) -> bool:
        """Request something other than a table from the catalog; return whether it answers."""
        ...


def run_kinds(kinds: Sequence[PolicyKind], catalog: str) -> UpkeepCounts:
    """Make one pass. Raises the errors of the stores, and those of the catalog that are no single table's. A kind whose
    policies cannot be read does not stop the others; its error is raised after them."""
    kinds = [one for one in kinds if one.is_allowed]
    if not kinds:
        return UpkeepCounts()
    tables = KeptTables(kinds[0].healths, catalog)
    for kind in kinds:
        kind.count_wait(tables)
    _settle(kinds, tables)
    looks: dict[str, KindLook] = {}
    failed: Exception | None = None
    shown = _type_of
    for one in each_item(
        kinds, lambda kind: kind.look(tables), name="upkeep.kinds", clock=kinds[0].clock, shown=shown, in_a_row=None
    ):
        failed = failed or one.error
        if one.result is not None:
            looks[one.item.task_type] = one.result
    started, waiting = _started(kinds, looks, tables, catalog)
    if failed is not None:
        raise failed
    counts = [one.counts for one in looks.values()]
    return UpkeepCounts(
        tables=len(tables),
        ruled=sum(one.ruled for one in counts),
        computed=sum(one.computed for one in counts),
        started=started,
        waiting=waiting,
        invalid=frozenset().union(*(one.invalid for one in counts)),
        unread=sum(one.unread for one in counts),
        why_unread=next((one.why_unread for one in counts if one.why_unread), None),
    )


def _type_of(kind: PolicyKind) -> str:
    return kind.task_type


def _settle(kinds: Sequence[PolicyKind], tables: KeptTables) -> None:
    """Note which runs have ended; one whose task cannot be read holds no place."""

    def settle(name: TableIdentifier) -> None:
        health = tables[name]
        for kind in kinds:
            try:
                health = kind.settled(health)
            except MalformedRecord as error:
                run, now = health.runs[kind.task_type], kind.clock()
                if run.ended is None:
                    health = health.with_run(replace(run, ended=now, outcome=error.code, failures=run.failures + 1))
        tables.put(health)

    first = kinds[0]
    for one in each_item(tables.names, settle, name="upkeep.ended", clock=first.clock, checkpoint=first.checkpoint):
        if one.error is not None and is_answer(one.error):
            tables.unsettled.add(one.item)


def _started(
    kinds: Sequence[PolicyKind], looks: Mapping[str, KindLook], tables: KeptTables, catalog: str
) -> tuple[int, dict[str, int]]:
    """Start what may run now; return the number of runs, and of waiting needs by reason. A need that does not start
    leaves its place to the next."""
    first = kinds[0]
    left = dict.fromkeys(need for look in looks.values() for need in look.needs if need.table not in tables.unsettled)
    terms = first.settings.terms_of({need.policy for need in left})
    waiting: Counter[str] = Counter()
    asides = _NeedAsides(tables)
    kept: dict[UpkeepNeed, SetAside | None] = {}
    started = tried = 0

    def start(need: UpkeepNeed) -> bool:
        before, aside = tables[need.table], asides.of(need)
        has_started = looks[need.task_type].start(need)
        if not has_started and tables[need.table] is before:
            kept[need] = aside
        return has_started

    def chosen() -> Iterator[UpkeepNeed]:
        nonlocal tried
        while True:
            choice = choose(left, terms, list(runs_of(tables)), first.clock(), at_once=first.settings.at_once)
            if not tried:
                for kind in kinds:
                    kind.count_wait(tables, choice)
            waiting.clear()
            waiting.update(why.value for _, why in choice.waiting)
            if not choice.start or tried - started > MOST_FAILED_STARTS:
                # Those that are set aside are not tried; they are counted.
                yield from (one for one in left if tables.is_aside(one.table, one.task_type, first.clock()))
                return
            for need in choice.start:
                del left[need]
                tried += 1
                yield need

    for one in each_item(
        chosen(),
        start,
        name="upkeep.starts",
        clock=first.clock,
        shown=lambda need: str(need.table),
        stops=ErrorScope.CATALOG,
        asides=asides,
        first_pause=ASIDE_FOR,
        probe=lambda: first.probe(catalog),
        checkpoint=first.checkpoint,
    ):
        started += one.result is True
        if one.item in kept:
            now = first.clock()
            aside = SetAside.after(kept.pop(one.item), _KEPT, now, ASIDE_FOR, again=True)
            asides.put(one.item, replace(aside, since=now))  # it did not fail, so that no alarm names it
    return started, dict(waiting)


def runs_of(healths: KeptTables | Sequence[TableHealth]) -> Iterator[UpkeepRun]:
    """Yield the last run of every kind: each holds a place while it runs."""
    unsettled = healths.unsettled if isinstance(healths, KeptTables) else ()
    for health in healths:
        name = health.identifier
        for run in health.runs.values():
            if run.ended is not None or name not in unsettled:
                yield UpkeepRun(
                    name, run.task_type, run.policy, run.began, run.reserved, ended=run.ended, used=run.used
                )


def in_turn(items: Sequence[T], most: int, now: datetime, interval: timedelta) -> Sequence[T]:
    """Return the items of this pass, all within a few passes, even if passes are skipped or late. The start moves by
    the golden ratio of the length, so that no rhythm of passes skips items."""
    if len(items) <= most:
        return items
    turn = int(now.timestamp() // interval.total_seconds())
    first = int(turn * _GOLDEN % 1 * len(items))
    return [*items[first : first + most], *items[: max(first + most - len(items), 0)]]


def is_answered(call: Callable[[], object]) -> bool:
    """Return whether a request has an answer; a refusal is one."""
    try:
        call()
    except DelegationError as error:
        return is_answer(error)
    return True


_MOST_NAMED = 20
POLICY_FILE = "the policy file"
"""What the metric of invalid policies names where the file as a whole cannot be read."""


class PolicyPass(Protocol):
    """A pass over a catalog, such as UpkeepPass."""

    def run(self, catalog: str) -> UpkeepCounts:
        """Make one pass. Raises the errors of the stores and the retryable ones of the catalog."""
        ...


class UpkeepPassReport(BaseModel):
    """What one pass did, or why it ended early or could not read all policies; names at most 20 invalid ones."""

    model_config = ConfigDict(frozen=True)

    tables: int | None = None
    ruled: int | None = None
    computed: int | None = None
    started: int | None = None
    waiting: dict[str, int] = {}
    invalid: tuple[str, ...] = ()
    unread: int = 0
    problem: str | None = None


def catalog_upkeep(
    made: Callable[[Run], PolicyPass],
    *,
    every: timedelta,
    counted: Callable[[UpkeepCounts], object] = lambda _counts: None,
) -> Behavior[RecurringCatalog, UpkeepPassReport]:
    """Return the behavior; `made` returns the pass of a run, `counted` is called with its counts."""

    def work(parameters: RecurringCatalog, run: Run) -> UpkeepPassReport:
        try:
            counts = made(run).run(parameters.catalog)
        except DelegationError as error:
            if not error.retryable and not isinstance(error, (PoliciesNotSupported, PolicyFileInvalid)):
                raise
            if isinstance(error, PolicyFileInvalid):
                counted(UpkeepCounts(invalid=frozenset({POLICY_FILE}), why_unread=str(error)))
            # The next run continues; a failure would end the recurrence.
            return UpkeepPassReport(problem=f"{error.code}: {error}")
        counted(counts)
        return UpkeepPassReport(
            tables=counts.tables,
            ruled=counts.ruled,
            computed=counts.computed,
            started=counts.started,
            waiting=dict(counts.waiting),
            invalid=tuple(sorted(counts.invalid)[:_MOST_NAMED]),
            unread=counts.unread,
            problem=counts.why_unread,
        )

    return Behavior(
        CATALOG_UPKEEP,
        RecurringCatalog,
        work,
        result=UpkeepPassReport,
        identify=lambda parameters: parameters.catalog,
        every=every,
    )
