"""Each alarm on a metric of the service is raised by the code that it watches, driven here until it prints that."""

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from delegation.edge.trust.authorizer import AuthorizerDecision
from delegation.gateway.drop.tombstones import Tombstone
from delegation.handlers import authorizer as authorizer_handler
from delegation.handlers import notifier as notifier_handler
from delegation.metrics import MetricLines
from delegation.notifications.delivery import Delivered, DeliveryOutcome
from delegation.tasks.attempt_counts import AttemptCounts
from delegation.tasks.errors import StoreUnavailable
from delegation.tasks.life import transitions as t
from delegation.tasks.life.admission.lanes import Lane, Traits
from delegation.tasks.life.model import Caller, Status, Task
from delegation.tasks.life.outcomes import AttemptError, ErrorClass
from delegation.tasks.life.policy import STORE_MAINTENANCE, Policies
from delegation.tasks.pauses.control import PauseControl
from delegation.tasks.pauses.dynamodb import DynamoDbPauseStore
from delegation.tasks.pauses.model import EVERYTHING
from delegation.tasks.stores.base import Create
from delegation.tasks.stores.memory import MemoryTaskStore
from delegation.tasks.work.behaviors import Behavior, Behaviors, FunctionBehavior
from delegation.tasks.work.dispatch_queue import NoDispatchQueue
from delegation.tasks.work.maintenance import TaskMaintenance
from delegation.tasks.work.service import TaskService
from delegation.tasks.work.worker import Worker, WorkerSettings
from delegation.timestamps import utc_now
from delegation.wiring.deployment import deployment
from delegation.wiring.gateway.drop import count_failed
from delegation.wiring.maintenance import store_maintenance
from delegation.wiring.tasks import count_partly_deleted, ending_lines
from delegation.wiring.worker import count_idle
from tests.infra.operations.watched import WatchedTemplate
from tests.unit.edge.test_who_asked import undeletable
from tests.unit.edge.trust.pki import SUBJECT
from tests.unit.edge.world import World
from tests.unit.handlers import test_handlers as handlers
from tests.unit.handlers.test_handlers import Deployed, EmrWithoutRuns
from tests.unit.operations.purge.lake import busy_table
from tests.unit.tasks.builders import HOUR, Clock, acquired, submitted
from tests.unit.tasks.work.site import Sum, Total

deployed = handlers.deployed
Printed = pytest.CaptureFixture[str]
LANE = Lane.of("TABLE_PURGE", Traits("sales")).text


def world_with_orders() -> World:
    world = World()
    busy_table(world.lake, "orders")
    world.tasks._ended = ending_lines()
    world.tasks._left_partly_done = count_partly_deleted
    return world


def test_a_corrupt_manifest_raises_the_alarm_of_failed_work(watched: WatchedTemplate, capsys: Printed) -> None:
    world = world_with_orders()
    manifest = min(uri for uri in world.lake.below("s3://lake/wh/orders") if uri.endswith("-m0.avro"))
    key = ("lake", manifest.removeprefix("s3://lake/"))
    data = world.lake.objects[key]
    world.lake.objects[key] = data[:-40] + b"\xff" * 24 + data[-16:]
    task = world.tasks.get(world.execute(world.body("orders")).task_id)
    assert (task.status, task.error_code) == (Status.FAILURE, "CORRUPT_MANIFEST")
    printed = capsys.readouterr().out
    assert '"code":"CORRUPT_MANIFEST"' in printed
    assert watched["TasksFailed"].is_raised_by(watched["TasksFailed"].values_in(printed))
    assert not watched["TablesPartlyDeleted"].values_in(printed)


def test_a_half_deleted_table_raises_its_own_alarm(watched: WatchedTemplate, capsys: Printed) -> None:
    world = world_with_orders()
    undeletable(world)
    world.execute(world.body("orders"))
    alarm = watched["TablesPartlyDeleted"]
    assert alarm.is_raised_by(alarm.values_in(capsys.readouterr().out))


