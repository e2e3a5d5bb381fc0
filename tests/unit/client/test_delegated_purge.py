"""The caller's task of a delegated purge: its outcomes, and a process that is killed at any call."""

from datetime import timedelta
from typing import Any

import httpx
import pytest

from delegation.client.errors import ClientMisconfigured, NotAuthorised
from delegation.client.purge_task import TASK_TYPE
from delegation.polaris.answers import NoSuchTable, PolarisForbidden, PolarisUnavailable
from delegation.storage.memory import Faults, Killed
from delegation.tasks.life.model import Status
from delegation.tasks.stores.memory import MemoryTaskStore
from delegation.tasks.stores.persistence import PersistenceTaskStore, task_process
from polaris_persistence.backends.memory import MemoryBackend
from tests.contract.task_tables import task_store
from tests.kit.lakes.lake import Lake, busy_table
from tests.unit.client.purges import ORDERS, CallerProcesses
from tests.unit.client.service import refusal

LOCATION = "s3://lake/wh/orders/"


@pytest.fixture(scope="module")
def lake() -> Lake:
    written = Lake()
    busy_table(written, "orders")
    written.create("customers")
    return written


@pytest.fixture
def site(lake: Lake) -> CallerProcesses:
    return CallerProcesses(lake, MemoryTaskStore())


def assert_purged_once(site: CallerProcesses, where: str = "") -> None:
    assert site.world.lake.below(LOCATION) == set(), where
    assert "orders" not in site.world.lake.pointers, where
    assert site.catalog.drops == [ORDERS], where
    assert site.world.lake.below("s3://lake/wh/customers/"), where
    (purge,) = site.service_tasks()
    rows = site.world.tasks.reads.versions(purge.task_id)
    assert [row.status for row in rows].count(Status.SUBMITTED) == 1, where
    assert rows[-1].status is Status.SUCCESS, where


def test_the_table_is_purged_by_the_service_and_dropped_by_the_caller(site):
    before = len(site.world.lake.below(LOCATION))
    submitted = site.submit()
    assert site.drive(submitted.task_id).status is Status.SUCCESS
    assert_purged_once(site)
    outcome = submitted.handle.result()
    assert outcome.files_deleted == before
    assert outcome.delegation_task_id == next(site.service_tasks()).task_id


def test_while_the_service_works_the_task_holds_no_worker_and_counts_no_attempt(site):
    submitted = site.submit()
    task = site.drive(submitted.task_id, service_works=False, steps=10)
    assert (task.status, task.error_code) == (Status.RETRY_SCHEDULED, "POSTPONED")
    assert task.attempts_excused == task.attempt_count >= 8
    assert "is SUBMITTED" in task.result_summary
    assert site.requests.count(("POST", "/v1/tasks")) == 1
    assert site.drive(submitted.task_id).status is Status.SUCCESS


def test_a_second_drop_attaches_to_the_task_of_the_first(site):
    first, second = site.submit(), site.submit()
    assert (second.task_id, second.is_new) == (first.task_id, False)


def test_a_caller_who_may_only_read_submits_nothing(lake):
    site = CallerProcesses(lake, MemoryTaskStore(), permitted=False)
    with pytest.raises(NotAuthorised):
        site.submit()
    assert site.faults.calls == 0


def test_a_dry_run_is_refused(site):
    with pytest.raises(ClientMisconfigured, match="dry-run"):
        site.submit(properties={"dry-run": "true"})
    assert site.faults.calls == 0


@pytest.mark.parametrize(
    "trouble",
    [
        httpx.ConnectError("down"),
        httpx.ReadTimeout("slow"),
        refusal(503, "STORE_UNAVAILABLE"),
        refusal(409, "request_in_progress"),
        refusal(409, "TASK_EXISTS"),
    ],
    ids=["unreachable", "answer lost", "503", "in progress", "another purge"],
)
def test_a_handoff_that_fails_is_tried_again_with_the_same_key(site, trouble):
    site.answers = [trouble]
    submitted = site.submit()
    assert site.drive(submitted.task_id).status is Status.SUCCESS
    assert site.keys == [f"{submitted.task_id}.1"] * 2
    assert_purged_once(site)


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (refusal(403, "REALM_MISMATCH"), "NOT_PERMITTED"),
        (refusal(502, "POLARIS_FORBIDDEN", retryable=False), "PERMANENT_FAILURE"),
    ],
)
def test_a_refused_handoff_ends_the_task_and_leaves_the_table(site, answer, code):
    site.answers = [answer]
    task = site.drive(site.submit().task_id)
    assert (task.status, task.error_code, task.attempt_count) == (Status.FAILURE, code, 1)
    assert "orders" in site.world.lake.pointers
    assert site.catalog.drops == []


def test_a_failure_of_the_service_is_one_of_the_task_and_a_retry_submits_it_again(site):
    site.world.tables.trouble = None
    submitted = site.submit()
    site.run_once()
    (purge,) = site.service_tasks()
    site.world.tasks.operators.cancel(purge.task_id)
    site.world.clock.advance(timedelta(minutes=5))
    task = site.drive(submitted.task_id, service_works=False)
    assert (task.status, task.error_code) == (Status.FAILURE, "DELEGATED_TASK_FAILED")
    assert "CANCELLED" in task.result_summary
    assert "orders" in site.world.lake.pointers
    site.service.operators.retry(submitted.task_id)
    assert site.drive(submitted.task_id).status is Status.SUCCESS
    assert site.keys == [f"{submitted.task_id}.{number}" for number in (1, 2)]
    assert site.catalog.drops == [ORDERS]


