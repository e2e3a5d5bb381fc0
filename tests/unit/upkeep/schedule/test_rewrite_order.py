"""What runs next of compactions: the most gain for its cost, after what is overdue and what is short."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from delegation.identifiers import TableIdentifier
from delegation.upkeep.schedule import Amount, Budget, PolicyTerms, UpkeepNeed, choose

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
TASK = "TABLE_COMPACTION"


def test_a_large_run_that_is_worth_more_than_what_precedes_it_is_first_unless_others_are_overdue() -> None:
    needs = [
        UpkeepNeed(
            TableIdentifier("lake", ("ns",), name), TASK, "p", score, Amount(micros=cost), NOW, per_cost=score // cost
        )
        for name, score, cost in (("large", 900, 100), ("small", 100, 10), ("tiny", 20, 2))
    ]
    terms = {"p": PolicyTerms(budget=Budget(micros=102))}
    assert [need.table.name for need in choose(needs, terms, [], NOW).start] == ["large", "tiny"]
    waiting = [replace(need, since=NOW - timedelta(days=9)) if need.table.name == "small" else need for need in needs]
    assert [need.table.name for need in choose(waiting, terms, [], NOW).start] == ["small", "tiny"]
    by_cost = choose(needs, {"p": PolicyTerms()}, [], NOW).start
    assert [need.table.name for need in by_cost] == ["small", "tiny", "large"]


def test_short_runs_precede_rewrites_whatever_these_gain() -> None:
    rewrite, short = (TableIdentifier("lake", ("ns",), name) for name in ("rewrite", "short"))
    needs = [
        UpkeepNeed(rewrite, TASK, "p", 900, Amount(micros=1), NOW, per_cost=10**9),
        UpkeepNeed(short, "TABLE_EXPIRE_SNAPSHOTS", "p", 1, Amount(), NOW),
    ]
    assert choose(needs, {"p": PolicyTerms()}, [], NOW, at_once=1).start == (needs[1],)
