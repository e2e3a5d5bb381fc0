"""Each end of a task is one line, which CloudWatch reads as metrics, whichever process wrote it."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from delegation.metrics import TASKS_SWEPT, MetricLines
from delegation.removal.purge.task_type import PURGE
from delegation.tasks.endings import OTHER, AttemptCounts, EndingLines
from delegation.tasks.life.declared import TaskTypes
from delegation.tasks.life.model import Labels, Status
from delegation.tasks.life.outcomes import AttemptError, ErrorClass
from delegation.tasks.life.policy import Lease
from delegation.tasks.stores.base import Create
from delegation.tasks.work.hooks import uncounted
from delegation.wiring.tasks import known_codes
from tests.kit.tasks.builders import HOUR, Clock, submitted
from tests.kit.tasks.services import task_service

DENIED = AttemptError("STORAGE_DENIED", "the bucket refuses", ErrorClass.PERMANENT)
PASSING = AttemptError("SLOW_DOWN", "slow down", ErrorClass.TRANSIENT)


class Scene:
    def __init__(self, *, attempts: bool = False, **fields: Any) -> None:
        self.clock = Clock()
        lines = MetricLines("PolarisDelegation", "polaris-delegation")
        labelled = replace(PURGE, labels=lambda _payload: Labels(target="cat.ns.orders", correlation_id="request-7"))
        types = TaskTypes([labelled])
        self.tasks = task_service(
            clock=self.clock,
            ended=EndingLines(lines, types, codes=lambda: {"STORAGE_DENIED", "LOST", "CANCELLED"}),
            counted=AttemptCounts(lines, types) if attempts else uncounted,
        )
        self.id = self.tasks.reads.store.apply(Create(submitted(**fields))).task_id

    def acquired(self) -> "Scene":
        self.tasks.leases.acquire(self.id, "w", lambda now: Lease.lasting(HOUR, now))
        self.clock.now += timedelta(seconds=90)
        return self


def printed(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def metrics_of(line: dict[str, Any]) -> tuple[set[tuple[str, ...]], set[str]]:
    [directive] = line["_aws"]["CloudWatchMetrics"]
    assert directive["Namespace"] == "PolarisDelegation"
    return {tuple(sorted(one)) for one in directive["Dimensions"]}, {one["Name"] for one in directive["Metrics"]}


def test_a_failure_is_one_line_with_its_table_and_its_code(capsys: pytest.CaptureFixture[str]) -> None:
    scene = Scene().acquired()
    scene.tasks.leases.end_attempt(scene.id, 1, DENIED)
    [line] = printed(capsys)
    said = {name: line[name] for name in ("level", "table", "error_code", "correlation_id", "attempt", "seconds")}
    assert said == {
        "level": "ERROR",
        "table": "cat.ns.orders",
        "error_code": "STORAGE_DENIED",
        "correlation_id": "request-7",
        "attempt": 1,
        "seconds": 90.0,
    }
    dimensions, names = metrics_of(line)
    assert dimensions == {("service",), ("code", "kind", "service")}
    assert names == {"TasksEndedInFailure", "TaskSeconds", "FilesDeleted", "BytesDeleted"}
    assert (line["code"], line["kind"], line["TasksEndedInFailure"]) == ("STORAGE_DENIED", "TABLE_PURGE", [1.0])


def test_a_success_says_how_much_was_deleted_and_a_wrong_detail_breaks_no_write(capsys: Any) -> None:
    for files, shown in ((12, [12]), ("twelve", [0.0])):
        scene = Scene(recurrence_seconds=3600).acquired()
        ended = scene.tasks.leases.succeed(scene.id, 1, "done", details={"files_deleted": files, "bytes_deleted": 4096})
        [line] = printed(capsys)
        assert (line["level"], line["status"], line["FilesDeleted"]) == ("INFO", "SUCCESS", shown)
        assert (line["BytesDeleted"], ended.status) == ([4096], Status.SUBMITTED)
        assert "TasksSucceeded" in metrics_of(line)[1]


def lost(scene: Scene) -> None:
    scene.clock.now += timedelta(days=1)
    for _ in range(20):
        scene.tasks.dispatching.presume_lost(scene.id)
        if scene.tasks.reads.get(scene.id).is_terminal:
            return
        scene.clock.now += timedelta(days=1)
        scene.acquired()
        scene.clock.now += timedelta(days=1)


@pytest.mark.parametrize(
    ("end", "metric", "code"),
    [
        (lambda scene: scene.tasks.operators.cancel(scene.id), "TasksCancelled", "CANCELLED"),
        (lambda scene: lost(scene.acquired()), "TasksEndedInFailure", "LOST"),
    ],
    ids=["cancelled before it ran", "lost by every holder"],
)
def test_ends_that_no_work_wrote_have_their_line(capsys, end, metric, code):
    scene = Scene()
    end(scene)
    [line] = printed(capsys)
    assert (line["error_code"], metric in metrics_of(line)[1]) == (code, True)


def test_what_is_no_end_has_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    scene = Scene().acquired()
    scene.tasks.leases.note(scene.id, 1, details={"files_deleted": 1})
    scene.tasks.leases.end_attempt(scene.id, 1, PASSING)
    assert printed(capsys) == []


@pytest.mark.parametrize(("kind", "shown"), [("acme.report", OTHER), ("TABLE_PURGE", "TABLE_PURGE")])
def test_a_code_that_the_catalogue_does_not_have_is_no_dimension(capsys: Any, kind: str, shown: str) -> None:
    """Each value of a dimension is a metric that costs; the line has the code all the same."""
    scene = Scene(task_type=kind).acquired()
    scene.tasks.leases.end_attempt(scene.id, 1, AttemptError("ACME_1234", "no", ErrorClass.PERMANENT))
    [line] = printed(capsys)
    assert (line["kind"], line["code"], line["error_code"]) == (shown, OTHER, "ACME_1234")


def test_the_deployment_knows_the_codes_of_its_own_tasks() -> None:
    assert {"LOST", "CANCELLED", "DISPATCH_FAILED", "JOB_FAILED"} <= set(known_codes())


def test_attempts_are_counted_as_they_begin_are_retried_throttled_and_lost(capsys: Any) -> None:
    scene = Scene(attempts=True).acquired()
    scene.tasks.leases.end_attempt(scene.id, 1, PASSING)
    scene.clock.now += timedelta(days=1)
    scene.acquired().tasks.leases.end_attempt(scene.id, 2, AttemptError("SLOW_DOWN", "slow", ErrorClass.THROTTLED))
    scene.clock.now += timedelta(days=1)
    scene.acquired()
    scene.clock.now += timedelta(days=1)
    scene.acquired()  # a take-over in one write is a loss and a start
    scene.clock.now += timedelta(days=1)
    scene.tasks.dispatching.presume_lost(scene.id)
    lines = printed(capsys)
    start = {"AttemptsStarted"}
    throttled, lost = {"AttemptsThrottled", "AttemptsRetried"}, {"TasksLost", "AttemptsRetried"}
    counted = [metrics_of(line)[1] for line in lines]
    assert counted == [start, {"AttemptsRetried"}, start, throttled, start, lost, start, lost]
    assert "error_code" not in lines[0]
    assert [lines[3][name] for name in ("table", "error_code", "attempt")] == ["cat.ns.orders", "SLOW_DOWN", 2]


def test_a_renewed_lease_counts_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    scene = Scene(attempts=True).acquired()
    capsys.readouterr()
    scene.tasks.leases.heartbeat(scene.id, 1, lambda now: Lease.lasting(HOUR, now))
    scene.tasks.leases.start(scene.id, 1)
    assert printed(capsys) == []


def test_a_line_has_only_the_dimensions_of_its_metrics() -> None:
    lines = MetricLines("PolarisDelegation", "polaris-delegation")
    with pytest.raises(ValueError, match="TasksSwept has the dimensions"):
        lines.put({TASKS_SWEPT: 1}, by={"task_id": "1a13505e"})
