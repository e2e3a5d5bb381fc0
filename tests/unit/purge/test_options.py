"""What a request's properties choose, and how a wrong one is told."""

import dataclasses

import pytest

from delegation.purge.behavior import InvalidPurgeProperty, options_of
from delegation.purge.context import PurgeOptions, PurgeSettings
from delegation.purge.errors import TooLargeForInline
from delegation.purge.estimate import estimate
from tests.unit.purge.lake import FAST, Bench, busy_table

PLAN = "0b1c6f2e-3c7f-5d2b-9a50-2f6d3f1f7a11/3/9f86d081884c"


def test_without_properties_the_defaults_hold_and_unknown_names_have_no_effect() -> None:
    assert options_of({}) == PurgeOptions()
    assert options_of({"deleteMarkerFiles": "false", "skipTrash": "true", "colour": "blue"}) == PurgeOptions()


def test_every_known_property_is_read() -> None:
    chosen = options_of(
        {
            "outside": "refuse",
            "uncovered": "keep",
            "shared": "refuse",
            "overlap-scan": "catalog",
            "engine": "spark",
            "plan": PLAN,
        }
    )
    assert chosen == PurgeOptions(
        outside="refuse",
        uncovered="keep",
        shared="refuse",
        overlap_scan="catalog",
        engine="spark",
        execute_plan=PLAN,
    )
    assert options_of({"dry-run": "true", "engine": "inline"}) == PurgeOptions(dry_run=True, engine="inline")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("outside", "sweep"),
        ("outside", ""),
        ("uncovered", "delete"),
        ("shared", "delete"),
        ("overlap-scan", "none"),
        ("engine", "flink"),
        ("engine", ""),
        ("dry-run", "True"),
        ("skipTrash", "false"),
        ("plan", ""),
        ("plan", "../other-task/1/ab"),
        ("plan", PLAN + "/../../x"),
        ("plan", PLAN.upper()),
        ("plan", PLAN + "\n"),
    ],
)
def test_a_wrong_value_is_told_by_its_name(name: str, value: str) -> None:
    with pytest.raises(InvalidPurgeProperty, match=rf"operation_parameters\.properties\.{name}: must be") as refused:
        options_of({name: value})
    assert refused.value.name == name


def test_a_dry_run_of_a_plan_makes_no_sense() -> None:
    with pytest.raises(InvalidPurgeProperty, match=r"properties\.plan"):
        options_of({"dry-run": "true", "plan": PLAN})


@pytest.mark.parametrize(("most", "chosen"), [(1_000, "inline"), (1, "spark")])
def test_the_engine_asked_for_goes_before_the_estimate_but_not_beyond_its_limit(most: int, chosen: str) -> None:
    bench = Bench()
    busy_table(bench.lake, "t")
    settings = PurgeSettings(inline_max_files=most, read_threads=1, delete=FAST)

    def engine(asked: str | None) -> str:
        ctx = bench.context("t", settings=settings)
        return estimate(dataclasses.replace(ctx, options=PurgeOptions(engine=asked))).engine

    assert engine(None) == chosen
    assert engine("spark") == "spark"
    if chosen == "inline":
        assert engine("inline") == "inline"
    else:
        with pytest.raises(TooLargeForInline):
            engine("inline")
