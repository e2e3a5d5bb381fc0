"""A synchronous purge in a catalog whose tables cannot all be loaded within the call: docs/limits.md, by the edge."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from aws_lambda_powertools import Logger

from delegation.edge.api.app import create_app
from delegation.metrics import MetricLines
from delegation.removal.purge.requests import ReferenceSettings
from delegation.tasks.life.model import Status
from tests.kit.lakes.lake import busy_table
from tests.kit.worlds.indexed import IndexedWorld
from tests.kit.worlds.service import REALM
from tests.unit.edge.conftest import dependencies, header
from tests.unit.edge.gateway import Context, request

EXECUTE = "/v1/tasks/execute/synchronous"
LOADS_A_SECOND = 2


class Edge(IndexedWorld):
    """The service behind its API; of its catalog a pass loads two tables a second."""

    def __init__(self, tables: int) -> None:
        super().__init__()
        busy_table(self.lake, "t")
        for number in range(tables - 1):
            self.other.create(f"other{number:03}")
        self.become(replace(self.behavior, reference_settings=ReferenceSettings(loads_per_second=LOADS_A_SECOND)))
        deps = dependencies(self.submissions, self.tasks, realm=REALM, clock=self.clock)
        self._handle = create_app(deps, logger=Logger(service="edge"), metrics=MetricLines("Delegation", "api"))

    def call(self, body: dict[str, Any], key: str) -> dict[str, Any]:
        self.calls += 1
        event = request("POST", EXECUTE, body, headers={"Idempotency-Key": key})
        return self._handle(event, Context(aws_request_id=f"call-{self.calls}"))

    def refresh(self) -> None:
        """Make the catalog's first pass, which loads each table twice."""
        self.behavior.refresher(self.index, "recurring", lambda: None).ensure_fresh("cat", timedelta(minutes=15))


def test_a_call_that_a_pass_outlasts_gets_409_in_time_and_its_repetition_the_outcome() -> None:
    edge = Edge(200)
    edge.refresh()
    body, began = edge.body("t"), edge.clock()
    files = edge.lake.below("s3://lake/wh/t/")
    first = edge.call(body, "key-of-the-drop")
    problem = json.loads(first["body"])
    assert (first["statusCode"], problem["error_code"]) == (409, "request_in_progress")
    assert int(header(first, "Retry-After") or 0) >= 1
    assert edge.clock() - began <= timedelta(seconds=25)
    # The caller may not drop the table yet: nothing of it is deleted.
    assert edge.lake.below("s3://lake/wh/t/") == files
    edge.drive()
    second = edge.call(body, "key-of-the-drop")
    assert (second["statusCode"], json.loads(second["body"])["status"]) == (200, "COMPLETED_SUCCESS")
    assert not edge.lake.below("s3://lake/wh/t/")
    (task_id,) = {key.split("/")[0] for key in edge.plans.keys("") if key.endswith("receipt.json")}
    task = edge.tasks.reads.get(task_id)
    assert (task.status, task.unexcused_attempts) == (Status.SUCCESS, 1)


@pytest.mark.parametrize("tables", [10, 20])
def test_a_call_whose_pass_ends_within_its_time_gets_the_outcome(tables: int) -> None:
    edge = Edge(tables)
    edge.refresh()
    answer = edge.call(edge.body("t"), "key")
    assert (answer["statusCode"], json.loads(answer["body"])["status"]) == (200, "COMPLETED_SUCCESS")
    assert not edge.lake.below("s3://lake/wh/t/")
