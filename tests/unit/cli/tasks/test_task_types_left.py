"""`delegation tasks` for task types that this release does not have: what is left of them, cancel and retry."""

import json

from delegation.tasks.life.model import Status
from delegation.tasks.stores.base import Create
from tests.kit.tasks.builders import in_status
from tests.unit.cli.conftest import lines
from tests.unit.client.service import TASK_ID


def test_what_is_left_of_a_task_type_is_counted_and_listed(run, store) -> None:
    for number, status in enumerate((Status.SUBMITTED, Status.RUNNING, Status.SUCCESS)):
        store.apply(Create(in_status(status, task_id=f"t-{number}", task_type="acme.old")))
    (document,) = lines(run("tasks", "types", "--json").stdout)
    assert document["types"]["acme.old"] == {"SUBMITTED": 1, "RUNNING": 1, "SUCCESS": 1}
    (listed,) = lines(run("tasks", "list", "--direct", "--type", "acme.old", "--open", "--json").stdout)
    assert {task["task_id"] for task in listed["tasks"]} == {"t-0", "t-1"}


def test_cancel_and_retry_work_for_every_task_type(run, store) -> None:
    store.apply(Create(in_status(Status.SUBMITTED, task_id=TASK_ID, task_type="acme.report")))
    assert run("tasks", "cancel", "--direct", TASK_ID).exit_code == 0
    assert store.get(TASK_ID).error_code == "CANCELLED"
    (printed,) = lines(run("tasks", "retry", "--direct", TASK_ID, "--json").stdout)
    assert json.loads(json.dumps(printed))["status"] == "SUBMITTED"
