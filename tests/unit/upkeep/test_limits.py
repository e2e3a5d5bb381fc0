"""The operator's limits `delegation.upkeep.*`."""

import pytest

from delegation.identifiers import TableIdentifier
from delegation.tasks.life.policy import InvalidProperty
from delegation.upkeep.rules.limits import DAY_MS, UpkeepLimits
from delegation.upkeep.rules.model import PolicyType

EXPIRY = PolicyType.SNAPSHOT_EXPIRY
TABLE = TableIdentifier("lake", ("sales", "eu"), "orders")


def test_by_default_nothing_is_executed_and_a_day_is_kept() -> None:
    limits = UpkeepLimits.from_properties({"delegation.drop.mode": "wait"})
    assert limits == UpkeepLimits()
    assert (limits.types, limits.least_age_ms, limits.least_snapshots) == (frozenset(), DAY_MS, 1)
    assert limits.prevented(EXPIRY, TABLE) == "delegation.upkeep.types"


def test_each_property_is_read() -> None:
    limits = UpkeepLimits.from_properties({
        "delegation.upkeep.types": "snapshot-expiry, system.orphan-file-removal",
        "delegation.upkeep.least-age": "36h",
        "delegation.upkeep.least-snapshots": "5",
        "delegation.upkeep.least-orphan-age": "0",
        "delegation.upkeep.include": "lake, other.`a.b`.c",
        "delegation.upkeep.exclude": "lake.sales.us",
        "delegation.upkeep.dry-run-only": "true",
    })  # fmt: skip
    assert limits == UpkeepLimits(
        types=frozenset({EXPIRY, PolicyType.ORPHAN_FILE_REMOVAL}),
        least_age_ms=36 * 3_600_000,
        least_snapshots=5,
        least_orphan_age_ms=0,
        include=(("lake",), ("other", "a.b", "c")),
        exclude=(("lake", "sales", "us"),),
        dry_run_only=True,
    )


def test_what_bounds_every_expiry_bounds_those_of_policies_where_it_keeps_more() -> None:
    expiry = "delegation.expiry.least-snapshot"
    more = UpkeepLimits.from_properties({f"{expiry}-age": "7d", f"{expiry}s": "9"})
    assert (more.least_age_ms, more.least_age_by) == (7 * DAY_MS, f"{expiry}-age")
    assert (more.least_snapshots, more.least_snapshots_by) == (9, f"{expiry}s")
    own = {"delegation.upkeep.least-age": "8d", "delegation.upkeep.least-snapshots": "10"}
    less = UpkeepLimits.from_properties({f"{expiry}-age": "7d", f"{expiry}s": "9", **own})
    assert (less.least_age_ms, less.least_age_by) == (8 * DAY_MS, "delegation.upkeep.least-age")
    assert (less.least_snapshots, less.least_snapshots_by) == (10, "delegation.upkeep.least-snapshots")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("types", "snapshot-expiry,expiry"), ("types", "none,snapshot-expiry"), ("least-age", "soon")),
        *(("least-age", "-1d"), ("least-snapshots", "0"), ("least-snapshots", "9" * 400), ("least-snapshots", "1.5")),
        *(("least-orphan-age", "3 days"), ("include", "lake..sales"), ("exclude", "lake.`sales"), ("exclude", "`lake")),
        *(("dry-run-only", "yes"), ("dry-run", "true")),
    ],
)
def test_a_bad_value_and_an_unknown_name_are_refused(name: str, value: str) -> None:
    with pytest.raises(InvalidProperty, match=f"delegation.upkeep.{name}"):
        UpkeepLimits.from_properties({f"delegation.upkeep.{name}": value})


@pytest.mark.parametrize(
    ("include", "exclude", "prevented"),
    [
        ("", "", None),
        ("lake", "", None),
        ("lake.sales", "", None),
        ("lake.sales.eu", "", None),
        ("lake.sales.e", "", "include"),
        ("lak", "", "include"),
        ("other, lake.sales", "", None),
        ("", "lake", "exclude"),
        ("", "lake.sales.us", None),
        ("lake", "lake.sales", "exclude"),
        ("lake.sales.eu", "lake.sales", "exclude"),
    ],
)
def test_catalogs_and_namespaces_are_in_or_out(include: str, exclude: str, prevented: str | None) -> None:
    properties = {"delegation.upkeep.types": "snapshot-expiry"}
    properties |= {"delegation.upkeep.include": include, "delegation.upkeep.exclude": exclude}
    found = UpkeepLimits.from_properties(properties).prevented(EXPIRY, TABLE)
    assert found == (None if prevented is None else f"delegation.upkeep.{prevented}")
