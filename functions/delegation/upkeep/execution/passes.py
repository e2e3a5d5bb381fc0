"""One pass over a catalog, made by the recurring task. The needs of all kinds of upkeep compete for the same places."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from delegation.identifiers import TableIdentifier
from delegation.items import Asides, SetAside, each_item, is_answer
from delegation.polaris.answers import PoliciesNotSupported
from delegation.references import CATALOG_UPKEEP
from delegation.references.recurring import RecurringCatalog
from delegation.tasks.errors import MalformedRecord
from delegation.tasks.work.attempt_context import AttemptContext
from delegation.tasks.work.behaviors import Behavior
from delegation.upkeep.errors import UpkeepError
from delegation.upkeep.execution.kinds import (
    ASIDE_FOR,
    KeptTables,
    KindEvaluation,
    PolicyKind,
    TableAsides,
    UpkeepCounts,
)
from delegation.upkeep.health.model import TableHealth
from delegation.upkeep.policy_file import PolicyFileInvalid
from delegation.upkeep.schedule import UpkeepNeed, UpkeepRun, choose
from polaris_common.errors import DelegationError, ErrorScope

MOST_FAILED_STARTS: Final = 100
"""Runs that fail to start in one pass before the rest is left to the next pass."""
_KEPT: Final = UpkeepError("a caller's task holds the table, or the table no longer exists", code="UPKEEP_RUN_KEPT")


@dataclass(frozen=True, slots=True)
class _NeedAsides(Asides[UpkeepNeed]):
    """Asides of runs that did not start, by the type of their task."""

    tables: KeptTables

    def of(self, item: UpkeepNeed) -> SetAside | None:
        return TableAsides(self.tables, item.task_type).of(item.table)

    def put(self, item: UpkeepNeed, aside: SetAside | None) -> None:
        TableAsides(self.tables, item.task_type).put(item.table, aside)


def run_kinds(kinds: Sequence[PolicyKind], catalog: str) -> UpkeepCounts:
    """Make one pass. Raises the errors of the stores, and the catalog's errors that concern more than one table. A kind
    whose policies cannot be read does not stop the others; its error is raised after them."""
    kinds = [kind for kind in kinds if kind.policy_type in kind.limits.types]
    if not kinds:
        return UpkeepCounts()
    tables = KeptTables(kinds[0].healths, catalog)
    for kind in kinds:
        kind.count_wait(tables)
    _settle(kinds, tables)
    evaluations: dict[str, KindEvaluation[Any]] = {}
    failed: Exception | None = None
    shown = _type_of
    for evaluated in each_item(
        kinds, lambda kind: kind.evaluate(tables), name="upkeep.kinds", clock=kinds[0].clock, shown=shown, in_a_row=None
    ):
        failed = failed or evaluated.error
        if evaluated.result is not None:
            evaluations[evaluated.item.task_type] = evaluated.result
    started, waiting = _started(kinds, evaluations, tables, catalog)
    if failed is not None:
        raise failed
    counts = [evaluation.counts for evaluation in evaluations.values()]
    return UpkeepCounts(
        tables=len(tables),
        ruled=sum(count.ruled for count in counts),
        computed=sum(count.computed for count in counts),
        started=started,
        waiting=waiting,
        invalid=frozenset().union(*(count.invalid for count in counts)),
        unread=sum(count.unread for count in counts),
        why_unread=next((count.why_unread for count in counts if count.why_unread), None),
    )


def _type_of(kind: PolicyKind) -> str:
    return kind.task_type


def _settle(kinds: Sequence[PolicyKind], tables: KeptTables) -> None:
    """Record which runs have ended. A run whose task cannot be read holds no place."""

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
    for settled in each_item(tables.names, settle, name="upkeep.ended", clock=first.clock, checkpoint=first.checkpoint):
        if settled.error is not None and is_answer(settled.error):
            tables.unsettled.add(settled.item)


def _started(
    kinds: Sequence[PolicyKind], evaluations: Mapping[str, KindEvaluation[Any]], tables: KeptTables, catalog: str
) -> tuple[int, dict[str, int]]:
    """Start what may run now. Returns the number of runs, and of waiting needs by reason. A need that does not start
    leaves its place to the next."""
    first = kinds[0]
    left = dict.fromkeys(
        need for evaluation in evaluations.values() for need in evaluation.needs if need.table not in tables.unsettled
    )
    terms = first.settings.terms_of({need.policy for need in left})
    waiting: Counter[str] = Counter()
    asides = _NeedAsides(tables)
    kept: dict[UpkeepNeed, SetAside | None] = {}
    started = tried = 0

    def start(need: UpkeepNeed) -> bool:
        before, aside = tables[need.table], asides.of(need)
        has_started = evaluations[need.task_type].start(need)
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
                # Needs that are set aside are not tried, but counted.
                yield from (need for need in left if tables.is_aside(need.table, need.task_type, first.clock()))
                return
            for need in choice.start:
                del left[need]
                tried += 1
                yield need

    for submission in each_item(
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
        started += submission.result is True
        if submission.item in kept:
            now = first.clock()
            aside = SetAside.after(kept.pop(submission.item), _KEPT, now, ASIDE_FOR, again=True)
            asides.put(submission.item, replace(aside, since=now))  # it did not fail, so no alarm may name it
    return started, dict(waiting)


def runs_of(healths: KeptTables | Sequence[TableHealth]) -> Iterator[UpkeepRun]:
    """Yield the last run of every kind. Each holds a place while it runs."""
    unsettled = healths.unsettled if isinstance(healths, KeptTables) else ()
    for health in healths:
        name = health.identifier
        for run in health.runs.values():
            if run.ended is not None or name not in unsettled:
                yield UpkeepRun(
                    name, run.task_type, run.policy, run.began, run.reserved, ended=run.ended, used=run.used
                )


_MOST_NAMED: Final = 20
POLICY_FILE = "the policy file"
"""The name in the metric of invalid policies if the whole file cannot be read."""


class UpkeepPassReport(BaseModel):
    """What one pass did, or why it ended early or could not read all policies. Names at most 20 invalid policies."""

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
    kinds: Callable[[AttemptContext], Sequence[PolicyKind]],
    *,
    every: timedelta,
    counted: Callable[[UpkeepCounts], object] = lambda _counts: None,
) -> Behavior[RecurringCatalog, UpkeepPassReport]:
    """Return the behavior. `kinds` returns the kinds of a run, `counted` is called with its counts."""

    def work(parameters: RecurringCatalog, run: AttemptContext) -> UpkeepPassReport:
        try:
            counts = run_kinds(kinds(run), parameters.catalog)
        except DelegationError as error:
            if not error.retryable and not isinstance(error, (PoliciesNotSupported, PolicyFileInvalid)):
                raise
            if isinstance(error, PolicyFileInvalid):
                counted(UpkeepCounts(invalid=frozenset({POLICY_FILE}), why_unread=str(error)))
            # The next run continues. A failure would end the recurrence.
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
