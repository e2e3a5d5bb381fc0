"""Any task record that can be, for hypothesis."""

from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st

from delegation.tasks.model import PlanSegment, Status, Task

MOMENTS = st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
TEXT = st.text(max_size=20)
COUNTS = st.integers(0, 2**63)
# What a newer release may store: whatever DynamoDB can hold, under a name that this one does not know.
CARRIED = st.dictionaries(
    st.text("abcxyz_", min_size=1, max_size=8).map("new_".__add__),
    st.recursive(
        TEXT | st.integers(-(2**60), 2**60) | st.booleans() | st.none(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
        max_leaves=6,
    ),
    max_size=3,
)


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


@st.composite
def tasks(draw: st.DrawFn) -> Task:
    """A record of any status with any fields that its status allows."""
    status = draw(st.sampled_from(Status))
    held = status in {Status.ACQUIRING_RESOURCES, Status.RUNNING}
    terminal = status in {Status.SUCCESS, Status.FAILURE}
    attempts = draw(st.integers(1 if held else 0, 2**40))
    dispatches = draw(COUNTS)
    return Task(
        task_id=draw(st.uuids().map(str)),
        version=draw(st.integers(1, 2**40)),
        parent_id=draw(maybe(TEXT)),
        task_type=draw(st.sampled_from(["TABLE_PURGE", "TABLE_PURGE_PLAN", "STORE_MAINTENANCE"])),
        task_payload=draw(TEXT),
        status=status,
        received_timestamp=draw(MOMENTS),
        last_status_change_ts=draw(MOMENTS),
        attempt_count=attempts,
        created_ts=draw(MOMENTS),
        lease_acquired_ts=draw(MOMENTS if held else maybe(MOMENTS)),
        result_summary=draw(maybe(TEXT)),
        result_extended=draw(maybe(TEXT)),
        revision=draw(st.integers(1, 2**60)),
        nonce=draw(TEXT),
        lease_owner=draw(TEXT) if held else None,
        lost_not_before=draw(MOMENTS) if held else None,
        recheck_not_before=draw(MOMENTS) if held else None,
        next_scheduled_run_ts=draw(MOMENTS) if not held and not terminal else None,
        attempts_excused=draw(st.integers(0, attempts)),
        throttled_count=draw(COUNTS),
        dispatch_count=dispatches,
        dispatch_base=draw(st.integers(0, dispatches)),
        cancel_requested=draw(st.booleans()),
        error_code=draw(TEXT if status is Status.FAILURE else maybe(TEXT)),
        synchronous=draw(st.booleans()),
        first_delete_ts=draw(maybe(MOMENTS)),
        engine=draw(maybe(TEXT)),
        plan_segments=tuple(draw(st.lists(st.builds(PlanSegment, id=TEXT, sha256=TEXT), max_size=3))),
        job_run_id=draw(maybe(TEXT)),
        files_planned=draw(maybe(COUNTS)),
        files_deleted=draw(COUNTS),
        files_failed=draw(COUNTS),
        bytes_deleted=draw(COUNTS),
        progress_ts=draw(maybe(MOMENTS)),
        eta_ts=draw(maybe(MOMENTS)),
        files_per_second=draw(maybe(st.integers(0, 10**6))),
        purged_identifier=draw(maybe(TEXT)),
        purged_metadata_location=draw(maybe(TEXT)),
        due_at=None if terminal else draw(maybe(MOMENTS)),
        carried=draw(CARRIED),
    )
