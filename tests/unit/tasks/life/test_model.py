"""What a record of each status may contain, and its public form."""

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from delegation.tasks.life.model import Dispatches, Status, TaskLease
from delegation.timestamps import isoformat
from delegation.wire.tasks import shown as shown_by_the_api
from tests.kit.tasks.builders import NOW, in_status, submitted

PROPOSAL_FIELDS = {
    *("task_id", "version", "parent_id", "task_type", "task_payload", "status", "received_timestamp"),
    *("last_status_change_ts", "attempt_count", "created_ts", "lease_acquired_ts", "result_summary", "result_extended"),
}
SERVICE_FIELDS = {
    *("revision", "lost_not_before", "recheck_not_before", "next_scheduled_run_ts", "attempts_excused", "engine"),
    *("dispatch_count", "cancel_requested", "error_code", "synchronous", "first_delete_ts", "job_run_id"),
    *("progress_ts", "eta_ts"),
}
HELD = ("ACQUIRING_RESOURCES", "RUNNING")
NOT_HELD = ("SUBMITTED", "RETRY_SCHEDULED", "SUCCESS", "FAILURE")
WAITING = ("SUBMITTED", "RETRY_SCHEDULED")
NOT_WAITING = ("ACQUIRING_RESOURCES", "RUNNING", "SUCCESS", "FAILURE")

WHOLE: dict[str, Any] = {"owner": "a", "acquired_ts": NOW, "lost_not_before": NOW, "recheck_not_before": NOW}
IMPOSSIBLE: list[tuple[str, dict[str, Any], str]] = [
    *((status, {"lease": TaskLease(**{**WHOLE, "owner": None})}, "lease") for status in HELD),
    *((status, {"lease": TaskLease(**{**WHOLE, "lost_not_before": None})}, "lease") for status in HELD),
    *((status, {"lease": TaskLease(**{**WHOLE, "recheck_not_before": None})}, "lease") for status in HELD),
    *((status, {"lease": TaskLease(**{**WHOLE, "acquired_ts": None})}, "lease") for status in HELD),
    *((status, {"attempt_count": 0}, "attempt") for status in HELD),
    *((status, {"lease": TaskLease(owner="worker-1")}, "lease_owner") for status in NOT_HELD),
    *((status, {"lease": TaskLease(lost_not_before=NOW)}, "lease_owner") for status in NOT_HELD),
    *((status, {"lease": TaskLease(recheck_not_before=NOW)}, "lease_owner") for status in NOT_HELD),
    *((status, {"next_scheduled_run_ts": None}, "next_scheduled_run_ts") for status in WAITING),
    *((status, {"next_scheduled_run_ts": NOW}, "next_scheduled_run_ts") for status in NOT_WAITING),
    *((status, {"due_at": NOW}, "due_at") for status in ("SUCCESS", "FAILURE")),
    ("FAILURE", {"error_code": None}, "error_code"),
    *((status, {"attempts_excused": 2}, "attempts_excused") for status in Status),
    *((status, {"dispatches": Dispatches(base=1)}, "dispatch_base") for status in Status),
    ("SUBMITTED", {"version": 0}, "version"),
    ("SUBMITTED", {"revision": 0}, "revision"),
]


@pytest.mark.parametrize(("status", "changes", "named"), IMPOSSIBLE, ids=str)
def test_an_invalid_record_is_refused_with_the_name_of_the_field(status, changes, named):
    task = in_status(Status(status))
    with pytest.raises(ValidationError, match=named):
        task.evolve(**changes)


def test_timestamps_are_kept_in_utc_and_naive_ones_refused() -> None:
    task = submitted(created_ts=NOW.astimezone(timezone(timedelta(hours=9))))
    assert (task.created_ts, task.created_ts.utcoffset()) == (NOW, timedelta(0))
    with pytest.raises(ValidationError, match="created_ts"):
        submitted(created_ts=datetime(2026, 11, 21))  # noqa: DTZ001


def test_an_unknown_field_is_refused_and_a_record_is_not_changed_in_place() -> None:
    with pytest.raises(ValidationError, match="priority"):
        submitted().evolve(priority=1)
    with pytest.raises(ValidationError, match="frozen"):
        submitted().status = Status.RUNNING


@given(st.datetimes(timezones=st.just(UTC)))
def test_every_time_as_text_is_as_wide_as_any_other_and_is_ordered_like_time(moment: datetime) -> None:
    text = isoformat(moment)
    assert len(text) == 27
    assert datetime.fromisoformat(text) == moment
    assert (text < isoformat(NOW)) == (moment < NOW)
    assert isoformat(NOW.astimezone(timezone(timedelta(hours=-8)))) == "2026-11-21T12:00:00.000000Z"


def test_the_public_record_has_the_fields_of_the_proposal_and_ours() -> None:
    shown = in_status(Status.RUNNING, plan_segments=[{"id": "1/0", "sha256": "ab"}]).public()
    assert set(shown) >= PROPOSAL_FIELDS | SERVICE_FIELDS
    assert not set(shown) & {"due_at", "due_bucket", "details", "format", "effects_began_ts"}
    assert shown["status"] == "RUNNING"
    assert shown["version"] == 3
    assert shown["lost_not_before"] == "2026-11-21T13:00:00.000000Z"
    assert shown["plan_segments"] == [{"id": "1/0", "sha256": "ab"}]
    assert json.loads(json.dumps(shown)) == shown


def test_the_public_record_has_no_field_that_only_the_store_needs() -> None:
    task = in_status(Status.RUNNING)
    for record in (task.public(), shown_by_the_api(task.public())):
        assert not record.keys() & {"nonce", "lease_owner", "dispatch_base"}