def test_a_cancelled_task_has_the_service_stop_too(site):
    submitted = site.submit()
    site.run_once()
    assert site.purge.cancel(site.tasks, submitted.task_id).error_code == "CANCELLED"
    assert [one.error_code for one in site.service_tasks()] == ["CANCELLED"]
    assert site.purge.cancel(site.tasks, submitted.task_id).error_code == "CANCELLED"
    assert site.drive(submitted.task_id).status is Status.FAILURE
    assert site.catalog.drops == []


def test_a_task_that_is_cancelled_while_the_service_accepts_it_has_the_service_stop(site):
    submitted = site.submit()
    accept = site.world.submit

    def cancelled_meanwhile(body, key):
        site.purge.cancel(site.tasks, submitted.task_id)
        return accept(body, key)

    site.world.submit = cancelled_meanwhile
    site.run_once()
    task = site.service.reads.get(submitted.task_id)
    assert (task.status, task.error_code) == (Status.FAILURE, "CANCELLED")
    assert [one.error_code for one in site.service_tasks()] == ["CANCELLED"]


@pytest.mark.parametrize(
    ("trouble", "status"),
    [(PolarisUnavailable("down"), Status.SUCCESS), (PolarisForbidden("no TABLE_DROP", status=403), Status.FAILURE)],
)
def test_a_drop_that_fails_is_tried_again_if_it_may_pass(site, trouble, status):
    submitted = site.submit()
    site.catalog.trouble = trouble
    task = site.drive(submitted.task_id, steps=4)
    assert not site.world.lake.below(LOCATION)
    if status is Status.SUCCESS:
        assert (task.status, task.error_code) == (Status.RETRY_SCHEDULED, "DELEGATION_DELAYED")
    else:
        assert (task.status, task.error_code) == (Status.FAILURE, "PURGED_NOT_DROPPED")
        site.service.operators.retry(submitted.task_id)  # after the privilege was granted
    site.catalog.trouble = None
    assert site.drive(submitted.task_id).status is Status.SUCCESS
    assert_purged_once(site)


def test_a_table_that_was_created_anew_meanwhile_is_not_dropped(site):
    submitted = site.submit()
    site.run_once()
    site.world.drive()
    site.world.lake.create("orders")
    site.world.clock.advance(timedelta(minutes=5))
    task = site.drive(submitted.task_id)
    assert (task.status, task.error_code) == (Status.FAILURE, "TABLE_CHANGED_SINCE_PURGE")
    assert "orders" in site.world.lake.pointers


def test_a_task_that_the_service_forgot_is_submitted_again(site):
    submitted = site.submit()
    site.run_once()
    site.answers = [refusal(404, "TASK_NOT_FOUND")]
    site.world.clock.advance(timedelta(minutes=5))
    assert site.drive(submitted.task_id).status is Status.SUCCESS
    assert site.requests.count(("POST", "/v1/tasks")) == 2
    assert_purged_once(site)


def killed_at(lake: Lake, store: Any, kill_at: int, *, after: bool) -> tuple[Faults, CallerProcesses]:
    """Drop the table in processes of which the first is killed at this call."""
    first = Faults(kill_at=kill_at, after=after)
    site = CallerProcesses(lake, store, first)
    try:
        submitted = site.submit()
    except Killed:
        site.faults = Faults()
        submitted = site.submit()
    assert site.drive(submitted.task_id).status is Status.SUCCESS, f"{kill_at}: {first.names[-1]}"
    return first, site


AFTER = pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
STEPS = pytest.mark.parametrize("step", [30, pytest.param(1, marks=pytest.mark.long)], ids=["some calls", "all calls"])


@pytest.fixture(scope="module")
def calls(lake: Lake) -> list[str]:
    """The calls of a caller that is never killed; their number is that of any store."""
    return killed_at(lake, MemoryTaskStore(), 10**6, after=False)[0].names


@AFTER
def test_a_caller_killed_at_any_call_purges_and_drops_once(lake, calls, after):
    assert {"load", "drop", "POST /v1/tasks", "store.apply", "store.get"} <= set(calls)
    for kill_at in range(1, len(calls) + 1):
        killed, site = killed_at(lake, MemoryTaskStore(), kill_at, after=after)
        assert_purged_once(site, f"{kill_at}: {killed.names[-1]}")


@AFTER
@STEPS
def test_the_same_with_the_tasks_in_the_callers_persistence(lake, calls, step, after):
    for kill_at in range(1 if step == 1 else calls.index("drop") + 1, len(calls) + 1, step):
        store = PersistenceTaskStore(task_process(MemoryBackend()).store("realm", "tasks"))
        killed, site = killed_at(lake, store, kill_at, after=after)
        assert_purged_once(site, f"{kill_at}: {killed.names[-1]}")


@AFTER
@STEPS
def test_the_same_with_the_tasks_in_dynamodb(lake, calls, moto_client, step, after):
    for kill_at in range(1 if step == 1 else calls.index("POST /v1/tasks") + 1, len(calls) + 1, step):
        with task_store(moto_client) as store:
            killed, site = killed_at(lake, store, kill_at, after=after)
            assert_purged_once(site, f"{kill_at}: {killed.names[-1]}")


def test_the_stored_task_is_of_a_type_of_its_own_and_holds_no_credential(site):
    task = site.service.reads.get(site.submit().task_id)
    assert task.task_type == TASK_TYPE
    assert "secret" not in task.task_payload
    assert "vended" not in task.task_payload
    site.world.lake.pointers.clear()
    with pytest.raises(NoSuchTable):
        site.submit()
