"""The contract of both sources of tasks, the service and the task table; and what the command does with many tasks."""

import json
import re
import uuid
from datetime import UTC, datetime, timedelta
from typing import get_args

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegation.cli.connection import Connection
from delegation.cli.errors import CommandError
from delegation.cli.tasks.direct import TaskSource
from delegation.cli.tasks.filters import FILTERS, Order, TaskFilter, filter_of, in_order, parse_since
from delegation.client.client import DelegationClient
from delegation.removal.details import table_labels
from delegation.tasks.life.model import Status, Task
from delegation.tasks.stores.base import Create
from delegation.tasks.stores.memory import MemoryTaskStore
from delegation.wire.tasks import TaskRecord
from delegation.wiring.types import OPERATIONS, TYPES, Operation
from tests.kit.errors import coded
from tests.kit.tasks.builders import in_status, submitted
from tests.unit.cli.conftest import OPERATOR, lines
from tests.unit.cli.tasks.sources import api_client, sources
from tests.unit.client.service import BASE, Tokens, record
from tests.unit.edge.conftest import not_called

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
UNKNOWN = "00000000-0000-4000-8000-000000000000"


def payload(table: str, correlation: str | None = None) -> str:
    catalog, *levels, name = table.split(".")
    identity = {"catalog_name": catalog, "namespace_levels": levels, "table_name": name}
    common = {"operation_type": "TABLE_PURGE", "polaris_correlation_id": correlation}
    return json.dumps({"common_payload": common, "operation_parameters": {"table_identity": identity}})


def a_task(number: int, status: Status = Status.SUBMITTED, table: str = "lake.sales.orders", **fields) -> Task:
    text = payload(table, fields.pop("correlation", None))
    return in_status(
        status,
        task_id=f"00000000-0000-4000-8000-{number:012}",
        task_payload=text,
        received_timestamp=NOW - timedelta(hours=number),
        **table_labels(text).keys(),
        **fields,
    )


def put(store: MemoryTaskStore, *tasks: Task) -> None:
    for task in tasks:
        store.apply(Create(task))


@pytest.fixture
def tasks() -> MemoryTaskStore:
    return MemoryTaskStore()


@pytest.fixture(params=["api", "direct"])
def source(request, tasks) -> TaskSource:
    return sources(tasks, lambda: NOW)[request.param]


def numbers(found) -> set[int]:
    return {int(task.task_id[-12:]) for task in found}


def every(source, wanted: TaskFilter, limit: int) -> list[TaskRecord]:
    """Return the tasks of all pages."""
    found, cursor = [], None
    while True:
        page = source.found(wanted, limit=limit, cursor=cursor)
        assert len(page.tasks) <= limit
        found += page.tasks
        cursor = page.cursor
        assert page.more == (cursor is not None)
        if cursor is None:
            return found


@pytest.fixture
def some(tasks) -> MemoryTaskStore:
    put(
        tasks,
        a_task(1),
        a_task(2, Status.RUNNING, "lake.sales.items", correlation="c-1"),
        a_task(3, Status.FAILURE, correlation="c-1"),
        a_task(4, Status.SUCCESS, "lake.hr.people"),
        a_task(5, Status.FAILURE, task_type="TABLE_PURGE_PLAN"),
    )
    return tasks


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({}, {1, 2, 3, 4, 5}),
        ({"statuses": frozenset({"FAILURE"})}, {3, 5}),
        ({"statuses": frozenset({"FAILURE", "RUNNING"})}, {2, 3, 5}),
        ({"task_types": frozenset({"TABLE_PURGE_PLAN"})}, {5}),
        ({"task_types": frozenset({"TABLE_PURGE_PLAN", "TABLE_PURGE"})}, {1, 2, 3, 4, 5}),
        ({"task_types": frozenset({"A", "B"})}, set()),
        ({"table": "lake.sales.orders"}, {1, 3, 5}),
        ({"table": "lake.sales"}, set()),
        ({"since": NOW - timedelta(hours=2)}, {1, 2}),
        ({"correlation_id": "c-1"}, {2, 3}),
        ({"correlation_id": "c-1", "statuses": frozenset({"FAILURE"})}, {3}),
    ],
)
@pytest.mark.parametrize("limit", [1, 2, 50])
def test_a_filter_finds_the_same_tasks_in_pages_of_any_size(source, some, wanted, expected, limit):
    found = every(source, TaskFilter(**wanted), limit)
    assert numbers(found) == expected
    assert len(found) == len(expected)


