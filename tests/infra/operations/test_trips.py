"""Each alarm on a metric of the service is raised by the code that it watches, driven here until it prints that."""

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from delegation.edge.trust.authorizer import AuthorizerDecision
from delegation.handlers import authorizer as authorizer_handler
from delegation.metrics import MetricLines
from delegation.tasks.endings import AttemptCounts
from delegation.tasks.life import transitions as t
from delegation.tasks.life.lanes import Lane, Traits
from delegation.tasks.life.model import Caller, Dispatches, Task
from delegation.tasks.life.outcomes import AttemptError, ErrorClass
from delegation.tasks.life.policy import STORE_MAINTENANCE
from delegation.tasks.pauses import EVERYTHING, PauseControl
from delegation.tasks.stores.base import Create
from delegation.tasks.stores.dynamodb import DynamoDbPauseStore
from delegation.tasks.stores.memory import MemoryTaskStore
from delegation.tasks.work.maintenance import TaskMaintenance
from delegation.timestamps import utc_now
from delegation.wiring.deployment import deployment
from delegation.wiring.maintenance import store_maintenance
from delegation.wiring.tasks import ending_lines
from tests.infra.operations.watched import WatchedTemplate
from tests.kit.tasks.builders import HOUR, Clock, acquired, submitted
from tests.kit.tasks.services import task_service
from tests.unit.edge.trust.pki import SUBJECT
from tests.unit.handlers import test_handlers as handlers
from tests.unit.handlers.test_handlers import Deployed, EmrWithoutRuns
from tests.unit.items.test_each_item import ItemLoop

deployed = handlers.deployed
Printed = pytest.CaptureFixture[str]
LANE = Lane.of("TABLE_PURGE", Traits("sales")).text


class CountedTasks:
    """A task table in memory, whose service counts as that of a worker does."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.store = MemoryTaskStore()
        lines = MetricLines.of_environment()
        self.tasks = task_service(self.store, clock=self.clock, ended=ending_lines(), counted=AttemptCounts(lines))


def test_throttled_attempts_raise_their_alarm(watched: WatchedTemplate, capsys: Printed) -> None:
    site = CountedTasks()
    for _ in range(10):
        head = site.store.apply(Create(acquired(submitted())))
        site.tasks.leases.end_attempt(head.task_id, 1, AttemptError("SLOW_DOWN", "slow down", ErrorClass.THROTTLED))
    alarm = watched["Throttled"]
    assert alarm.is_raised_by(alarm.values_in(capsys.readouterr().out))


def stored(deployed: Deployed, monkeypatch: pytest.MonkeyPatch, *tasks: Task) -> None:
    """Store heads as other processes wrote them."""
    store = handlers.tasks_of(deployed, monkeypatch).reads.store
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
    "DispatchesUnanswered": lambda: [submitted(dispatches=Dispatches(count=1), **ago(minutes=2)) for _ in range(3)],
    "DispatchFailed": lambda: [submitted(dispatches=Dispatches(count=20), **ago(minutes=2))],
    "TasksLost": lambda: expired(3),
    "LeaseAge": lambda: [held(utc_now(), hours=20)],
    "UnfinishedTasks": lambda: [held(utc_now(), hours=25)],
    "WaitingTasks": lambda: [t.queued(submitted(**ago(hours=5)), LANE, utc_now()).evolve(due_at=utc_now() + HOUR)],
}


@pytest.mark.parametrize("name", BACKLOGS)
def test_the_sweeper_raises_the_alarm_of_what_it_finds(
    name: str, deployed: Deployed, monkeypatch: pytest.MonkeyPatch, watched: WatchedTemplate, capsys: Printed
) -> None:
    properties = {"delegation.limits.all": "5"} if name == "WaitingTasks" else {}
    deployed.resources = deployed.resources.replaced(properties=properties)
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


def test_an_item_that_fails_for_a_day_raises_its_alarm(watched: WatchedTemplate, capsys: Printed) -> None:
    loop, alarm = ItemLoop(lambda item: item == 3), watched["ItemsSetAside"]
    for days, is_raised in ((0, False), (1, True)):
        loop.clock.advance(timedelta(days=days))
        loop.run()
        printed = capsys.readouterr().out
        assert alarm.is_raised_by(alarm.values_in(printed)) is is_raised
        assert ("test.loop" in printed) is is_raised


def test_a_pause_raises_the_alarm_that_says_so(
    deployed: Deployed, monkeypatch: pytest.MonkeyPatch, watched: WatchedTemplate, capsys: Printed
) -> None:
    store = handlers.tasks_of(deployed, monkeypatch).reads.store
    control = PauseControl(DynamoDbPauseStore(store.dynamodb, store.table), utc_now)
    control.pause(EVERYTHING, by=Caller(client_id="ops"), reason="Polaris is upgraded")
    alarm = watched["Paused"]
    assert alarm.is_raised_by(alarm.values_in(swept(deployed, monkeypatch, watched, capsys)))
    control.resume(EVERYTHING)
    assert not alarm.is_raised_by(alarm.values_in(swept(deployed, monkeypatch, watched, capsys)))


def test_a_dispatcher_without_its_state_machine_raises_its_alarm(
    deployed: Deployed, monkeypatch: pytest.MonkeyPatch, watched: WatchedTemplate, capsys: Printed
) -> None:
    deployed.states.delete_state_machine(stateMachineArn=deployed.resources["state_machine_arn"])
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
