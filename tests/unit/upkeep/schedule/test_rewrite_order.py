"""What runs next of a fleet's compactions: the most gain for its cost, beside other orders and the optimum."""

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from delegation.identifiers import TableIdentifier
from delegation.upkeep.execution.rewrites import RewriteNeed, compaction_need
from delegation.upkeep.health.model import TableHealth
from delegation.upkeep.schedule import Amount, Budget, PolicyTerms, UpkeepNeed, choose

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
TABLES = 500
SHARE = 0.2
UNITS = 2_000
TASK = "TABLE_COMPACTION"


def fleet(seed: int) -> list[tuple[UpkeepNeed, RewriteNeed]]:
    """Return the needs of tables whose sizes and numbers of files are as skewed as a lake's: few have most of them."""
    draw = random.Random(seed)
    needs = []
    for number in range(TABLES):
        files = int(min(5 * draw.paretovariate(0.8), 200_000))
        size = int(files * min(1_000 * draw.paretovariate(0.6), 300_000_000))
        deletes = int(min(draw.paretovariate(0.7), files)) if draw.random() < 0.3 else 0
        name = TableIdentifier("lake", ("ns",), f"t{number}")
        health = TableHealth(
            name,
            "u",
            "m",
            NOW,
            files=files + deletes,
            bytes=size,
            small_files=files,
            small_bytes=size,
            delete_files=deletes,
        )
        need = compaction_need(health)
        if need is not None:
            since = NOW - timedelta(minutes=draw.randrange(9_000))
            score = round(need.gain * 400)
            per_cost = round(need.per_cost * 400)
            needs.append((UpkeepNeed(name, TASK, "p", score, need.amount, since, per_cost=per_cost), need))
    return needs


def gained(order: Sequence[tuple[UpkeepNeed, RewriteNeed]], budget: int) -> float:
    """Return what is gained if the runs are made in an order, each that still fits."""
    total, used = 0.0, 0
    for need, worth in order:
        if used + need.cost.micros <= budget:
            total, used = total + worth.gain, used + need.cost.micros
    return total


def optimum(needs: Sequence[tuple[UpkeepNeed, RewriteNeed]], budget: int) -> float:
    """Return an upper bound of what any set of runs within the budget gains: the knapsack with costs rounded down."""
    best = [0.0] * (UNITS + 1)
    for need, worth in needs:
        if need.cost.micros > budget:
            continue
        cost = need.cost.micros * UNITS // budget
        best[cost:] = [max(kept, taken + worth.gain) for kept, taken in zip(best[cost:], best, strict=False)]
    return best[UNITS]


@pytest.mark.parametrize("seed", range(20))
def test_a_fifth_of_the_money_gains_nine_tenths_of_the_best_and_more_than_other_orders(seed: int) -> None:
    needs = fleet(seed)
    budget = round(SHARE * sum(need.cost.micros for need, _ in needs))
    terms = {"p": PolicyTerms(budget=Budget(micros=budget))}
    choice = choose([need for need, _ in needs], terms, [], NOW, at_once=10_000)
    gains = {need.table: worth.gain for need, worth in needs}
    chosen = sum(gains[need.table] for need in choice.start)
    best = optimum(needs, budget)
    shuffled = list(needs)
    random.Random(seed).shuffle(shuffled)
    others = {
        "random": gained(shuffled, budget),
        "oldest first": gained(sorted(needs, key=lambda one: one[0].since), budget),
    }
    shares = {name: gain / best for name, gain in {"gain over cost": chosen, **others}.items()}
    assert sum(need.cost.micros for need in choice.start) <= budget
    assert 0.9 <= shares["gain over cost"] <= 1.0, shares
    assert shares["gain over cost"] >= max(shares["random"], shares["oldest first"])


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
    assert [need.table.name for need in choose(needs, {"p": PolicyTerms()}, [], NOW).start] == [
        "small",
        "tiny",
        "large",
    ]


def test_short_runs_precede_rewrites_whatever_these_gain() -> None:
    (rewrite, _), *_ = fleet(1)
    name = TableIdentifier("lake", ("ns",), "s")
    short = UpkeepNeed(name, "TABLE_EXPIRE_SNAPSHOTS", "p", 1, Amount(), NOW)
    choice = choose([replace(rewrite, per_cost=10**9), short], {"p": PolicyTerms()}, [], NOW, at_once=1)
    assert choice.start == (short,)
