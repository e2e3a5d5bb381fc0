"""A tombstone's states, its ids, and the settings of drops; pure."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegation.gateway.drop import tombstones as records
from delegation.gateway.drop.errors import DropError
from delegation.gateway.drop.purge_tasks import payload_of
from delegation.gateway.drop.settings import DropSettings
from delegation.gateway.drop.tombstones import ARROWS, ENDED, MovedTable, Tombstone, TombstoneState, caller_key
from delegation.identifiers import TableIdentifier
from delegation.removal.details import table_labels
from delegation.tasks.life.policy import InvalidProperty
from delegation.timestamps import isoformat
from tests.kit.errors import coded

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
TABLE = TableIdentifier("lake", ("sales", "eu"), "orders")
MOVED = MovedTable(table_uuid="u", metadata_location="s3://b/m", location="s3://b", format_version=2)
CHANGES = {
    TombstoneState.RENAMED: lambda one, now: records.renamed(one, MOVED, now, task_id="t", grace=timedelta(0)),
    TombstoneState.PURGING: records.purging,
    TombstoneState.PURGED: records.purged,
    TombstoneState.DROPPED: records.dropped,
    TombstoneState.RESTORING: lambda one, now: records.restoring(one, TABLE, now),
    TombstoneState.RESTORED: records.restored,
    TombstoneState.FAILED: lambda one, now: records.failed(one, now, "why"),
    TombstoneState.CLEARED: lambda one, now: records.cleared(one, now, "why"),
}


def pending(**fields: object) -> Tombstone:
    given_fields = {"expected_uuid": "U", "caller": "principal:ann", "waits": False, **fields}
    return records.pending("POLARIS", TABLE, ("hidden",), NOW, **given_fields)


@given(st.lists(st.sampled_from(sorted(CHANGES)), max_size=12))
def test_a_record_changes_along_its_arrows_alone(wanted):
    record = pending()
    for number, state in enumerate(wanted):
        now = NOW + timedelta(minutes=number)
        if state in ARROWS[record.state]:
            after = CHANGES[state](record, now)
            is_repeat = state is record.state is TombstoneState.PURGING
            assert (after.state, after.version) == (state, record.version + (0 if is_repeat else 1))
            assert (after.expires_at is None) == (state not in ENDED)
            assert after.is_ended == (state in ENDED)
            record = after
        elif not (state is record.state is TombstoneState.PURGING):
            with pytest.raises(DropError, check=coded("ILLEGAL_TOMBSTONE_CHANGE")):
                CHANGES[state](record, now)
    assert record.identifier == TABLE


def test_a_tombstone_is_stuck_from_the_third_failed_look_on():
    assert [pending().model_copy(update={"attempts": failed}).is_stuck for failed in (2, 3)] == [False, True]


def test_destinations_are_random_and_ids_sort_by_time():
    first, second = pending(), pending()
    assert first.destination_name != second.destination_name
    assert first.destination.namespace == ("hidden",)
    late = records.pending(
        "POLARIS", TABLE, ("hidden",), NOW + timedelta(milliseconds=1), expected_uuid="u", caller="c", waits=False
    )
    assert max(first.tombstone_id, second.tombstone_id) < late.tombstone_id
    other = records.table_key("POLARIS", TableIdentifier("lake", ("sales",), "eu.orders"))
    assert records.key_of(late.tombstone_id) == records.table_key("POLARIS", TABLE) != other


def test_a_record_is_fresh_for_a_quarter_of_an_hour_or_while_its_caller_waits():
    later = NOW + timedelta(minutes=15)
    assert pending().is_fresh(later - timedelta(seconds=1))
    assert not pending().is_fresh(later)
    waiting = CHANGES[TombstoneState.RENAMED](pending(waits=True), NOW)
    assert waiting.is_fresh(later)
    assert not records.failed(waiting, NOW, "why").is_fresh(later)


def test_callers_without_a_verified_principal_are_distinguished_by_their_credentials():
    assert caller_key("ann", "Bearer x") == caller_key("ann", "Bearer y") == "principal:ann"
    assert caller_key(None, "Bearer x") != caller_key(None, "Bearer y")
    assert "Bearer" not in caller_key(None, "Bearer x")


def test_what_is_shown_of_a_record_has_no_inner_fields():
    shown = pending().public()
    assert shown["state"] == "PENDING"
    assert {"nonce", "check_at", "expires_at", "table_uuid"}.isdisjoint(shown)
    assert datetime.fromisoformat(shown["created_at"]) == datetime.fromisoformat(isoformat(NOW))


def test_lists_find_the_task_of_a_drop_by_the_name_that_the_table_had():
    labels = table_labels(payload_of(CHANGES[TombstoneState.RENAMED](pending(), NOW)))
    assert (labels.target, labels.correlation_id) == ("lake.sales.eu.orders", None)


def test_a_purge_of_a_table_that_was_never_found_is_not_made():
    with pytest.raises(DropError, match="PENDING", check=coded("PURGE_NOT_POSSIBLE")):
        payload_of(pending())


def test_settings_have_defaults_and_the_nearest_grace_counts():
    assert DropSettings.from_properties({"delegation.retry.default.max-attempts": "5"}) == DropSettings()
    settings = DropSettings.from_properties(
        {
            "delegation.drop.mode": "wait",
            "delegation.drop.grace": "1d",
            "delegation.drop.grace.lake": "2d",
            "delegation.drop.grace.lake.sales": "0",
            "delegation.drop.trusted-roles": " a, b ,",
            "delegation.drop.tombstone-namespace": "system.dropped",
            "delegation.drop.unsupported": "pass",
        }
    )
    assert (settings.mode, settings.unsupported) == ("wait", "pass")
    assert settings.trusted_roles == {"a", "b"}
    assert settings.tombstone_namespace == ("system", "dropped")
    assert settings.grace_of(TABLE) == timedelta(0)
    assert settings.grace_of(TableIdentifier("lake", ("ops",), "t")) == timedelta(days=2)
    assert settings.grace_of(TableIdentifier("other", ("sales",), "t")) == timedelta(days=1)
    assert [settings.mode_of(asked) for asked in (None, "at-once")] == ["wait", "at-once"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("delegation.drop.mode", "later"),
        ("delegation.drop.grace", "soon"),
        ("delegation.drop.grace.lake", "-1d"),
        ("delegation.drop.tombstone-namespace", "a..b"),
        ("delegation.drop.unsupported", "ignore"),
        ("delegation.drop.graze", "1d"),
    ],
)
def test_a_wrong_setting_is_named(name, value):
    with pytest.raises(InvalidProperty, match=name.replace(".", r"\.")):
        DropSettings.from_properties({name: value})