def test_a_plan_that_waits_has_its_next_step_from_either_source(source, tasks):
    details = {"plan_segments": [{"id": "plan-1", "sha256": "ab"}], "files_planned": 3}
    put(tasks, a_task(1, Status.SUCCESS, task_type="ORPHAN_FILES_PLAN", details=details), a_task(2, Status.SUCCESS))
    plan, purge = (source.get(a_task(number).task_id) for number in (1, 2))
    assert "`delegation orphans approve plan-1`" in plan.outlook.next_step
    assert purge.outlook is None or purge.outlook.next_step is None


def test_a_task_and_its_versions(source, some):
    task_id = a_task(2).task_id
    assert source.get(task_id).status == "RUNNING"
    assert source.versions(task_id)[-1].version == source.get(task_id).version


def test_an_unknown_task_is_reported_in_the_same_way(source, tasks):
    for call in (source.get, source.versions, source.cancel, source.retry):
        with pytest.raises(CommandError, match=f"there is no task {UNKNOWN}", check=coded("TASK_NOT_FOUND")):
            call(UNKNOWN)


def test_a_waiting_task_is_cancelled_and_a_repeat_returns_it(source, some):
    task_id = a_task(1).task_id
    for _ in range(2):
        cancelled = source.cancel(task_id)
        assert (cancelled.status, cancelled.error_code) == ("FAILURE", "CANCELLED")
    assert OPERATOR in str(some.get(task_id).cancelled_by)


def test_a_running_task_is_asked_to_stop(source, some):
    assert source.cancel(a_task(2).task_id).cancel_requested


@pytest.mark.parametrize("number", [3, 4])
def test_a_task_that_ended_otherwise_stays(source, some, number):
    with pytest.raises(CommandError, check=coded("TASK_STAYS")):
        source.cancel(a_task(number).task_id)


def test_only_a_failure_is_retried(source, some):
    assert source.retry(a_task(3).task_id).status == "SUBMITTED"
    for number in (1, 2, 4):
        with pytest.raises(CommandError, check=coded("TASK_STAYS")):
            source.retry(a_task(number).task_id)


@pytest.fixture
def through_api(some, monkeypatch) -> MemoryTaskStore:
    client = api_client(some, lambda: NOW)
    monkeypatch.setattr(Connection, "operator_client", lambda _self: client)
    return some


def test_the_list_is_sorted_newest_first_by_the_command(run, through_api):
    (document,) = lines(run("tasks", "list", "--json").stdout)
    assert [int(task["task_id"][-12:]) for task in document["tasks"]] == [1, 2, 3, 4, 5]
    (document,) = lines(run("tasks", "list", "--json", "--sort", "table").stdout)
    assert [int(task["task_id"][-12:]) for task in document["tasks"]] == [4, 2, 1, 3, 5]
    (document,) = lines(run("tasks", "list", "--json", "--open").stdout)
    assert [int(task["task_id"][-12:]) for task in document["tasks"]] == [1, 2]


def test_a_cursor_continues_a_list_of_the_service(run, through_api):
    seen, more = [], []
    for _ in range(3):
        (document,) = lines(run("tasks", "list", "--json", "--limit", "2", *more).stdout)
        seen += [int(task["task_id"][-12:]) for task in document["tasks"]]
        more = ["--cursor", document["cursor"]] if document["cursor"] else []
    assert (seen, more) == ([1, 2, 3, 4, 5], [])


def test_the_text_names_how_to_continue_with_the_same_time(run, terminal, through_api):
    text = run("tasks", "list", "--limit", "1", "--since", "9999d").output
    assert "9999d" in text  # longer than any duration
    text = run("tasks", "list", "--limit", "1", "--since", "2026-11-19").stdout
    assert "--since 2026-11-" in text
    assert "--cursor " in text


def test_every_failure_of_a_filter_is_retried_after_a_confirmation(run, through_api):
    refused = run("tasks", "retry", "--since", "2026-11-01", "--json")
    assert (refused.exit_code, json.loads(refused.stderr)["error_code"]) == (2, "MISUSE")
    assert through_api.get(a_task(3).task_id).status is Status.FAILURE
    (document,) = lines(run("tasks", "retry", "--since", "2026-11-01", "--yes", "--json").stdout)
    assert document["retried"] == 2
    assert {task["status"] for task in document["tasks"]} == {"SUBMITTED"}
    assert through_api.get(a_task(3).task_id).status is Status.SUBMITTED


def test_at_a_terminal_the_tasks_are_shown_before_the_question(run, through_api, monkeypatch):
    monkeypatch.setattr("delegation.cli.calls.at_a_terminal", lambda: True)
    result = run("tasks", "cancel", "--table", "lake.sales.orders", given="n\n")
    assert result.exit_code == 1
    assert a_task(1).task_id in result.stderr
    assert "1 task is about to be cancelled" in result.stderr
    assert not through_api.get(a_task(1).task_id).is_terminal
    assert run("tasks", "cancel", "--table", "lake.sales.orders", given="y\n").exit_code == 0
    assert through_api.get(a_task(1).task_id).error_code == "CANCELLED"