def test_a_dropped_table_whose_purge_failed_raises_its_alarm(watched: WatchedTemplate, capsys: Printed) -> None:
    count_failed(Tombstone.model_construct(tombstone_id="1a13505e", task_id=None))
    alarm = watched["TombstonesFailed"]
    assert alarm.is_raised_by(alarm.values_in(capsys.readouterr().out))


class Site:
    """A task table in memory, whose service counts as that of a worker does."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.store = MemoryTaskStore()
        lines = MetricLines.of_environment()
        self.tasks = TaskService(
            self.store,
            Policies.from_properties({}),
            NoDispatchQueue(),
            clock=self.clock,
            ended=ending_lines(),
            counted=AttemptCounts(lines),
        )

    def worker(self, work: Callable[..., Any]) -> Worker:
        behavior = FunctionBehavior(self.tasks, Behavior("TABLE_PURGE", Sum, work, result=Total))
        return Worker(self.tasks, Behaviors([behavior]), WorkerSettings("worker:7", timedelta(0)), idle=count_idle)


def test_a_plain_workers_failure_raises_the_alarm_of_failed_work(watched: WatchedTemplate, capsys: Printed) -> None:
    site = Site()
    site.store.apply(Create(submitted(task_payload="{}", due_at=site.clock.now)))

    def work(_parameters: Sum, _run: Any) -> Total:
        raise PermissionError("the bucket refuses")

    for _ in range(20):
        site.worker(work).run_once()
        site.clock.advance(timedelta(days=1))
    alarm = watched["TasksFailed"]
    assert alarm.is_raised_by(alarm.values_in(capsys.readouterr().out))


def test_a_worker_without_its_table_raises_its_alarm(watched: WatchedTemplate, capsys: Printed) -> None:
    site, stop = Site(), threading.Event()
    worker = site.worker(lambda *_: None)
    worker._stop = stop
    failed: list[int] = []

    def unavailable(*_: Any, **__: Any) -> Any:
        failed.append(1)
        if len(failed) == 5:
            stop.set()
        raise StoreUnavailable("the table does not answer")

    site.tasks.due = unavailable  # type: ignore[method-assign]
    worker.run()
    alarm = watched["WorkerErrors"]
    assert alarm.is_raised_by(alarm.values_in(capsys.readouterr().out))


def test_throttled_attempts_raise_their_alarm(watched: WatchedTemplate, capsys: Printed) -> None:
    site = Site()
    for _ in range(10):
        head = site.store.apply(Create(acquired(submitted())))
        site.tasks.end_attempt(head.task_id, 1, AttemptError("SLOW_DOWN", "slow down", ErrorClass.THROTTLED))
    alarm = watched["Throttled"]
    assert alarm.is_raised_by(alarm.values_in(capsys.readouterr().out))


def stored(deployed: Deployed, monkeypatch: pytest.MonkeyPatch, *tasks: Task) -> None:
    """Store heads as other processes wrote them."""
    store = handlers.tasks_of(deployed, monkeypatch)._store
    for task in tasks:
        store.apply(Create(task))


def swept(deployed: Deployed, monkeypatch: pytest.MonkeyPatch, watched: WatchedTemplate, capsys: Printed) -> str:
    """Run the sweeper's handler once and return what it printed, with the variables of the template for metrics."""
    module = handlers.entry("sweeper", deployed, monkeypatch)
    watched.environ("sweeper", monkeypatch)
    capsys.readouterr()
    module.handler({}, handlers.Context("sweeper"))
    return capsys.readouterr().out


def ago(**past: float) -> dict[str, datetime]:
    """Return the times of a task that was received so long ago, and is due."""
    then = utc_now() - timedelta(**past)
    names = ("received_timestamp", "created_ts", "last_status_change_ts", "next_scheduled_run_ts")
    return {**dict.fromkeys(names, then), "due_at": utc_now()}


def held(now: datetime, **past: float) -> Task:
    """Return a task that a process has been running for so long, and still holds."""
    first = submitted(**ago(**past))
    return acquired(first, now=now - timedelta(**past), lease=timedelta(**past) + HOUR)


