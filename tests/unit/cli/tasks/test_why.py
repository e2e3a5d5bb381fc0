"""`delegation tasks why`: what a record and the time tell about a task."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from delegation.cli.tasks.direct import DirectTasks
from delegation.cli.tasks.screens import why_screen
from delegation.cli.tasks.source import ApiTasks
from delegation.cli.tasks.why import explain
from delegation.client.errors import HttpError, NotFound
from delegation.tasks.life import transitions as t
from delegation.tasks.life.lanes import STARTING_AT_LEAST, Caps, Lane, Running, Traits, blocking
from delegation.tasks.stores.base import Create
from delegation.tasks.stores.memory import MemoryTaskStore
from delegation.wire.responses import Receipt, TaskPlace
from delegation.wire.tasks import TaskRecord
from tests.kit.tasks.builders import acquired, submitted
from tests.unit.cli.conftest import lines
from tests.unit.client.service import TASK_ID, TASKS, json_answer, record

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
SOON, LATER, BEFORE = (NOW + timedelta(minutes=minutes) for minutes in (8, 50, -9))


def recorded(**changes):
    moments = {name: value.isoformat() if isinstance(value, datetime) else value for name, value in changes.items()}
    return TaskRecord.of(record(**moments))


def why(**changes):
    return explain(recorded(**changes), NOW)


def test_a_running_task_names_its_holder_its_progress_and_its_end():
    found = why(
        lease_acquired_ts=NOW - timedelta(minutes=2), lost_not_before=LATER, eta_ts=SOON, files_per_second=1200,
        progress_ts=NOW - timedelta(seconds=12), job_run_id="job-7",
    )  # fmt: skip
    assert found.status.startswith("RUNNING for 30.0 s, since ")
    assert found.holder == "a worker or execution, for 2 min 00 s, spark engine, job run job-7"
    assert found.progress == "100 of 400 files, 1.2 KiB, 1,200 a second, reported 12.0 s ago"
    assert (found.last_error, found.when, found.advice) == ("none", SOON, "")
    assert "done in about 8 min 00 s" in found.next


def test_a_holder_without_an_estimate_has_its_lease():
    found = why(lost_not_before=LATER, lease_owner="worker-3")
    assert (found.holder, found.when) == ("worker-3, spark engine", LATER)
    assert "another attempt will follow in 50 min 00 s" in found.next


def test_spark_that_starts_names_what_it_waits_for():
    starting = {"status": "ACQUIRING_RESOURCES", "engine": "spark", "lost_not_before": LATER}
    found = why(**starting, job_run_id="job-7")
    assert found.next.startswith("Spark is starting: job run job-7 waits for its workers")
    assert "being submitted" in why(**starting, job_run_id=None).next
    assert "Spark" not in why(**{**starting, "engine": "inline"}).next


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"attempt_count": 1}, "the error is final"),
        ({"attempt_count": 3, "attempts_excused": 2}, "the error is final"),
        ({"attempt_count": 1, "synchronous": True}, "a synchronous task"),
        ({"attempt_count": 1, "error_code": "DEADLINE_EXCEEDED"}, "deadline has passed"),
        ({"attempt_count": 2, "times": 2}, "2 attempts failed, and none is left"),
        ({"attempt_count": 2, "times": 1}, "no attempt is left after 2 attempts, or the last error is final"),
    ],
)
def test_a_failure_says_which_of_its_reasons_ended_the_task(changes, reason):
    entry = "2026-11-20T11:00:00Z attempt {} JOB_FAILED: the job ended\n"
    history = "".join(entry.format(number) for number in range(changes.pop("times", 0)))
    failed = {"status": "FAILURE", "error_code": "JOB_FAILED", "result_extended": history, **changes}
    assert reason in why(**failed).next


def test_a_task_that_ended_says_what_a_person_has_to_decide():
    step = "Have them removed with `delegation orphans approve 1`.\x1b[2J"
    found = why(status="SUCCESS", outlook={"as_of": NOW.isoformat(), "next_step": step})
    assert found.next == "Nothing by itself: the task is done, and a person decides what follows."
    assert found.advice.startswith("Have them removed with `delegation orphans approve 1`.")
    assert "\x1b" not in found.advice
    assert why(status="SUCCESS", outlook={"as_of": NOW.isoformat()}).next == "Nothing: the task is done."


def test_a_plan_that_waits_is_a_state_with_the_command_that_approves_it():
    step = {"as_of": NOW.isoformat(), "next_step": "`delegation orphans approve 1`"}
    waiting = {"id": "1", "sha256": "0" * 64}
    found = why(status="SUCCESS", waits="first-run", waiting_plan=waiting, outlook=step)
    assert "approves the plan" in found.next
    assert "first-run" in found.next
    assert (found.advice, found.last_error) == ("`delegation orphans approve 1`", "none")


def test_a_plan_that_another_task_executed_asks_nothing_more():
    step = {"as_of": NOW.isoformat(), "next_step": "`delegation orphans approve 1`"}
    found = explain(recorded(status="SUCCESS", outlook=step), NOW, executed_by="task-2")
    assert (found.next, found.advice) == ("Nothing: the task task-2 executed the plan.", "")
    assert "executed" not in explain(recorded(status="RUNNING"), NOW, executed_by="task-2").next


class ServiceWithReceipt:
    """Answers for a receipt."""

    def __init__(self, **members: object) -> None:
        self.receipts = [Receipt.model_validate({"format": 1, **members})] if members else []
        self.asked = 0

    def receipt(self, _task_id: str) -> Receipt:
        self.asked += 1
        if not self.receipts:
            raise NotFound(HttpError(404, "RECEIPT_NOT_FOUND", "there is none"))
        return self.receipts[0]


def test_who_executed_a_plan_that_waits_is_read_from_the_receipt_beside_it():
    other = "f7e01fd5-dde8-5967-a554-376bc7b16244"
    step = {"as_of": NOW.isoformat(), "next_step": "`delegation orphans approve 1`"}
    waits, done = recorded(status="SUCCESS", outlook=step), recorded(status="SUCCESS")
    assert ApiTasks(ServiceWithReceipt(task_id=other, status="SWEPT")).executed_by(waits) == other
    assert ApiTasks(ServiceWithReceipt(task_id=other, status="INCOMPLETE")).executed_by(waits) is None
    assert ApiTasks(ServiceWithReceipt(task_id=TASK_ID, status="SWEPT")).executed_by(waits) is None
    nothing = ServiceWithReceipt()
    assert (ApiTasks(nothing).executed_by(waits), ApiTasks(nothing).executed_by(done), nothing.asked) == (None, None, 1)


def test_the_command_says_who_executed_a_plan(run, service):
    other = "f7e01fd5-dde8-5967-a554-376bc7b16244"
    step = {"as_of": NOW.isoformat(), "next_step": "`delegation orphans approve 1`"}
    service.answer("GET", f"{TASKS}/{TASK_ID}", json_answer(200, record(status="SUCCESS", outlook=step)))
    receipt = {"format": 1, "task_id": other, "status": "SWEPT"}
    service.answer("GET", f"{TASKS}/{TASK_ID}/receipt", json_answer(200, receipt))
    found = run("tasks", "why", TASK_ID, "--json")
    assert json.loads(found.stdout)["next"] == f"Nothing: the task {other} executed the plan."


@pytest.mark.parametrize(
    ("changes", "follows", "advice"),
    [
        ({"lost_not_before": BEFORE}, "the sweeper will end attempt 1", "delegation doctor"),
        ({"lost_not_before": LATER, "cancel_requested": True}, "next checkpoint", ""),
        ({"status": "SUCCESS", "recurrence_seconds": 60}, "next run", ""),
        ({"status": "SUCCESS"}, "done", ""),
        ({"status": "PAUSED"}, "does not know the status PAUSED", ""),
        ({"status": "FAILURE", "partly_deleted": True}, "Files were deleted", "Do not drop"),
        ({"status": "FAILURE", "partly_deleted": True}, "Files were deleted", f"delegation tasks retry {TASK_ID}"),
    ],
)
def test_what_follows_has_the_advice_that_it_needs(changes, follows, advice):
    found = why(**changes)
    assert follows in found.next
    assert advice in found.advice


def test_a_scheduled_retry_has_its_time_and_the_error_before():
    found = why(
        status="RETRY_SCHEDULED", attempt_count=3, attempts_excused=1, throttled_count=1, next_scheduled_run_ts=SOON,
        error_code="STORAGE_THROTTLED", result_summary="SlowDown",
    )  # fmt: skip
    assert found.attempt == "3 (1 not counted against the limit, 1 throttled)"
    assert (found.holder, found.last_error, found.when) == ("none", "STORAGE_THROTTLED: SlowDown", SOON)
    assert "Attempt 4 will start in 8 min 00 s" in found.next


@pytest.mark.parametrize(("minutes", "text"), [(1, "will start"), (9, "has been due for 9 min 00 s")])
def test_a_task_that_is_due_says_for_how_long(minutes, text):
    found = why(status="SUBMITTED", attempt_count=0, next_scheduled_run_ts=NOW - timedelta(minutes=minutes))
    assert text in found.next
    assert bool(found.advice) == (minutes > 2)


def test_a_cancelled_task_names_who_cancelled_it():
    cancelled = {"client_id": "ops", "subject": "alice"}
    found = why(status="FAILURE", error_code="CANCELLED", result_summary="on request", cancelled_by=cancelled)
    assert found.last_error == "CANCELLED: on request, by ops (alice)"


STATUSES = ["SUBMITTED", "ACQUIRING_RESOURCES", "RUNNING", "RETRY_SCHEDULED", "SUCCESS", "FAILURE", "PAUSED"]
TIMES = st.none() | st.integers(-10_000, 10_000).map(lambda minutes: (NOW + timedelta(minutes=minutes)).isoformat())
RECORDS = st.fixed_dictionaries(
    {
        "status": st.sampled_from(STATUSES),
        "last_status_change_ts": TIMES,
        "next_scheduled_run_ts": TIMES,
        "lost_not_before": TIMES,
        "lease_acquired_ts": TIMES,
        "eta_ts": TIMES,
        "progress_ts": TIMES,
        "cancel_requested": st.booleans(),
        "partly_deleted": st.booleans(),
        "error_code": st.sampled_from([None, "CANCELLED", "CREDENTIALS_DO_NOT_COVER"]),
        "result_summary": st.none() | st.text(max_size=30),
        "files_planned": st.none() | st.integers(0, 10**9),
        "files_deleted": st.integers(0, 10**9),
        "attempt_count": st.integers(0, 40),
    }
)


@given(changes=RECORDS)
def test_every_record_has_an_explanation_that_fits_80_columns(changes):
    found = explain(TaskRecord.of(record(**changes)), NOW)
    assert found.next
    assert found.document()["task_id"] == TASK_ID
    if changes["status"] in {"SUCCESS", "FAILURE"}:
        assert found.when is None
    console = Console(width=80, color_system=None)
    with console.capture() as capture:
        console.print(why_screen(found))
    assert max(len(line) for line in capture.get().splitlines()) <= 80
    assert " -" not in found.status + found.holder + found.next


def test_the_command_prints_one_screen_or_the_same_as_json(run, service):
    service.answer("GET", f"{TASKS}/{TASK_ID}", json_answer(200, record()))
    service.answer("GET", f"{TASKS.removesuffix('/tasks')}/pause", json_answer(200, {"pauses": []}))
    text = run("tasks", "why", TASK_ID).stdout
    assert "next" in text
    assert len(text.splitlines()) < 24
    (document,) = lines(run("tasks", "why", TASK_ID, "--json").stdout)
    assert document["what"] == "TABLE_PURGE of lake.sales.eu.orders"
    assert set(document) >= {"status", "attempt", "holder", "progress", "last_error", "next", "when", "advice"}


# ---- tasks that wait for a place


LANE = Lane.of("TABLE_PURGE", Traits("sa/les", "lake"))


class Table:
    """A task table with tasks that wait in one lane, and one that runs."""

    def __init__(self):
        self.store = MemoryTaskStore()
        self.direct = DirectTasks(self.store, lambda: "arn:aws:iam::123456789012:user/ops")

    def queued(self, number, at=BEFORE):
        task = submitted(f"00000000-0000-4000-8000-{number:012d}", task_type="TABLE_PURGE", next_scheduled_run_ts=at)
        return self.store.apply(Create(t.queued(task, LANE.text, at))).task_id

    def why(self, task_id):
        found = self.direct.get(task_id)
        return explain(found, NOW, (), self.direct.waiting(found))


def test_a_task_that_waits_for_a_place_names_its_lane_its_place_and_what_it_waits_for(monkeypatch):
    monkeypatch.setenv("DELEGATION_PROPERTIES", '{"delegation.limits.all": "9", "delegation.limits.tenant": "1"}')
    table = Table()
    table.store.apply(Create(acquired(t.queued(submitted(), LANE.text, NOW)).evolve(version=1)))
    for number in range(3):
        table.queued(number, BEFORE + timedelta(seconds=number))
    found = table.why(f"00000000-0000-4000-8000-{2:012d}")
    assert "has waited 8 min 58 s for a place" in found.next
    assert "tenant sa/les, bucket lake, small TABLE_PURGE, priority 5, at position 3" in found.next
    assert "delegation.limits.tenant sa/les: 1 of 1 " in found.next
    assert "delegation.limits.all" not in found.next
    assert found.advice == ""


def test_without_the_caps_what_runs_is_counted(monkeypatch):
    monkeypatch.delenv("DELEGATION_PROPERTIES", raising=False)
    table = Table()
    table.store.apply(Create(acquired(t.queued(submitted(), LANE.text, NOW)).evolve(version=1)))
    found = table.why(table.queued(1))
    assert "1 in all, 1 of the same tenant, 1 on the same bucket, 1 of the same type" in found.next


def test_a_free_place_is_given_at_the_next_check_or_after_the_backoff(monkeypatch):
    monkeypatch.setenv("DELEGATION_PROPERTIES", '{"delegation.limits.all": "9"}')
    table = Table()
    assert "the next check by the dispatcher or a worker" in table.why(table.queued(1)).next
    found = table.why(table.queued(2, SOON))
    assert (found.when, "will wait for a place" in found.next) == (SOON, True)


def queued_record() -> TaskRecord:
    outlook = {"as_of": NOW.isoformat(), "next_attempt": {
        "number": 1, "at": BEFORE.isoformat(), "seconds": 0, "awaits_admission": True, "lane": LANE.words
    }}  # fmt: skip
    return recorded(status="SUBMITTED", attempt_count=0, next_scheduled_run_ts=BEFORE, outlook=outlook)


class ServiceWithPlaces:
    """Answers for the place of a task; None as a former release does, which has no such endpoint."""

    def __init__(self, answer: TaskPlace | None) -> None:
        self.answer = answer
        self.asked: list[str] = []

    def place(self, task_id: str) -> TaskPlace:
        self.asked.append(task_id)
        if self.answer is None:
            raise NotFound(HttpError(404, "ROUTE_NOT_FOUND", "there is no such endpoint"))
        return self.answer


def test_the_service_names_the_place_and_what_the_lane_waits_for():
    service = ServiceWithPlaces(
        TaskPlace(task_id=TASK_ID, waits=True, lane=LANE.words, place=3, reasons=("all: 9 of 9 run",))
    )
    task = queued_record()
    found = explain(task, NOW, (), ApiTasks(service).waiting(task))
    assert "at position 3" in found.next
    assert "all: 9 of 9 run" in found.next


def test_a_service_of_a_former_release_names_the_lane_and_how_to_see_the_place():
    service, task = ServiceWithPlaces(None), queued_record()
    found = explain(task, NOW, (), ApiTasks(service).waiting(task))
    assert service.asked == [TASK_ID]
    assert LANE.words in found.next
    assert f"delegation tasks why {TASK_ID} --direct" in found.advice


def test_a_task_that_does_not_wait_for_a_place_is_not_asked_about():
    service = ServiceWithPlaces(None)
    assert ApiTasks(service).waiting(recorded(status="RUNNING")) is None
    assert service.asked == []


@pytest.mark.parametrize(
    ("running", "limits", "said"),
    [
        (0, Caps(everything=1), ()),
        (
            2,
            Caps(bucket=2, task_types={"TABLE_PURGE": 2}),
            ("bucket lake: 2 of 2", "task-type.TABLE_PURGE: 2 of 2"),
        ),
        (STARTING_AT_LEAST, Caps(), ("have not started",)),
    ],
)
def test_what_keeps_a_lane_from_starting_is_named(running, limits, said):
    found = blocking(LANE, [Running(f"{n}", LANE, is_held=False) for n in range(running)], limits)
    assert len(found) == len(said)
    assert all(words in text for words, text in zip(said, found, strict=True))


def test_large_tasks_that_wait_for_their_jobs_are_named():
    large = Lane.of("TABLE_PURGE", Traits("sales", "lake", is_small=False))
    running = [Running(f"{n}", large, is_held=True, is_begun=False) for n in range(5)]
    assert (
        "5 large tasks wait for their jobs to begin; the limit is 5" in blocking(large, running, Caps(everything=10))[0]
    )


def test_the_task_of_a_drop_is_named_by_the_table_that_was_dropped():
    identity = {"catalog_name": "lake", "namespace_levels": ["gone"], "table_name": "dropped_37"}
    properties = {"dropped-table": "lake.shop.orders"}
    payload = json.dumps({"operation_parameters": {"table_identity": identity, "properties": properties}})
    task = recorded(task_type="TABLE_DROP_WITH_PURGE", task_payload=payload)
    assert task.table == "lake.gone.dropped_37", "what filters and the catalog know"
    assert explain(task, NOW).what == "TABLE_DROP_WITH_PURGE of lake.shop.orders (dropped)"
