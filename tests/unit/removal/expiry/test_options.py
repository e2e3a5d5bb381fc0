"""What a request's properties choose, their bounds, and what the operator keeps of every table."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from delegation.removal.expiry.errors import InvalidRetention
from delegation.removal.expiry.requests import MOST_IDS, OPTIONS, ExpiryChoices, Floor, choices_of
from delegation.removal.expiry.retention import Retention, decide
from delegation.tasks.life.policy import InvalidProperty
from delegation.tasks.options import InvalidOption
from polaris_common.errors import DelegationError
from tests.kit.errors import coded
from tests.unit.removal.expiry.test_retention import DAY, NOW, branch, metadata

ASKED = datetime.fromtimestamp(NOW / 1000, UTC)
PLAN = "0b1c6f2e-3c7f-5d2b-9a50-2f6d3f1f7a11/3/9f86d081884c"


def chosen(**properties: str) -> ExpiryChoices:
    named = {name.replace("_", "-"): value for name, value in properties.items()}
    return choices_of(named, asked_at=ASKED)


def test_a_silent_request_leaves_all_to_the_table() -> None:
    assert chosen() == ExpiryChoices(Retention(least_snapshots=1))
    assert chosen(colour="blue") == chosen()


def test_every_option_is_read() -> None:
    found = chosen(
        older_than="2001-09-08T21:46:39.5-04:00",
        retain_last="3",
        snapshot_ids="7,-8,7",
        max_ref_age_ms="1000",
        clean_expired_metadata="true",
        plan=PLAN,
    )
    assert found == ExpiryChoices(
        Retention(
            older_than_ms=NOW - 500,
            retain_last=3,
            snapshot_ids=(7, -8),
            max_ref_age_ms=1000,
            clean_expired_metadata=True,
            least_snapshots=1,
        ),
        execute_plan=PLAN,
    )
    assert chosen(dry_run="true").dry_run


def test_now_and_ages_are_those_of_the_request() -> None:
    assert chosen(older_than="now").retention.older_than_ms == NOW
    assert chosen(max_snapshot_age_ms="500").retention.older_than_ms == NOW - 500


OUT_OF_BOUNDS = {
    "older-than": [
        "tomorrow", "2001-02-30T00:00:00Z", "2001-02-03T29:00:00Z", "NOW", "", "1969-12-31T23:59:59Z",
        "2001-09-09T01:46:40",  # whose time?
        "2001-09-09T01:46:40.001Z", "2999-01-01T00:00:00Z",  # later than the request
    ],
    "max-snapshot-age-ms": ["0", "-1", "1" * 16, "٣"],
    "retain-last": ["0", "2.0", "1" * 10],
    "max-ref-age-ms": ["0"],
    "snapshot-ids": ["", "1,", "1, 2", str(2**63), ",".join(map(str, range(MOST_IDS + 1)))],
    "clean-expired-metadata": ["yes"],
    "dry-run": ["TRUE"],
    "plan": ["7"],
}  # fmt: skip


@pytest.mark.parametrize(("name", "value"), [(name, one) for name, some in OUT_OF_BOUNDS.items() for one in some])
def test_a_value_out_of_its_bounds_is_named(name: str, value: str) -> None:
    with pytest.raises(InvalidOption, match=rf"properties\.{name}: must be") as refused:
        choices_of({name: value}, asked_at=ASKED)
    assert (refused.value.name, refused.value.code) == (name, "INVALID_REQUEST")


def test_the_most_ids_fit_into_one_property() -> None:
    ids = ",".join(str(2**63 - 1 - one) for one in range(MOST_IDS))
    assert len(ids) <= 1024
    assert len(chosen(snapshot_ids=ids).retention.snapshot_ids) == MOST_IDS


def test_options_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(InvalidOption, match="absent if max-snapshot-age-ms is given"):
        chosen(older_than="now", max_snapshot_age_ms="1")
    with pytest.raises(InvalidOption, match="absent when dry-run is true"):
        chosen(plan=PLAN, dry_run="true")


def test_the_schema_has_every_option_and_its_pattern_holds_for_the_whole_text() -> None:
    schema = OPTIONS.schema()
    assert {*schema} == {
        "older-than", "max-snapshot-age-ms", "retain-last", "max-ref-age-ms", "snapshot-ids", "clean-expired-metadata",
        "dry-run", "plan", "callback",
    }  # fmt: skip
    assert schema["older-than"]["pattern"].startswith("^(now|")
    assert schema["clean-expired-metadata"]["enum"] == ["false", "true"]


FLOOR = Floor(timedelta(days=7), 2)


def under_floor(document: dict[str, Any], **properties: str) -> set[int]:
    named = {name.replace("_", "-"): value for name, value in properties.items()}
    retention = choices_of(named, asked_at=ASKED, floor=FLOOR).retention
    return set(decide(document, retention, now_ms=NOW).expired.snapshot_ids)


def test_what_the_operator_keeps_bounds_requests_properties_and_refs() -> None:
    assert under_floor(metadata(9, 8, 6, 1), older_than="now") == {1, 2}
    assert under_floor(metadata(9, 8, 7), older_than="now", retain_last="1") == {1}
    loose = {"history.expire.max-snapshot-age-ms": "1", "history.expire.min-snapshots-to-keep": "-3"}
    assert under_floor(metadata(30, 20, 6, 1, properties=loose)) == {1, 2}
    assert under_floor(metadata(30, 20, 10, properties=loose)) == {1}
    own = branch(4, **{"max-snapshot-age-ms": 1, "min-snapshots-to-keep": 1})
    assert under_floor(metadata(30, 6, 5, 1, refs={"main": own})) == {1}
    assert under_floor(metadata(30, 6, 5, 1, properties=loose)) == {1}
    staged = metadata(9, 1)
    staged["snapshots"].append({"snapshot-id": 9, "timestamp-ms": NOW - 6 * DAY})
    assert under_floor(staged, older_than="now") == set()


def test_a_named_snapshot_that_is_too_young_is_refused() -> None:
    document = metadata(30, 20, 6, 1)
    assert under_floor(document, snapshot_ids="2", max_snapshot_age_ms=str(99 * DAY)) == {2}
    with pytest.raises(InvalidRetention, match=r"snapshot 3 is younger.*least-snapshot-age"):
        under_floor(document, snapshot_ids="3")


def test_the_floor_is_read_from_the_operators_properties() -> None:
    prefix = "delegation.expiry."
    assert Floor.from_properties({}) == Floor()
    assert Floor.from_properties({prefix + "least-snapshot-age": "0"}) == Floor()
    found = Floor.from_properties({prefix + "least-snapshot-age": "7d", prefix + "least-snapshots": "2", "other": "x"})
    assert found == FLOOR
    for name, value in (("least-snapshot-age", "a week"), ("least-snapshots", "0"), ("colour", "blue")):
        with pytest.raises(InvalidProperty, match=prefix + name):
            Floor.from_properties({prefix + name: value})


@pytest.mark.parametrize(
    ("name", "value", "setting"),
    [
        ("older-than", "now", "least-snapshot-age=7 days"),
        ("max-snapshot-age-ms", str(7 * DAY - 1), "least-snapshot-age=7 days"),
        ("retain-last", "1", "least-snapshots=2"),
    ],
)
def test_a_request_for_less_than_the_operator_keeps_is_refused(name: str, value: str, setting: str) -> None:
    with pytest.raises(DelegationError, check=coded("PROPERTY_NOT_ALLOWED"), match=rf"{name}: .*{setting}"):
        choices_of({name: value}, asked_at=ASKED, floor=FLOOR, refuse_looser=True)


def test_what_the_operator_allows_and_what_is_left_to_the_table_is_accepted() -> None:
    for allowed in ({}, {"max-snapshot-age-ms": str(7 * DAY)}, {"retain-last": "2"}):
        choices_of(allowed, asked_at=ASKED, floor=FLOOR, refuse_looser=True)
