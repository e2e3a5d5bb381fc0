"""`delegation tasks` for kinds that this release does not have: what is left of them, cancel and retry."""

import json

from delegation.tasks.life.model import Status
from delegation.tasks.stores.base import Create
from tests.unit.cli.conftest import lines
from tests.unit.client.service import TASK_ID
from tests.unit.tasks.builders import in_status


def test_kinds_lists_the_open_tasks_of_each_kind(run, store) -> None:
    for number, (kind, status) in enumerate(
        [("acme.old", Status.SUBMITTED), ("acme.old", Status.RUNNING), ("acme.old", Status.SUCCESS)]
    ):
        store.apply(Create(in_status(status, task_id=f"t-{number}", task_type=kind)))
    (document,) = lines(run("tasks", "kinds", "--json").stdout)
    assert document["kinds"]["acme.old"] == {"SUBMITTED": 1, "RUNNING": 1, "SUCCESS": 1}
    (listed,) = lines(run("tasks", "list", "--direct", "--kind", "acme.old", "--open", "--json").stdout)
    assert {task["task_id"] for task in listed["tasks"]} == {"t-0", "t-1"}


def test_cancel_and_retry_work_for_every_kind(run, store) -> None:
    store.apply(Create(in_status(Status.SUBMITTED, task_id=TASK_ID, task_type="acme.report")))
    assert run("tasks", "cancel", "--direct", TASK_ID).exit_code == 0
    assert store.get(TASK_ID).error_code == "CANCELLED"
    (printed,) = lines(run("tasks", "retry", "--direct", TASK_ID, "--json").stdout)
    assert json.loads(json.dumps(printed))["status"] == "SUBMITTED"
