"""What would run when, by the same choice as that of the passes."""

from datetime import UTC, datetime, timedelta

from delegation.identifiers import TableIdentifier
from delegation.upkeep.schedule import (
    Amount,
    Budget,
    PolicyTerms,
    Simulation,
    UpkeepNeed,
    UpkeepRun,
    Waits,
    Window,
    simulate,
)

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
ANY_TIME = PolicyTerms()


def need(name: str, score: int = 1, size: int = 10, not_before: datetime | None = None) -> UpkeepNeed:
    return UpkeepNeed(TableIdentifier("lake", ("ns",), name), "K", "keep", score, Amount(bytes=size), NOW, not_before)


def simulated(
    *needs: UpkeepNeed,
    terms: PolicyTerms = ANY_TIME,
    runs: tuple[UpkeepRun, ...] = (),
    days: int = 7,
    at_once: int = 16,
) -> Simulation:
    return simulate(needs, {"keep": terms}, runs, NOW, until=NOW + days * DAY, every=HOUR / 4, at_once=at_once)


def begins(found: Simulation) -> list[tuple[str, datetime]]:
    return [(one.need.table.name, one.begins) for one in found.runs]


def test_without_a_window_all_begins_now_and_most_need_first() -> None:
    assert begins(simulated(need("a"), need("b", 5))) == [("b", NOW), ("a", NOW)]


def test_in_a_window_it_begins_when_that_opens() -> None:
    window = PolicyTerms(Window("0 1 * * *", HOUR, "Europe/Berlin"), zone="Europe/Berlin")
    assert begins(simulated(need("a"), terms=window)) == [("a", datetime(2026, 11, 24, 0, tzinfo=UTC))]


def test_a_budget_spreads_runs_over_days() -> None:
    found = simulated(*(need(f"t{n}", 9 - n) for n in range(4)), terms=PolicyTerms(budget=Budget(bytes=20)))
    assert begins(found) == [("t0", NOW), ("t1", NOW), ("t2", NOW + DAY / 2), ("t3", NOW + DAY / 2)]


def test_places_that_become_free_are_taken_by_the_next_pass() -> None:
    found = simulated(need("a", 3), need("b", 2), need("c", 1), at_once=2)
    assert begins(found) == [("a", NOW), ("b", NOW), ("c", NOW + HOUR / 4)]


def test_what_does_not_run_in_time_waits_with_the_reason() -> None:
    found = simulated(need("large", size=99), terms=PolicyTerms(budget=Budget(bytes=20)))
    assert (found.runs, [why for _, why in found.waiting]) == ((), [Waits.NEVER_FITS])
    late = simulated(need("a"), terms=PolicyTerms(Window("0 1 1 * *", HOUR)))
    assert (late.runs, [why for _, why in late.waiting]) == ((), [Waits.OUTSIDE_WINDOW])


def test_thousands_of_needs_with_a_small_budget_take_few_steps() -> None:
    """A choice for each day, not for each quarter of an hour."""
    found = simulated(*(need(f"t{n}") for n in range(2_000)), terms=PolicyTerms(budget=Budget(bytes=10)), days=60)
    assert len(found.runs) == 60 + 1


def test_after_a_failure_it_begins_when_the_pause_is_over() -> None:
    assert begins(simulated(need("a", not_before=NOW + 3 * HOUR))) == [("a", NOW + 3 * HOUR)]
