"""The options that a request's properties choose, and the errors for wrong ones."""

from dataclasses import replace
from typing import Any

import pytest

from delegation.removal.purge.behavior import estimate
from delegation.removal.purge.requests import Limits, PurgeOptions, PurgeSettings, options_of
from delegation.tasks.life.policy import InvalidProperty
from delegation.tasks.options import InvalidOption
from delegation.wiring.types import policies_of
from polaris_common.errors import DelegationError
from tests.kit.errors import coded
from tests.kit.lakes.lake import FAST, PurgedTables

PLAN = "0b1c6f2e-3c7f-5d2b-9a50-2f6d3f1f7a11/3/9f86d081884c"


SILENT = PurgeOptions(outside="refuse")
"""What holds for a request without properties."""
STRICT = {"outside": "refuse", "uncovered": "refuse", "shared": "refuse", "overlap-scan": "catalog"}
STRICT |= {"versioned": "refuse"}
LOOSE = {"outside": "delete", "uncovered": "keep", "shared": "subtract", "overlap-scan": "namespace"}
LOOSE |= {"versioned": "report", "deleteMarkerFiles": "true"}


def limits_of(**settings: str) -> Limits:
    """Return the limits of an operator's settings, such as `outside_loosest`."""
    return Limits.from_properties(
        {f"delegation.purge.{name.replace('_', '-')}": value for name, value in settings.items()}
    )


LOOSE_LIMITS = limits_of(outside="delete", outside_loosest="delete", uncovered="keep")


def test_the_defaults_apply_without_properties_and_unknown_names_have_no_effect() -> None:
    assert options_of({}) == SILENT
    assert options_of({"deleteMarkerFiles": "false", "skipTrash": "true", "colour": "blue"}) == SILENT


def test_every_known_property_is_read() -> None:
    chosen = options_of({**STRICT, "deleteMarkerFiles": "true", "engine": "spark", "plan": PLAN})
    assert chosen == PurgeOptions(
        outside="refuse",
        uncovered="refuse",
        shared="refuse",
        overlap_scan="catalog",
        versioned="refuse",
        remove_directory_markers=True,
        engine="spark",
        execute_plan=PLAN,
    )
    assert options_of(LOOSE, LOOSE_LIMITS) == PurgeOptions(
        outside="delete", uncovered="keep", remove_directory_markers=True
    )
    assert options_of({"dry-run": "true", "engine": "inline"}) == replace(SILENT, dry_run=True, engine="inline")


@pytest.mark.parametrize(("name", "loose"), LOOSE.items())
def test_an_operators_setting_is_the_default_and_the_limit(name: str, loose: str) -> None:
    names = {"deleteMarkerFiles": "delete-marker-files", "outside": "outside-loosest"}
    strict = STRICT.get(name, "false")
    limits = limits_of(**{names.get(name, name): strict})
    assert options_of({}, limits) == options_of({name: strict}, limits)
    with pytest.raises(DelegationError, check=coded("PROPERTY_NOT_ALLOWED"), match=f"{name}: {loose} .* {strict}"):
        options_of({name: loose}, limits)
    assert options_of({name: loose}, limits, accepted=True) == options_of({name: strict}, limits)
    if name in ("outside", "uncovered"):
        with pytest.raises(DelegationError, check=coded("PROPERTY_NOT_ALLOWED")):
            options_of({name: loose})


def test_a_loose_setting_is_the_default_and_a_request_can_be_stricter() -> None:
    assert options_of({}, LOOSE_LIMITS) == PurgeOptions(outside="delete", uncovered="keep")
    assert options_of({"outside": "keep", "uncovered": "refuse"}, LOOSE_LIMITS) == PurgeOptions()


def test_some_guards_can_only_be_set_by_the_operator() -> None:
    limits = limits_of(gc_disabled="ignore", delete_probe="false", experimental_format="true")
    requested = {"gc-disabled": "ignore", "delete-probe": "false", "experimental-format": "true", "damaged": "keep"}
    assert options_of(requested) == SILENT
    assert options_of({}, limits) == replace(SILENT, gc_disabled="ignore", probe=False, experimental_format=True)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("delegation.purge.outside", "sweep"),
        ("delegation.purge.outside", ""),
        ("delegation.purge.gc-disabled", "true"),
        ("delegation.purge.deleteMarkerFiles", "true"),
        ("delegation.purge.inline", "spark"),
    ],
)
def test_a_wrong_setting_is_named_in_the_error(name: str, value: str) -> None:
    with pytest.raises(InvalidProperty, match=name):
        policies_of({name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("deleteMarkerFiles", "yes"),
        ("versioned", "free"),
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
def test_a_property_with_a_wrong_value_is_named_in_the_error(name: str, value: str) -> None:
    with pytest.raises(InvalidOption, match=rf"operation_parameters\.properties\.{name}: must be") as refused:
        options_of({name: value})
    assert refused.value.name == name


def test_a_dry_run_of_an_existing_plan_is_refused() -> None:
    with pytest.raises(InvalidOption, match=r"properties\.plan"):
        options_of({"dry-run": "true", "plan": PLAN})


@pytest.mark.parametrize(
    ("most", "requested", "chosen"),
    [(1_000, None, "inline"), (1_000, "spark", "spark"), (1_000, "inline", "inline"), (1, None, "spark")],
)
def test_the_requested_engine_is_used_unless_the_table_is_too_large_for_it(
    bench: PurgedTables, most: int, requested: Any, chosen: str
) -> None:
    settings = PurgeSettings(inline_max_files=most, read_threads=1, delete=FAST)
    assert estimate(bench.context("t", settings=settings, options=PurgeOptions(engine=requested))).engine == chosen
    if most == 1:
        refused = bench.refused(bench.context("t", settings=settings, options=PurgeOptions(engine="inline")), estimate)
        assert refused.code == "TOO_LARGE_FOR_INLINE"
