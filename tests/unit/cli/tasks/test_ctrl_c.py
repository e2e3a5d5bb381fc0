"""Ctrl-C in a command that calls the service: what was accepted continues, and its id is printed."""

import json

import pytest

from tests.unit.cli.conftest import lines
from tests.unit.client.service import TASK_ID, TASKS, json_answer, record

TASK = f"{TASKS}/{TASK_ID}"


def ctrl_c():
    raise KeyboardInterrupt


@pytest.fixture
def watched(accepting):
    accepting.answer("GET", TASK, json_answer(200, record()), ctrl_c)
    return accepting


FOLLOWING = [("tasks", "watch", TASK_ID), ("submit", "lake.sales.orders", "--wait", "--yes")]


@pytest.mark.parametrize("words", FOLLOWING, ids=["watch", "wait"])
def test_json_ends_with_one_document_that_names_the_task(run, watched, stack, words):
    done = run(*words, "--json", "--stack", str(stack))
    assert done.exit_code == 130
    assert lines(done.stdout)[-1]["status"] == "RUNNING"
    document = json.loads(done.stderr)
    assert (document["error_code"], document["task_id"]) == ("INTERRUPTED", TASK_ID)
    assert f"delegation tasks watch {TASK_ID}" in document["next_step"]


@pytest.mark.parametrize("words", FOLLOWING, ids=["watch", "wait"])
def test_a_person_reads_that_the_task_continues_and_not_that_it_was_aborted(run, watched, stack, words):
    done = run(*words, "--stack", str(stack))
    assert done.exit_code == 130
    assert f"task {TASK_ID} continues" in done.stderr
    assert f"delegation tasks watch {TASK_ID}" in done.stderr
    assert "Aborted" not in done.output


def test_json_of_a_command_that_follows_no_task_is_a_document_too(run, service, stack):
    service.answer("GET", TASKS, ctrl_c)
    done = run("tasks", "list", "--json", "--stack", str(stack))
    assert (done.exit_code, done.stdout) == (130, "")
    assert json.loads(done.stderr)["error_code"] == "INTERRUPTED"