def test_some_of_several_that_cannot_be_changed_are_named_with_exit_status_4(run, through_api):
    ids = [a_task(number).task_id for number in (1, 4)]
    result = run("tasks", "cancel", *ids, "--yes", "--json")
    assert result.exit_code == 4
    (document,) = lines(result.stdout)
    assert document["cancelled"] == 1
    assert [task.get("error_code") for task in document["tasks"]] == [None, "TASK_STAYS"]
    assert json.loads(result.stderr)["error_code"] == "TASKS_NOT_CHANGED"


@pytest.mark.parametrize("kind", sorted(TYPES.own))
def test_filters_of_a_cancel_never_choose_the_services_own_tasks(run, through_api, kind):
    """They keep the stores small and the index fresh; a cancellation of everything used to end them."""
    own = through_api.apply(Create(submitted(str(uuid.uuid4()), task_type=kind, recurrence_seconds=3600)))
    result = run("tasks", "cancel", "--since", "2026-11-01", "--yes", "--json")
    (document,) = lines(result.stdout)
    assert document["cancelled"] >= 1
    assert own.task_id not in {task["task_id"] for task in document["tasks"]}
    assert through_api.get(own.task_id) == own
    assert run("tasks", "cancel", "--type", kind, "--yes").stdout == "0 of 0 tasks cancelled.\n"
    assert run("tasks", "cancel", own.task_id).exit_code == 0


@pytest.mark.parametrize("operation", [one for one in OPERATIONS if one.command], ids=lambda one: one.command)
def test_the_command_of_each_operation_names_its_tasks(operation: Operation) -> None:
    assert filter_of({"task_type": [operation.command]}).task_types == {operation.work.name}
    [option] = [one for one in get_args(FILTERS["task_type"]) if hasattr(one, "help")]
    assert re.search(rf"\b{operation.command}\b", option.help)


def test_ids_and_filters_exclude_each_other_and_one_is_needed(run, through_api):
    assert run("tasks", "cancel", "x", "--since", "1h").exit_code == 2
    assert run("tasks", "retry").exit_code == 2
    assert run("tasks", "cancel", "--table", "lake.no.table", "--yes").stdout == "0 of 0 tasks cancelled.\n"


def test_a_task_has_its_screens_through_the_service(run, through_api):
    task_id = a_task(3).task_id
    for word in ("show", "why", "history"):
        assert task_id in run("tasks", word, task_id).stdout
    assert json.loads(run("tasks", "why", UNKNOWN, "--json").stderr)["error_code"] == "TASK_NOT_FOUND"


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_a_history_of_a_service_that_returns_no_version_is_an_unknown_task(run, monkeypatch, words):
    """It ended in a traceback: IndexError."""
    empty = httpx.MockTransport(lambda _: httpx.Response(200, json={"versions": []}))
    client = DelegationClient(BASE, Tokens(), http=httpx.Client(transport=empty))
    monkeypatch.setattr(Connection, "operator_client", lambda _self: client)
    result = run("tasks", "history", UNKNOWN, *words)
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"there is no task {UNKNOWN}" in result.stderr


def test_no_screen_is_made_of_a_task_that_is_printed_as_json(run, through_api, monkeypatch):
    for name in ("task_screen", "history_table"):
        monkeypatch.setattr(f"delegation.cli.output.{name}", not_called)
    monkeypatch.setattr("delegation.cli.tasks.screens.why_screen", not_called)
    task_id = a_task(3).task_id
    for word in ("show", "why", "history"):
        assert json.loads(run("tasks", word, task_id, "--json").stdout)["task_id"] == task_id


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2h", NOW - timedelta(hours=2)),
        ("PT30M", NOW - timedelta(minutes=30)),
        ("2026-11-20T10:00:00+02:00", NOW - timedelta(hours=4)),
        ("2026-11-20T10:00:00Z", NOW - timedelta(hours=2)),
    ],
)
def test_since_is_a_time_or_how_long_ago(text, expected):
    assert parse_since(text, NOW) == expected


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(list(Status))), max_size=8), st.sampled_from(list(Order)))
def test_an_order_keeps_every_task(made, order):
    received = (NOW - timedelta(hours=hours) for hours, _ in made)
    views = [
        TaskRecord.of(record(task_id=str(n), status=status, received_timestamp=at.isoformat()))
        for n, ((_, status), at) in enumerate(zip(made, received, strict=True))
    ]
    assert sorted(view.task_id for view in in_order(views, order)) == sorted(view.task_id for view in views)
    if order is Order.RECEIVED:
        times = [view.received_timestamp for view in in_order(views, order)]
        assert times == sorted(times, reverse=True)
