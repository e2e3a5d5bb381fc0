"""The demo's tables: how long its store and the task of its policy are waited for, and that it is a trial."""

import json
from types import SimpleNamespace

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from delegation.identifiers import TableIdentifier
from delegation.upkeep.rules.limits import UpkeepLimits, UpkeepSettings
from delegation.upkeep.rules.model import PolicyType
from infra.local.demo import tables
from infra.local.options import StackOptions

VISITS = TableIdentifier("lake", ("shop",), "visits")


class FakeService:
    """Lists no task before the `after`-th call; its sleeps move its clock."""

    def __init__(self, after: int) -> None:
        self.now = 0.0
        self.asked: list[dict[str, str]] = []
        self._after = after

    def list(self, **filters: str) -> list[SimpleNamespace]:
        self.asked.append(filters)
        return [SimpleNamespace(task_id="t")] if len(self.asked) > self._after else []

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def started(service: FakeService, timeout: float) -> str:
    return tables.started_task(service, VISITS, timeout_seconds=timeout, clock=service.clock, sleep=service.sleep)


def test_the_task_of_the_pass_is_waited_for() -> None:
    service = FakeService(after=3)
    assert started(service, 300) == "t"
    assert service.asked == [{"type": "TABLE_EXPIRE_SNAPSHOTS", "table": "lake.shop.visits"}] * 4
    assert service.now == 1.5


def test_a_pass_that_starts_nothing_in_time_is_an_error() -> None:
    with pytest.raises(tables.PolicyWithoutEffect, match=r"lake.shop.visits within 10 s"):
        started(FakeService(after=1000), 10)


def test_a_stack_with_the_properties_executes_policies_every_few_seconds() -> None:
    properties = StackOptions(properties=tables.trial_properties("lake")).all_properties()
    assert UpkeepSettings.from_properties(properties).interval.total_seconds() == 5
    limits = UpkeepLimits.from_properties(properties)
    assert list(limits.types) == [PolicyType.SNAPSHOT_EXPIRY]
    assert limits.include == (("lake",),)


@pytest.mark.parametrize(("parameters", "policy"), [({}, None), ({"policy": "lake.shop.keep"}, "lake.shop.keep")])
def test_a_task_names_the_policy_that_asked_for_it(parameters, policy) -> None:
    view = SimpleNamespace(task_payload=json.dumps({"operation_parameters": parameters}))
    assert tables.policy_of(view) == policy


def test_a_slow_store_is_waited_for(monkeypatch):
    """pyarrow stops waiting after three seconds by default, and ended the demo of a busy machine."""
    given = {}
    monkeypatch.setattr("pyarrow.fs.S3FileSystem", lambda **options: given.update(options))
    PyArrowFileIO({"s3.endpoint": "http://127.0.0.1:1", **tables.PATIENCE}).fs_by_scheme("s3", "warehouse")
    assert min(given["connect_timeout"], given["request_timeout"]) >= 60
