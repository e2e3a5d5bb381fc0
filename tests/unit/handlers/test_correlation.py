"""One correlation id joins a request with its queue message, its dispatch, each step, its Spark job and its end."""

import importlib.util
import json
import logging
from typing import Any

import pytest

from delegation.removal.purge.context import PurgeContext
from delegation.storage.base import ObjectStoreDenied
from delegation.tasks.life.model import Status
from delegation.tasks.stores.base import Create
from delegation.wiring import table_access
from delegation.wiring import tasks as wired_tasks
from tests.kit.tasks.builders import submitted
from tests.unit.handlers import test_handlers as handlers
from tests.unit.handlers.test_handlers import TASK_ID, Deployed

deployed = handlers.deployed
JOINED = "polaris-request-4711"


def submitted_by_the_api(deployed: Deployed, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> list[dict[str, Any]]:
    """Submit a request with its correlation id through the API's handler; return what it logged."""
    module = handlers.entry("api", deployed, monkeypatch)
    event = json.loads((handlers.EVENTS / "api-submit.json").read_text())
    for headers in (event["headers"], event.get("multiValueHeaders") or {}):
        headers.pop("Idempotency-Key", None)  # there is no table of keys here
    monkeypatch.setattr(table_access, "synchronous_polaris", lambda: deployed.world.tables)
    body = deployed.world.identity("orders")
    body["common_payload"] |= {"realm_identifier": "POLARIS", "polaris_correlation_id": JOINED}
    event["body"] = json.dumps(body)
    answer = module.handler(event, handlers.Context("api"))
    assert answer["statusCode"] == 202, answer
    return logged(capsys.readouterr().out)


def logged(printed: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]


def test_a_request_is_joined_with_its_message_its_dispatch_its_steps_and_its_job(deployed, monkeypatch, capsys, caplog):
    caplog.set_level(logging.INFO)
    submitted_by_the_api(deployed, monkeypatch, capsys)
    [message] = deployed.sqs.receive_message(QueueUrl=deployed.resources["queue_url"])["Messages"]
    sent = json.loads(message["Body"])
    assert sent["correlation_id"] == JOINED
    task_id = sent["task_id"]

    sample = json.loads((handlers.EVENTS / "dispatcher.json").read_text())["Records"][0]
    event = {"Records": [{**sample, "body": message["Body"]}]}
    assert handlers.entry("dispatcher", deployed, monkeypatch).handler(event, handlers.Context("dispatcher")) == {
        "batchItemFailures": []
    }
    assert joined(caplog, "dispatch") == [(task_id, JOINED)]

    state = {"task_id": task_id, "n": sent["n"]}
    for name in ("acquire", "start_job"):
        state = handlers.entry(name, deployed, monkeypatch).handler(state, handlers.Context(name))
        assert state["correlation_id"] == JOINED, name
    assert joined(caplog, "acquire") == joined(caplog, "start_job") == [(task_id, JOINED)]

    capsys.readouterr()
    assert job(deployed, monkeypatch, task_id) == 0
    assert joined(caplog, "job") == [(task_id, JOINED)] * 2
    ends = [line for line in logged(capsys.readouterr().out) if line.get("action") in {"end", "attempt"}]
    assert {line["correlation_id"] for line in ends} == {JOINED}
    tasks = handlers.tasks_of(deployed, monkeypatch)
    assert tasks.reads.get(task_id).status in {Status.FAILURE, Status.RETRY_SCHEDULED}


def joined(caplog: Any, action: str) -> list[tuple[str, str]]:
    """Return task and correlation id of the lines of an action."""
    lines = [vars(record) for record in caplog.records if getattr(record, "action", None) == action]
    return [(line["task_id"], line["correlation_id"]) for line in lines]


def job(deployed: Deployed, monkeypatch: pytest.MonkeyPatch, task_id: str) -> int:
    """Run the driver's main function, whose executors are denied every delete."""

    def denied(_ctx: PurgeContext, _resources: object) -> None:
        raise ObjectStoreDenied("s3://lake/wh/orders")

    spec = importlib.util.spec_from_file_location("run_task", handlers.ROOT / "spark" / "run_task.py")
    driver = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(driver)
    monkeypatch.setattr(driver, "job_tasks", wired_tasks.task_service)
    monkeypatch.setattr("delegation.wiring.spark.job_resources", lambda: None)
    monkeypatch.setattr("delegation.removal.purge.spark.purge_in_session", denied)
    status: int = driver.main(["--task-id", task_id, "--attempt", "1"])
    return status


def test_a_task_without_a_correlation_id_has_none_anywhere(deployed: Deployed, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = handlers.tasks_of(deployed, monkeypatch)
    tasks.reads.store.apply(Create(submitted(TASK_ID, next_scheduled_run_ts=tasks.clock())))
    answer = handlers.invoke("acquire", deployed, monkeypatch)
    assert "correlation_id" not in answer
