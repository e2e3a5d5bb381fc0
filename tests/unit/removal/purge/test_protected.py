"""A table with the property delegation.protected: no purge deletes a file of it, whatever the settings."""

from typing import Any

import pytest

from delegation.errors import GuardRefused
from delegation.removal.path_guard import protection_of
from delegation.removal.purge.behavior import estimate
from delegation.removal.purge.requests import PurgeOptions
from delegation.removal.purge.run import purge_table
from tests.kit.errors import coded
from tests.kit.lakes.lake import Lake, PurgedTables, busy_table

PROTECTION = {"delegation.protected": "true"}


@pytest.fixture(scope="module")
def world() -> Lake:
    lake = Lake()
    busy_table(lake, "t")
    return lake


@pytest.fixture
def bench(world: Lake) -> PurgedTables:
    return PurgedTables.of(world)


@pytest.mark.parametrize("gc_disabled", ["refuse", "ignore"])
def test_no_setting_purges_a_protected_table(bench: PurgedTables, gc_disabled: Any) -> None:
    bench.lake.rewrite_metadata("t", {"properties": PROTECTION})
    before = set(bench.lake.uris())
    options = PurgeOptions(gc_disabled=gc_disabled, outside="delete", uncovered="keep")
    with pytest.raises(
        GuardRefused,
        check=coded("TABLE_PROTECTED"),
        match=r"delegation\.protected",
    ) as refused:
        purge_table(bench.context("t", options=options))
    assert refused.value.code == "TABLE_PROTECTED"
    assert set(bench.lake.uris()) == before


def test_a_table_protected_after_planning_keeps_every_file(bench: PurgedTables) -> None:
    with pytest.raises(GuardRefused, check=coded("CREDENTIALS_CANNOT_DELETE")):
        purge_table(bench.context("t", denied=["s3://lake/"]))
    assert bench.head.read()
    bench.lake.table("t").transaction().set_properties(**PROTECTION).commit_transaction()
    before = set(bench.lake.uris())
    with pytest.raises(GuardRefused, check=coded("TABLE_PROTECTED")):
        purge_table(bench.context("t"))
    assert set(bench.lake.uris()) == before


def test_a_table_whose_protection_ended_is_purged(bench: PurgedTables) -> None:
    bench.lake.rewrite_metadata("t", {"properties": {"delegation.protected": "False"}})
    assert purge_table(bench.context("t")).status == "PURGED"
    assert bench.lake.below("s3://lake/wh/t/") == set()


def test_the_dry_run_and_the_estimate_of_a_protected_table_say_so(bench: PurgedTables) -> None:
    bench.lake.rewrite_metadata("t", {"properties": PROTECTION})
    with pytest.raises(GuardRefused, check=coded("TABLE_PROTECTED")):
        purge_table(bench.context("t", options=PurgeOptions(dry_run=True)))
    with pytest.raises(GuardRefused, check=coded("TABLE_PROTECTED")):
        estimate(bench.context("t"))


@pytest.mark.parametrize(
    ("value", "protected"),
    [
        ("true", True), ("TRUE", True), ("yes", True), ("1", True), ("", True), (" false", True), ("fаlse", True),
        ("false", False), ("FALSE", False), (None, False),
    ],
)  # fmt: skip
def test_every_value_but_false_protects(value: str | None, *, protected: bool) -> None:
    properties = {} if value is None else {"delegation.protected": value}
    assert (protection_of(properties) is not None) is protected
