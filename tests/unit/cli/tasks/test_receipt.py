"""`delegation tasks receipt`: what people see of a receipt, and that programs get all of it."""

import json

import pytest

from tests.unit.client.service import TASK_ID, TASKS, json_answer, refusal

RECEIPT = {
    "format": 1,
    "task_id": TASK_ID,
    "status": "SWEPT",
    "request": {"common_payload": {}},
    "cancelled_by": None,
    "identifier": {"catalog": "lake", "namespace": ["shop"], "name": "orders"},
    "plan": ["a/1/b", "a/2/c"],
    "approved": True,
    "files_listed": 47,
    "files_deleted": 5,
    "bytes_deleted": 13_275,
    "bytes_freed": None,
    "changed": [],
    "references": [{"catalog": "lake", "tables": 3, "pass": 2}],
    "seconds": 1.041,
}


@pytest.fixture
def answering(service):
    service.answer("GET", f"{TASKS}/{TASK_ID}/receipt", json_answer(200, RECEIPT))
    return service


def test_people_see_each_member_with_a_value(run, answering, stack):
    result = run("tasks", "receipt", TASK_ID, "--stack", str(stack))
    assert result.exit_code == 0, result.stderr
    assert [line.rstrip() for line in result.stdout.splitlines()] == [
        f"task_id        {TASK_ID}",
        "status         SWEPT",
        "identifier     lake.shop.orders",
        "plan           a/1/b",
        "               a/2/c",
        "approved       yes",
        "files_listed   47",
        "files_deleted  5",
        "bytes_deleted  13.0 KiB (13,275)",
        "references     catalog lake, tables 3, pass 2",
        "seconds        1.041",
        f"restore        delegation orphans restore {TASK_ID}",
    ]


def test_programs_get_all_of_it(run, answering, stack):
    assert json.loads(run("tasks", "receipt", TASK_ID, "--stack", str(stack), "--json").stdout) == RECEIPT


def test_a_task_without_a_receipt_is_an_error(run, service, stack):
    service.answer("GET", f"{TASKS}/{TASK_ID}/receipt", refusal(404, "RECEIPT_NOT_FOUND"))
    result = run("tasks", "receipt", TASK_ID, "--stack", str(stack))
    assert (result.exit_code, result.stdout) == (1, "")
    assert "RECEIPT_NOT_FOUND" in result.stderr
