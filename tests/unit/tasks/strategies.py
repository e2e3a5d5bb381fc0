"""Hypothesis strategies for valid task records."""

from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st

from delegation.tasks.life.model import AdoptedChildren, Dispatches, HandOvers, KilledAttempts, Status, Task, TaskLease
from delegation.tasks.life.progress import TaskProgress

MOMENTS = st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
TEXT = st.text(max_size=20)
COUNTS = st.integers(0, 2**63 - 1)
# What a newer release may store: whatever DynamoDB can hold, under a name that this one does not know.
ADDED_LATER = st.dictionaries(
    st.text("abcxyz_", min_size=1, max_size=8).map("new_".__add__),
    st.recursive(
        TEXT | st.integers(-(2**60), 2**60) | st.booleans() | st.none(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
        max_leaves=6,
    ),
    max_size=3,
)

# What a behavior may store: whatever is JSON.
JSON = st.recursive(
    TEXT | st.integers() | st.booleans() | st.none() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT | st.just("$json"), inner, max_size=3),
    max_leaves=8,
)
BEHAVIORS_DETAILS = st.dictionaries(st.text("abc", min_size=1, max_size=3).map("own_".__add__), JSON, max_size=3)

# Details of a purge; one with its default value is not stored.
DETAILS = st.fixed_dictionaries(
    {},
    optional={
        "plan_segments": st.lists(st.fixed_dictionaries({"id": TEXT, "sha256": TEXT}), min_size=1, max_size=3),
        "files_planned": COUNTS,
        "files_deleted": st.integers(1, 2**63 - 1),
        "files_failed": st.integers(1, 2**63 - 1),
        "bytes_deleted": st.integers(1, 2**63 - 1),
        "files_per_second": st.integers(0, 10**6),
        "purged_identifier": TEXT,
        "purged_metadata_location": TEXT,
    },
)

PROGRESS = st.builds(
    TaskProgress,
    done=st.none() | st.integers(0, 2**63 - 1),
    total=st.none() | st.integers(0, 2**63 - 1),
    message=st.none() | TEXT,
)
REPORTED = st.dictionaries(
    TEXT,
    st.recursive(
        TEXT | st.integers() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
        max_leaves=4,
    ),
    max_size=3,
)


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


@st.composite
def tasks(draw: st.DrawFn) -> Task:
    """Return a strategy for records of any status with any fields that the status allows."""
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
        lease=TaskLease(
            acquired_ts=draw(MOMENTS if held else maybe(MOMENTS)),
            owner=draw(TEXT) if held else None,
            lost_not_before=draw(MOMENTS) if held else None,
            recheck_not_before=draw(MOMENTS) if held else None,
        ),
        result_summary=draw(maybe(TEXT)),
        result_extended=draw(maybe(TEXT)),
        revision=draw(st.integers(1, 2**60)),
        nonce=draw(TEXT),
        next_scheduled_run_ts=draw(MOMENTS) if not held and not terminal else None,
        attempts_excused=draw(st.integers(0, attempts)),
        throttled_count=draw(COUNTS),
        starts_refused=draw(COUNTS),
        hand_overs=HandOvers(count=draw(COUNTS), state=draw(maybe(TEXT))),
        killed=KilledAttempts(count=draw(COUNTS), state=draw(maybe(TEXT))),
        deadline_ts=draw(maybe(MOMENTS)),
        payload_version=draw(st.integers(1, 9)),
        dispatches=Dispatches(count=dispatches, base=draw(st.integers(0, dispatches))),
        cancel_requested=draw(st.booleans()),
        error_code=draw(TEXT if status is Status.FAILURE else maybe(TEXT)),
        synchronous=draw(st.booleans()),
        effects_began_ts=draw(maybe(MOMENTS)),
        engine=draw(maybe(TEXT)),
        job_run_id=draw(maybe(TEXT)),
        progress_ts=draw(maybe(MOMENTS)),
        eta_ts=draw(maybe(MOMENTS)),
        progress=draw(maybe(PROGRESS)),
        reported=draw(REPORTED),
        result_location=draw(maybe(TEXT)),
        family=AdoptedChildren(
            child_ordinal=draw(maybe(COUNTS)),
            attempts_before=draw(maybe(COUNTS)),
            runs_before=draw(maybe(COUNTS)),
        ),
        result_attempt=draw(maybe(COUNTS)),
        target_key=draw(maybe(TEXT)),
        correlation_key=draw(maybe(TEXT)),
        due_at=None if terminal else draw(maybe(MOMENTS)),
        details={**draw(DETAILS), **draw(ADDED_LATER)},
    )
