"""`delegation tasks list` into another program: one line a task, its id first."""

import pytest

from delegation.cli.tasks.filters import COLUMN_NAMES
from delegation.cli.tasks.source import COLUMNS
from delegation.tasks.life.model import Status
from delegation.tasks.stores.base import Create
from tests.kit.tasks.builders import in_status
from tests.unit.client.service import TASK_ID, TASKS, json_answer, record

FAILED = record(status="FAILURE", error_code="DELETE_INCOMPLETE", engine="in\tline\n")


@pytest.fixture
def listed(service):
    body = {"tasks": [FAILED, record(task_id="other")], "unreadable": [], "next_page_token": None}
    service.answer("GET", TASKS, json_answer(200, body))


def test_each_task_is_one_line_with_its_id_first(run, listed):
    done = run("tasks", "list")
    first, second = done.stdout.splitlines()
    changed = "2026-11-20T11:59:30.000000Z"
    table = "lake.sales.eu.orders"
    assert first.split("\t") == [
        *(TASK_ID, "FAILURE", "TABLE_PURGE", table, changed, "1", "100/400", "DELETE_INCOMPLETE"),
    ]
    assert second.startswith("other\tRUNNING\t")


def test_the_columns_and_their_order_are_chosen(run, listed):
    assert run("tasks", "list", "--columns", "status, id,bytes,engine").stdout.splitlines() == [
        f"FAILURE\t{TASK_ID}\t1234\tin line ",
        "RUNNING\tother\t1234\tspark",
    ]


def test_chosen_columns_are_a_table_on_a_terminal(run, terminal, listed):
    heading, *rows = run("tasks", "list", "--columns", "id,error").stdout.splitlines()
    assert heading.split() == ["id", "error"]
    assert [row.split() for row in rows] == [[TASK_ID, "DELETE_INCOMPLETE"], ["other"]]


@pytest.mark.parametrize("text", ["size", "id,,status", ""])
def test_an_unknown_column_is_a_misuse_that_names_those_there_are(run, service, text):
    done = run("tasks", "list", "--columns", text)
    assert done.exit_code == 2
    assert "correlation-id" in " ".join(done.output.split())
    assert service.requests == []


def test_nothing_but_tasks_is_on_standard_output(run, store):
    done = run("tasks", "list", "--direct")
    assert (done.stdout, done.stderr) == ("", "No tasks.\n")
    for number in range(3):
        store.apply(Create(in_status(Status.SUBMITTED, task_id=f"t-{number}")))
    done = run("tasks", "list", "--direct", "--limit", "2")
    assert len(done.stdout.splitlines()) == 2
    assert "Continue with --cursor" in done.stderr


def test_a_record_that_cannot_be_read_is_a_line_too(run, store):
    store.apply(Create(in_status(Status.SUBMITTED, task_id="t-1")))
    store.make_unreadable("t-1")
    (line,) = run("tasks", "list", "--direct").stdout.splitlines()
    assert line.split("\t")[:2] == ["t-1", "UNREADABLE"]


def test_the_help_names_every_column():
    assert tuple(COLUMNS) == COLUMN_NAMES