def expired(count: int) -> list[Task]:
    """Return held tasks whose leases have just ended."""
    then = utc_now() - 2 * HOUR
    times = dict.fromkeys(("received_timestamp", "created_ts", "last_status_change_ts", "next_scheduled_run_ts"), then)
    return [acquired(submitted(**times), now=then, lease=HOUR) for _ in range(count)]


BACKLOGS: dict[str, Callable[[], list[Task]]] = {
    "DispatchesUnanswered": lambda: [submitted(dispatch_count=1, **ago(minutes=2)) for _ in range(3)],
    "DispatchFailed": lambda: [submitted(dispatch_count=20, **ago(minutes=2))],
    "TasksLost": lambda: expired(3),
    "LeaseAge": lambda: [held(utc_now(), hours=14)],
    "UnfinishedTasks": lambda: [held(utc_now(), hours=25)],
    "WaitingTasks": lambda: [t.queued(submitted(**ago(hours=5)), LANE, utc_now()).evolve(due_at=utc_now() + HOUR)],
}


@pytest.mark.parametrize("name", BACKLOGS)
def test_the_sweeper_raises_the_alarm_of_what_it_finds(
    name: str, deployed: Deployed, monkeypatch: pytest.MonkeyPatch, watched: WatchedTemplate, capsys: Printed
) -> None:
    properties = {"delegation.limits.all": "5"} if name == "WaitingTasks" else {}
    deployed.resources = replace(deployed.resources, properties=properties)
    quiet = watched[name].values_in(swept(deployed, monkeypatch, watched, capsys))
    assert not watched[name].is_raised_by(quiet)
    stored(deployed, monkeypatch, *BACKLOGS[name]())
    assert watched[name].is_raised_by(watched[name].values_in(swept(deployed, monkeypatch, watched, capsys)))


def test_maintenance_that_does_not_end_raises_its_alarm(
    deployed: Deployed, monkeypatch: pytest.MonkeyPatch, watched: WatchedTemplate, capsys: Printed
) -> None:
    handlers.tasks_of(deployed, monkeypatch)
    task_id = store_maintenance(deployment()).task_id(TaskMaintenance())
    old = submitted(task_id, task_type=STORE_MAINTENANCE, recurrence_seconds=3600, **ago(hours=25))
    stored(deployed, monkeypatch, old)
    alarm = watched["MaintenanceAge"]
    assert alarm.is_raised_by(alarm.values_in(swept(deployed, monkeypatch, watched, capsys)))


def test_sweeps_that_fail_for_some_tasks_raise_their_alarm_after_three_periods(
    deployed: Deployed, monkeypatch: pytest.MonkeyPatch, watched: WatchedTemplate, capsys: Printed
) -> None:
    stored(deployed, monkeypatch, *expired(5))

    def throttled(_client: EmrWithoutRuns, **_arguments: Any) -> dict[str, Any]:
        raise ClientError({"Error": {"Code": "ThrottlingException"}}, "ListJobRuns")

    monkeypatch.setattr(EmrWithoutRuns, "list_job_runs", throttled)
    alarm = watched["SweepErrors"]
    periods = [alarm.values_in(swept(deployed, monkeypatch, watched, capsys)) for _ in range(3)]
    assert not alarm.is_raised_by(*periods[:2])
    assert alarm.is_raised_by(*periods)


def test_a_pause_raises_the_alarm_that_says_so(
    deployed: Deployed, monkeypatch: pytest.MonkeyPatch, watched: WatchedTemplate, capsys: Printed
) -> None:
    store = handlers.tasks_of(deployed, monkeypatch)._store
    control = PauseControl(DynamoDbPauseStore(store.dynamodb, store.table), utc_now)
    control.pause(EVERYTHING, by=Caller(client_id="ops"), reason="Polaris is upgraded")
    alarm = watched["Paused"]
    assert alarm.is_raised_by(alarm.values_in(swept(deployed, monkeypatch, watched, capsys)))
    control.resume(EVERYTHING)
    assert not alarm.is_raised_by(alarm.values_in(swept(deployed, monkeypatch, watched, capsys)))


