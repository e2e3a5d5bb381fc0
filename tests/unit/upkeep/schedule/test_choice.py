"""What runs next: budgets hold, the most needed comes first, none waits for ever, none begins outside its window."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delegation.identifiers import TableIdentifier
from delegation.upkeep.errors import ScheduleInvalid
from delegation.upkeep.schedule import (
    NOTHING,
    OVERDUE,
    Amount,
    Budget,
    PolicyTerms,
    UpkeepNeed,
    UpkeepRun,
    Waits,
    Window,
    choose,
    day_of,
)
from tests.effort import examples

NOON = datetime(2026, 1, 10, 12, tzinfo=UTC)
DAY = timedelta(days=1)
HOUR = timedelta(hours=1)


def table(name: object) -> TableIdentifier:
    return TableIdentifier("lake", ("sales",), f"t{name}")


def need(name: object, score: int = 1, files: int = 1, *, policy: str = "p", since: datetime = NOON) -> UpkeepNeed:
    return UpkeepNeed(table(name), "EXPIRY", policy, score, Amount(files=files), since)


def run_of(one: UpkeepNeed, began: datetime = NOON, *, ended: datetime | None = None) -> UpkeepRun:
    return UpkeepRun(one.table, one.task_type, one.policy, began, one.cost, ended)


def reasons(needs: Sequence[UpkeepNeed], **arguments: object) -> dict[str, Waits]:
    given = {"terms": {"p": PolicyTerms()}, "runs": (), "now": NOON, **arguments}
    return {one.table.name: why for one, why in choose(needs, **given).waiting}  # type: ignore[arg-type]


def test_the_most_needed_comes_first_and_nothing_to_do_starts_nothing() -> None:
    needs = [need("a", 5), need("b", 9), need("c", 0)]
    choice = choose(needs, {"p": PolicyTerms()}, (), NOON)
    assert [one.table.name for one in choice.start] == ["tb", "ta"]
    assert [(one.table.name, why) for one, why in choice.waiting] == [("tc", Waits.NO_NEED)]


def test_each_reason_to_wait() -> None:
    assert reasons([need("a")], terms={}) == {"ta": Waits.NO_TERMS}
    assert reasons([need("a")], runs=[run_of(replace(need("a"), task_type="OTHER"))]) == {"ta": Waits.RUNS}
    assert reasons([need("a")], runs=[run_of(need("a"), ended=NOON)]) == {"ta": Waits.RAN_TODAY}
    assert reasons([need("a")], runs=[run_of(need("a"), NOON - DAY, ended=NOON)]) == {}
    assert reasons([replace(need("a"), not_before=NOON + HOUR)]) == {"ta": Waits.AFTER_FAILURE}
    small = {"p": PolicyTerms(budget=Budget(files=5))}
    assert reasons([need("a", files=6)], terms=small) == {"ta": Waits.NEVER_FITS}
    assert reasons([need("a", 2, 3), need("b", 1, 3)], terms=small) == {"tb": Waits.BUDGET_USED}
    assert reasons([need("a", 2), need("b", 1)], at_once=1) == {"tb": Waits.NO_PLACE}
    closed = {"p": PolicyTerms(Window("0 1 * * *", HOUR))}
    assert reasons([need("a")], terms=closed) == {"ta": Waits.OUTSIDE_WINDOW}


def test_the_rest_of_a_budget_goes_to_smaller_runs_behind_one_that_does_not_fit() -> None:
    terms = {"p": PolicyTerms(budget=Budget(files=10))}
    choice = choose([need("a", 9, 6), need("b", 8, 6), need("c", 7, 4)], terms, (), NOON)
    assert [one.table.name for one in choice.start] == ["ta", "tc"]


def test_a_run_that_used_more_than_was_set_aside_is_charged_with_that() -> None:
    over = replace(run_of(need("a", files=2), ended=NOON), used=Amount(files=7))
    terms = {"p": PolicyTerms(budget=Budget(files=8))}
    assert reasons([need("b", files=2)], terms=terms, runs=[over]) == {"tb": Waits.BUDGET_USED}
    less = replace(over, used=Amount(files=1))
    assert reasons([need("b", files=6)], terms=terms, runs=[less]) == {}


def test_one_table_has_one_run_at_a_time_whatever_kinds_it_needs() -> None:
    needs = [need("a", 2), replace(need("a", 1), task_type="OTHER")]
    choice = choose(needs, {"p": PolicyTerms()}, (), NOON)
    assert [one.task_type for one in choice.start] == ["EXPIRY"]
    assert [why for _, why in choice.waiting] == [Waits.RUNS]


@pytest.mark.parametrize("budget", [{"files": 0}, {"bytes": -1}, {"micros": 0}])
def test_a_budget_of_nothing_is_refused(budget: dict[str, int]) -> None:
    with pytest.raises(ScheduleInvalid, match="at least 1"):
        Budget(**budget)


def test_an_amount_is_never_negative() -> None:
    with pytest.raises(ValueError, match="negative"):
        Amount(files=-1)


AMOUNTS = st.builds(Amount, st.integers(0, 12), st.integers(0, 12), st.integers(0, 12))
LIMIT = st.none() | st.integers(1, 20)
TERMS = st.fixed_dictionaries(
    {
        name: st.builds(
            PolicyTerms,
            st.sampled_from([None, Window("0 1 * * *", 6 * HOUR, "Europe/Berlin"), Window("*/30 * * * *", HOUR)]),
            st.builds(Budget, LIMIT, LIMIT, LIMIT),
            st.sampled_from(["UTC", "Europe/Berlin", "America/New_York"]),
        )
        for name in "pq"
    }
)
# Over a change of clocks in Berlin and, a week later, in New York.
MOMENTS = st.integers(0, 10 * 24 * 4).map(lambda n: datetime(2026, 10, 23, tzinfo=UTC) + n * HOUR / 4)
NEEDS = st.lists(
    st.builds(
        UpkeepNeed,
        st.integers(0, 9).map(table),
        st.sampled_from(["EXPIRY", "ORPHANS"]),
        st.sampled_from("pqr"),
        st.integers(0, 5),
        AMOUNTS,
        MOMENTS,
    ),
    max_size=12,
    unique_by=lambda one: (one.table, one.task_type),
)
RUNS = st.lists(
    st.builds(
        UpkeepRun,
        st.integers(0, 9).map(table),
        st.sampled_from(["EXPIRY", "ORPHANS"]),
        st.sampled_from("pq"),
        MOMENTS,
        AMOUNTS,
        st.none() | MOMENTS,
        AMOUNTS,
    ),
    max_size=6,
)


@settings(max_examples=examples(100), deadline=None)
@given(NEEDS, TERMS, RUNS, MOMENTS, st.integers(0, 6))
def test_whatever_is_needed_a_choice_keeps_every_promise(
    needs: list[UpkeepNeed], terms: dict[str, PolicyTerms], runs: list[UpkeepRun], now: datetime, at_once: int
) -> None:
    choice = choose(needs, terms, runs, now, at_once=at_once)
    waiting = [one for one, _ in choice.waiting]
    assert sorted(map(str, (*choice.start, *waiting))) == sorted(map(str, needs))
    for name, policy in terms.items():
        began = [
            run for run in runs if run.policy == name and day_of(run.began, policy.zone) == day_of(now, policy.zone)
        ]
        before = sum((run.charged for run in began), NOTHING)
        started = [one for one in choice.start if one.policy == name]
        after = sum((one.cost for one in started), before)
        assert not started or policy.budget.allows(after)
        assert not started or policy.window is None or policy.window.is_open(now)
    assert len(choice.start) <= max(at_once - sum(run.ended is None for run in runs), 0)
    busy = [one.table for one in choice.start] + [run.table for run in runs if run.ended is None]
    assert len({one.table for one in choice.start}) == len(choice.start)
    assert all(busy.count(one.table) == 1 for one in choice.start)
    # Whatever waits, although it could have run, waits only behind what is overdue longer, or needs more.
    for one, why in choice.waiting:
        if why in {Waits.BUDGET_USED, Waits.NO_PLACE}:
            for other in choice.start:
                if why is Waits.NO_PLACE and now - one.since < OVERDUE and now - other.since < OVERDUE:
                    assert other.score >= one.score
    # The same values give the same choice, in whatever order they come.
    assert choose(list(reversed(needs)), terms, list(reversed(runs)), now, at_once=at_once) == choice


@settings(max_examples=10, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 10)), min_size=2, max_size=7),
    st.integers(1, 3),
    st.sampled_from([None, Window("0 1 * * *", 2 * HOUR, "Europe/Berlin")]),
)
def test_no_need_waits_forever_beside_others_that_recur_each_day(
    tables: list[tuple[int, int]], at_once: int, window: Window | None
) -> None:
    """Simulates three weeks over a change of clocks, hour by hour, with a budget that each run alone fits into."""
    terms = {"p": PolicyTerms(window, Budget(files=10), "Europe/Berlin")}
    begin = datetime(2026, 10, 10, tzinfo=UTC)
    since = dict.fromkeys(range(len(tables)), begin)
    runs: list[UpkeepRun] = []
    bound = OVERDUE + (len(tables) + 1) * DAY
    for hours in range((21 + len(tables)) * 24):
        now = begin + hours * HOUR
        runs = [replace(run, ended=run.ended or now) for run in runs if now - run.began < 2 * DAY]
        needs = [need(n, score, files, since=since[n]) for n, (score, files) in enumerate(tables)]
        for one in choose(needs, terms, runs, now, at_once=at_once).start:
            runs.append(run_of(one, now))
            since[int(one.table.name[1:])] = now + HOUR
        assert max(now - one for one in since.values()) <= bound
        used = sum(
            (run.charged for run in runs if day_of(run.began, "Europe/Berlin") == day_of(now, "Europe/Berlin")), NOTHING
        )
        assert used.files <= 10
