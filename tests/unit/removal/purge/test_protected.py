"""A table with the property delegation.protected: no purge deletes a file of it, whatever the settings."""

from typing import Any

import pytest

from delegation.removal.path_guard import protection_of
from delegation.removal.purge.behavior import estimate
from delegation.removal.purge.requests import PurgeOptions
from delegation.removal.purge.run import purge_table
from tests.kit.lakes.lake import PurgedTables

PROTECTION = {"delegation.protected": "true"}


@pytest.mark.parametrize("gc_disabled", ["refuse", "ignore"])
def test_no_setting_purges_a_protected_table(bench: PurgedTables, gc_disabled: Any) -> None:
    bench.lake.rewrite_metadata("t", {"properties": PROTECTION})
    options = PurgeOptions(gc_disabled=gc_disabled, outside="delete", uncovered="keep")
    refused = bench.refused(bench.context("t", options=options))
    assert refused.code == "TABLE_PROTECTED"
    assert "delegation.protected" in str(refused)


def test_a_table_whose_protection_ended_is_purged(bench: PurgedTables) -> None:
    bench.lake.rewrite_metadata("t", {"properties": {"delegation.protected": "False"}})
    assert purge_table(bench.context("t")).status == "PURGED"
    assert bench.left() == set()


def test_the_dry_run_and_the_estimate_of_a_protected_table_say_so(bench: PurgedTables) -> None:
    bench.lake.rewrite_metadata("t", {"properties": PROTECTION})
    assert bench.refused(bench.context("t", options=PurgeOptions(dry_run=True))).code == "TABLE_PROTECTED"
    assert bench.refused(bench.context("t"), estimate).code == "TABLE_PROTECTED"


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