def test_a_dispatcher_without_its_state_machine_raises_its_alarm(
    deployed: Deployed, monkeypatch: pytest.MonkeyPatch, watched: WatchedTemplate, capsys: Printed
) -> None:
    deployed.states.delete_state_machine(stateMachineArn=deployed.resources.state_machine_arn)
    module = handlers.entry("dispatcher", deployed, monkeypatch)
    watched.environ("dispatcher", monkeypatch)
    record = json.loads((handlers.EVENTS / "dispatcher.json").read_text())["Records"][0]
    event = {"Records": [{**record, "messageId": str(n)} for n in range(5)]}
    assert len(module.handler(event, handlers.Context("dispatcher"))["batchItemFailures"]) == 5
    alarm = watched["DispatchErrors"]
    assert alarm.is_raised_by(alarm.values_in(capsys.readouterr().out))


class AdmittingAuthorizer:
    """Admits a certificate that ends at `expires`."""

    def __init__(self, expires: datetime) -> None:
        self.expires = expires

    def decide(self, _event: Any) -> AuthorizerDecision:
        return AuthorizerDecision({"context": {"certificate_subject": SUBJECT}}, expires=self.expires)


@pytest.mark.parametrize(("days", "raised"), [(12, True), (200, False)])
def test_a_certificate_that_expires_soon_raises_its_alarm_and_is_measured_once_an_hour(
    days: int, raised: bool, monkeypatch: pytest.MonkeyPatch, watched: WatchedTemplate, capsys: Printed
) -> None:
    watched.environ("authorizer", monkeypatch)
    monkeypatch.setattr(authorizer_handler, "_measured", {})
    authorizer = AdmittingAuthorizer(utc_now() + timedelta(days=days))
    monkeypatch.setattr(authorizer_handler, "authorizer", lambda: authorizer)
    for _ in range(2):
        authorizer_handler.handler({}, handlers.Context("authorizer"))
    values = watched["CertificateExpires"].values_in(capsys.readouterr().out)
    assert len(values) == 1
    assert watched["CertificateExpires"].is_raised_by(values) is raised


class OneOutcome:
    """A notifier whose every delivery ends alike."""

    def __init__(self, outcome: DeliveryOutcome) -> None:
        self.outcome = outcome

    def take(self, _message: Any) -> Delivered:
        return Delivered(self.outcome)


@pytest.mark.parametrize(
    ("outcome", "metric", "count"),
    [(DeliveryOutcome.DEAD, "NotificationsDead", 1), (DeliveryOutcome.FAILED, "NotificationsFailed", 10)],
)
def test_the_notifier_prints_what_its_alarms_watch(
    outcome: DeliveryOutcome, metric: str, count: int, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    """The alarms themselves are in the template only where ends of tasks owe notifications."""
    from infra.operations.alarms import NOTIFICATION_ALARMS

    monkeypatch.setattr(notifier_handler, "notifier", lambda: OneOutcome(outcome))
    record = json.loads((handlers.EVENTS / "notifier.json").read_text())["Records"][0]
    event = {"Records": [{**record, "messageId": str(n)} for n in range(count)]}
    notifier_handler.handler(event, handlers.Context("notifier"))
    [line] = [json.loads(line) for line in capsys.readouterr().out.splitlines() if '"_aws"' in line]
    [rule] = [rule for rule in NOTIFICATION_ALARMS if getattr(rule.source, "name", None) == metric]
    assert sum(line[metric]) >= rule.threshold


def test_the_sweeper_measures_without_a_scan(
    deployed: Deployed, monkeypatch: pytest.MonkeyPatch, watched: WatchedTemplate, capsys: Printed
) -> None:
    called: list[str] = []
    make = deployed.client

    def noted(service: str, **config: Any) -> Any:
        client = make(service, **config)
        if service == "dynamodb":
            client.meta.events.register("before-call.dynamodb.*", lambda model, **_: called.append(model.name))
        return client

    monkeypatch.setattr(handlers.clients.boto3, "client", noted)
    swept(deployed, monkeypatch, watched, capsys)
    assert called
    assert "Scan" not in called
