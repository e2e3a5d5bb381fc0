"""A whole new task type with an option, through API, state machine, worker, command and docs: a folder and one line."""

import json
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from delegation.tasks.life.model import Status
from delegation.tasks.life.policy import InvalidProperty
from delegation.tasks.work.worker import WorkerSettings
from delegation.wiring import tasks as wired_tasks
from delegation.wiring import worker as wired_worker
from delegation.wiring.types import TYPES, default_properties, policies_of
from infra import api_schemas, settings_page
from tests.paths import ROOT
from tests.services import change_service
from tests.unit.cli import conftest as command
from tests.unit.client.service import TASK_ID, TASKS, json_answer
from tests.unit.edge.gateway import request
from tests.unit.handlers import test_handlers as handlers
from tests.unit.handlers.test_handlers import Deployed
from tests.unit.wiring.table_touch.task_type import NAME, TABLE_TOUCH
from tests.unit.wiring.table_touch.work import BEHAVIOR, Touched

deployed, run, service, stack = handlers.deployed, command.run, command.service, command.stack
ACCEPTED = {"delegation_task_id": TASK_ID, "status": "QUEUED", "status_query_url": f"{TASKS}/{TASK_ID}"}


@pytest.fixture(autouse=True)
def listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add the line to the list of `wiring.types`."""
    monkeypatch.setitem(TYPES, NAME, TABLE_TOUCH)


def body(**properties: str) -> dict[str, Any]:
    identity = {"catalog_name": "lake", "namespace_levels": ["sales"], "table_name": "orders"}
    return {
        "common_payload": {
            "operation_type": NAME,
            "realm_identifier": "POLARIS",
            "polaris_correlation_id": "request-7",
        },
        "operation_parameters": {"table_identity": identity, "properties": properties},
    }


class Api:
    """The API's function on moto."""

    def __init__(self, deployed: Deployed, monkeypatch: pytest.MonkeyPatch) -> None:
        self.handler = handlers.entry("api", deployed, monkeypatch).handler

    def __call__(self, method: str, path: str, sent: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        event = request(method, path, sent, permissions="submit read")
        answer = self.handler(event, handlers.Context("api"))
        return answer["statusCode"], json.loads(answer["body"])


def test_a_request_is_run_by_the_state_machine(deployed: Deployed, monkeypatch: pytest.MonkeyPatch) -> None:
    api = Api(deployed, monkeypatch)
    status, accepted = api("POST", "/v1/tasks", body(depth="manifests", note="before the audit"))
    assert status == 202, accepted
    task_id = accepted["delegation_task_id"]
    assert api("POST", "/v1/tasks", body(depth="manifests"))[1]["delegation_task_id"] == task_id
    state = {"task_id": task_id, "n": 1}
    for step in ("acquire", "prepare", "run_inline", "complete"):
        state |= handlers.entry(step, deployed, monkeypatch).handler(state, handlers.Context(step))
    assert state["next"] == "succeeded"
    task = wired_tasks.task_service().reads.get(task_id)
    assert (task.status, task.task_type, task.attempt_count) == (Status.SUCCESS, NAME, 1)
    assert BEHAVIOR.read_result(task) == Touched(table="lake.sales.orders", levels=2)
    assert task.deadline_ts is not None
    status, shown = api("GET", f"/v1/tasks/{task_id}")
    assert (status, shown["task_type"], shown["outlook"]["progress"]["done"]) == (200, NAME, 2)


def test_a_request_is_run_while_its_caller_waits(deployed: Deployed, monkeypatch: pytest.MonkeyPatch) -> None:
    status, answer = Api(deployed, monkeypatch)("POST", "/v1/tasks/execute/synchronous", body())
    assert (status, answer["status"], answer["message"]) == (200, "COMPLETED_SUCCESS", "done")
    assert "execution_result" not in answer


def test_a_worker_runs_it(deployed: Deployed, monkeypatch: pytest.MonkeyPatch) -> None:
    _, accepted = Api(deployed, monkeypatch)("POST", "/v1/tasks", body(depth="metadata"))
    for name, value in handlers.environment("run_inline", deployed.resources).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("DELEGATION_EMR_APPLICATION_ID", raising=False)
    tasks, worker = wired_worker.worker(WorkerSettings(owner="worker-1"), threading.Event())
    head = tasks.tasks.reads.get(accepted["delegation_task_id"])
    change_service(tasks.tasks, clock=lambda: head.due_at)
    assert worker.run_once()
    done = tasks.tasks.reads.get(head.task_id)
    assert (done.status, done.attempt_count) == (Status.SUCCESS, 1)
    assert BEHAVIOR.read_result(done) == Touched(table="lake.sales.orders", levels=1)


@pytest.mark.parametrize(
    ("properties", "code", "status"),
    [({"depth": "files"}, "INVALID_REQUEST", 400), ({"note": "NO"}, "INVALID_REQUEST", 400)],
)
def test_its_options_are_checked(deployed, monkeypatch, properties, code, status):
    found, answer = Api(deployed, monkeypatch)("POST", "/v1/tasks", body(**properties))
    assert (found, answer["error_code"]) == (status, code)


def test_the_operator_limits_its_option(deployed: Deployed, monkeypatch: pytest.MonkeyPatch) -> None:
    api = Api(deployed, monkeypatch)
    monkeypatch.setenv("DELEGATION_PROPERTIES", json.dumps({"delegation.touch.depth": "metadata"}))
    status, answer = api("POST", "/v1/tasks", body(depth="manifests"))
    assert (status, answer["error_code"]) == (403, "PROPERTY_NOT_ALLOWED")
    with pytest.raises(InvalidProperty, match=r"delegation\.touch\.depth"):
        policies_of({"delegation.touch.depth": "files"})
    assert default_properties()["delegation.retry.TABLE_TOUCH.max-attempts"] == "2"


def test_the_command_submits_it(run: Any, service: Any, stack: Path, deployed: Deployed, monkeypatch: Any) -> None:
    service.answer("POST", TASKS, json_answer(202, ACCEPTED))
    words = ("submit", "lake.sales.orders", "--type", NAME, "--property", "depth=manifests", "--stack", str(stack))
    result = run(*words)
    assert result.exit_code == 0, result.stderr
    assert "without purge" not in result.stdout
    [sent] = service.asked("POST", TASKS)
    assert Api(deployed, monkeypatch)("POST", "/v1/tasks", json.loads(sent.content))[0] == 202
    assert run("submit", "lake.sales.orders", "--type", "TABLE_TICKLE", "--stack", str(stack)).exit_code == 2


def test_the_documents_have_it() -> None:
    schemas = api_schemas.schemas()
    assert NAME in schemas["CommonPayload"]["properties"]["operation_type"]["enum"]
    members = schemas["PropertiesMap"]["properties"]
    assert members["depth"] == {"type": "string", "enum": ["manifests", "metadata"]}
    assert members["note"]["pattern"] == "^[a-z ]{1,40}$"
    assert "outside" in members
    forms = schemas["AnyTaskPayload"]["properties"]["operation_parameters"]["anyOf"]
    assert {"$ref": "#/components/schemas/TouchParameters"} in forms
    document = settings_page.with_defaults(json.loads(settings_page.DESCRIBED.read_text(encoding="utf-8")))
    assert document["properties"]["delegation.touch.depth"]["default"] == "manifests"
    assert "| `delegation.touch.depth` | `manifests` | How deep a touch may look" in settings_page.page(document)


def test_nothing_else_names_it() -> None:
    files = [path for top in ("functions", "infra", "spark") for path in (ROOT / top).rglob("*.py")]
    named = [str(path) for path in files if re.search("TABLE_TOUCH|delegation.touch", path.read_text(encoding="utf-8"))]
    assert named == []
