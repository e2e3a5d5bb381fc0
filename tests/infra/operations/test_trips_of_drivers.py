"""Work that fails raises its alarms once, whichever driver ran the task, each wired as deployed."""

import dataclasses
import os
import threading
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import boto3
import pytest

from delegation.gateway.drop import tombstones as records
from delegation.gateway.drop.purge_tasks import purge_of, task_id_of
from delegation.gateway.drop.steps import settle_all
from delegation.gateway.drop.store import TombstoneStore, TombstoneTable
from delegation.gateway.drop.tombstones import MovedTable, TombstoneState
from delegation.identifiers import TableIdentifier
from delegation.orchestration.failures import Step
from delegation.polaris.answers import PolarisForbidden, PolarisUnavailable
from delegation.polaris.model import LoadedTable
from delegation.removal.purge import spark as spark_engine
from delegation.removal.purge.run import purge_table
from delegation.removal.purge.task_type import DROP_TASK_TYPE
from delegation.tasks.errors import StoreUnavailable
from delegation.tasks.life.model import Dispatches, Status, Task
from delegation.tasks.life.policy import Lease
from delegation.tasks.stores.base import Create
from delegation.tasks.work.hooks import SPARK
from delegation.tasks.work.worker import WorkerSettings
from delegation.testing.tombstones import HIDDEN, TABLE
from delegation.timestamps import utc_now
from delegation.upkeep.rules.limits import UpkeepSettings
from delegation.wiring import spark as spark_job
from delegation.wiring.drops import drop_steps, required_tombstones
from delegation.wiring.persistent_tasks import count_unreadable
from delegation.wiring.tasks import task_service
from delegation.wiring.upkeep import count_policies, count_wait
from delegation.wiring.worker import worker
from infra.environment.resources import environment
from polaris_persistence.backends.memory import MemoryBackend
from polaris_persistence.catalogs.process import PersistenceProcess
from polaris_persistence.catalogs.realms import RealmCatalog
from polaris_persistence.commits.directories import directory_of
from polaris_persistence.commits.entities import EntityHead
from polaris_persistence.commits.waiting import WAITING_TYPE, WaitingChange, WaitingQueue
from tests.contract.test_tombstone_store import create_tombstone_table
from tests.infra.operations.watched import WatchedTemplate
from tests.kit.tasks.builders import HOUR, submitted
from tests.unit.edge.test_who_asked import undeletable
from tests.unit.handlers import test_handlers as handlers
from tests.unit.handlers.test_handlers import REGION, Deployed, invoke
from tests.unit.upkeep.execution.catalogs import WEEK, UpkeepWorld

deployed = handlers.deployed
Printed = pytest.CaptureFixture[str]
MOVED = MovedTable(table_uuid="u-1", metadata_location="s3://b/m.json", location="s3://b", format_version=2)


class DeployedDrivers:
    """The tables of a deployment with a gateway, and the processes that run its tasks."""

    def __init__(self, deployed: Deployed, monkeypatch: pytest.MonkeyPatch) -> None:
        self.deployed, self.monkeypatch = deployed, monkeypatch
        dynamodb = boto3.client("dynamodb", region_name=REGION)
        table = create_tombstone_table(dynamodb)
        self.records = TombstoneStore(TombstoneTable(dynamodb), table)
        self.environ("run_inline")
        monkeypatch.setenv("DELEGATION_TOMBSTONES_TABLE", table)
        monkeypatch.setattr(spark_job, "job_resources", lambda: None)
        monkeypatch.setattr(spark_engine, "purge_in_session", lambda ctx, _resources: purge_table(ctx))
        self.tasks = task_service()

    def environ(self, function: str) -> None:
        for name, value in environment(function, self.deployed.resources).items():
            self.monkeypatch.setenv(name, value)

    def corrupt_manifest(self) -> str:
        """Store the purge of a table of which a manifest is damaged."""
        lake = self.deployed.world.lake
        manifest = min(uri for uri in lake.below("s3://lake/wh/orders") if uri.endswith("-m0.avro"))
        key = ("lake", manifest.removeprefix("s3://lake/"))
        data = lake.objects[key]
        lake.objects[key] = data[:-40] + b"\xff" * 24 + data[-16:]
        return self.deployed.accept(self.tasks).task_id

    def half_deleted(self) -> str:
        """Store the purge of a table of which a file cannot be deleted."""
        undeletable(self.deployed.world)
        return self.deployed.accept(self.tasks).task_id

    def unreadable_neighbour(self) -> str:
        """Store the purge of a table beside which another one may not be loaded."""
        world = self.deployed.world
        world.lake.create("hidden")
        load = world.tables.load_table

        def allowed(identifier: TableIdentifier, **more: Any) -> LoadedTable:
            if identifier.name == "hidden":
                raise PolarisForbidden("no privilege", status=403)
            return load(identifier, **more)

        self.monkeypatch.setattr(world.tables, "load_table", allowed)
        return self.deployed.accept(self.tasks).task_id

    def refused_drop(self) -> str:
        """Store a drop that is refused, because its tombstone is another table than the caller's."""
        first = records.pending(
            "POLARIS", TABLE, HIDDEN, utc_now(), expected_uuid="u-2", caller="principal:ann", waits=False
        )
        self.records.put(first)
        task_id = task_id_of(first.tombstone_id)
        record = records.renamed(first, MOVED, utc_now(), task_id=task_id, grace=timedelta(0))
        self.records.replace(record, first)
        self.tombstone_id = record.tombstone_id
        times = dict.fromkeys(
            ("received_timestamp", "created_ts", "last_status_change_ts", "next_scheduled_run_ts", "due_at"), utc_now()
        )
        payload = purge_of(record).to_payload()
        task = submitted(
            task_id, task_type=DROP_TASK_TYPE, task_payload=payload, dispatches=Dispatches(count=1), **times
        )
        return self.tasks.reads.store.apply(Create(task)).task_id

    def held(self, task_id: str, owner: str) -> Task:
        return self.tasks.leases.acquire(task_id, owner, lambda now: Lease.lasting(HOUR, now))

    def by_a_worker(self, task_id: str) -> None:
        settings = WorkerSettings("worker:7", timedelta(0))
        for _ in range(2):
            worker(settings, threading.Event())[1].run_once()

    def by_a_function(self, task_id: str) -> None:
        task = self.held(task_id, f"{task_id}-1")
        for step in ("prepare", "run_inline", "complete"):
            if step == "complete" or self.tasks.reads.get(task.task_id).is_held:
                invoke(step, self.deployed, self.monkeypatch, task_id=task_id)

    def by_a_job(self, task_id: str) -> None:
        """Run the driver of a job of a state machine, whose step Complete reads the outcome."""
        self.spark(task_id, f"{task_id}-1")
        for _ in range(2):
            invoke("complete", self.deployed, self.monkeypatch, task_id=task_id)

    def by_a_job_of_a_worker(self, task_id: str) -> None:
        """Run the driver of a job of a worker, which reads the outcome with the same step."""
        self.spark(task_id, "worker:7")
        self.environ("start_job")
        _, made = worker(WorkerSettings("worker:7", timedelta(0)), threading.Event())
        made._engines[SPARK]._steps.complete(  # type: ignore[attr-defined]
            Step(task_id, 1, attempt=1, holder="worker:7")
        )

    def spark(self, task_id: str, owner: str) -> None:
        self.held(task_id, owner)
        self.tasks.writes.change(task_id, lambda task, _now: task.evolve(engine=SPARK))
        spark_job.run_attempt(spark_job.job_tasks(), task_id, 1)


@pytest.fixture
def site(deployed: Deployed, monkeypatch: pytest.MonkeyPatch, watched: WatchedTemplate) -> DeployedDrivers:
    deployed.resources = deployed.resources.replaced(service_name=os.environ["POWERTOOLS_SERVICE_NAME"])
    return DeployedDrivers(deployed, monkeypatch)


DRIVERS = [
    DeployedDrivers.by_a_worker,
    DeployedDrivers.by_a_function,
    DeployedDrivers.by_a_job,
    DeployedDrivers.by_a_job_of_a_worker,
]
FAILURES = {
    "CORRUPT_MANIFEST": (DeployedDrivers.corrupt_manifest, Status.FAILURE, "TasksFailed"),
    "FILES_NOT_DELETED": (DeployedDrivers.half_deleted, Status.FAILURE, "TablesPartlyDeleted"),
    "NEIGHBOUR_UNREADABLE": (DeployedDrivers.unreadable_neighbour, Status.RETRY_SCHEDULED, "PurgesHeld"),
    "TOMBSTONE_REFUSED": (DeployedDrivers.refused_drop, Status.FAILURE, "TombstonesFailed"),
}


@pytest.mark.parametrize("drive", DRIVERS)
@pytest.mark.parametrize("code", FAILURES)
def test_work_that_fails_raises_its_alarm_once(
    code: str,
    drive: Callable[[DeployedDrivers, str], None],
    site: DeployedDrivers,
    watched: WatchedTemplate,
    capsys: Printed,
) -> None:
    fail, status, alarm = FAILURES[code]
    task_id = fail(site)
    drive(site, task_id)
    task = site.tasks.reads.get(task_id)
    assert (task.status, task.error_code) == (status, code)
    printed = capsys.readouterr().out
    assert watched[alarm].values_in(printed) == [1]
    assert watched[alarm].is_raised_by([1])
    assert bool(watched["TablesPartlyDeleted"].values_in(printed)) is (code == "FILES_NOT_DELETED")
    if code == "CORRUPT_MANIFEST":
        assert '"code":"CORRUPT_MANIFEST"' in printed
    if code == "NEIGHBOUR_UNREADABLE":
        assert '"table":"cat.ns.hidden"' in printed
    if code == "TOMBSTONE_REFUSED":
        record = site.records.get(site.tombstone_id)
        assert record is not None
        assert record.state is TombstoneState.FAILED


class Refusing:
    """A catalog that lets the service load nothing."""

    def load_table(self, *_: Any, **__: Any) -> Any:
        raise PolarisForbidden("not authorized")


def test_a_tombstone_that_cannot_be_settled_raises_its_alarm(
    site: DeployedDrivers, watched: WatchedTemplate, capsys: Printed
) -> None:
    catalog: Any = Refusing()
    steps = drop_steps(required_tombstones(site.tasks, catalog))
    began = utc_now() - HOUR
    record = records.pending("POLARIS", TABLE, HIDDEN, began, expected_uuid="u", caller="principal:ann", waits=False)
    site.records.put(record)
    for number in range(records.STUCK_AFTER):
        assert settle_all(steps, lambda: None).troubled == 1
        raised = watched["TombstonesStuck"].is_raised_by(watched["TombstonesStuck"].values_in(capsys.readouterr().out))
        assert raised is (number == records.STUCK_AFTER - 1)
        found = site.records.get(record.tombstone_id)
        assert found is not None
        site.records.replace(found.model_copy(update={"check_at": began, "nonce": f"due-{number}"}), found)


class NoPolicies:
    """A catalog that does not answer."""

    def applicable(self, *_: Any, **__: Any) -> Any:
        raise PolarisUnavailable("no answer")


def test_a_policy_that_is_not_valid_raises_its_alarm(watched: WatchedTemplate, capsys: Printed) -> None:
    upkeep = UpkeepWorld()
    upkeep.write("a", [30.0, 1.0])
    alarm = watched["PoliciesInvalid"]
    for content, is_raised in ((WEEK, False), ("no JSON", True)):
        upkeep.policies.attach(content, "ns")
        count_policies(upkeep.run())
        printed = capsys.readouterr().out
        assert alarm.is_raised_by(alarm.values_in(printed)) is is_raised
        assert ("lake.gov.keep" in printed) is is_raised


def test_a_table_that_waits_for_its_upkeep_raises_its_alarm(watched: WatchedTemplate, capsys: Printed) -> None:
    """The catalog does not answer for the table, so no run is started."""
    upkeep = UpkeepWorld()
    upkeep.write("a", [30.0, 1.0])
    upkeep.policies.attach(WEEK, "ns")
    upkeep.run(settings=UpkeepSettings(at_once=0))
    alarm = watched["UpkeepBehind"]
    for days, is_raised in ((7, False), (2, True)):
        upkeep.later(days=days)
        upkeep.run(policies=NoPolicies(), waited=count_wait)
        printed = capsys.readouterr().out
        assert alarm.is_raised_by(alarm.values_in(printed)) is is_raised
        assert "lake.ns.a" in printed


def test_a_waiting_change_that_does_not_decode_raises_its_alarm(watched: WatchedTemplate, capsys: Printed) -> None:
    """Another process finds it when it commits (issue 32, line 4)."""
    backend = MemoryBackend()
    store = PersistenceProcess(backend, unreadable=count_unreadable).store("r", "c")
    store.create_reference("main")
    queue = WaitingQueue(store, "main", EntityHead)
    queue.add([WaitingChange(reference="main", kind="put", data="a")], store.current_reference("main"))
    for key, one in list(backend._objects.items()):
        if key.type == WAITING_TYPE.name:
            backend._objects[key] = dataclasses.replace(one, value=b"")
    alarm = watched["ChangesUnreadable"]
    names = directory_of(store, "main", RealmCatalog)
    names.create("a", RealmCatalog(space="1"))
    assert alarm.is_raised_by(alarm.values_in(capsys.readouterr().out))
    names.create("b", RealmCatalog(space="2"))
    assert not alarm.is_raised_by(alarm.values_in(capsys.readouterr().out)), "once for each process"


def test_a_worker_without_its_table_raises_its_alarm(
    site: DeployedDrivers, watched: WatchedTemplate, capsys: Printed
) -> None:
    stop = threading.Event()
    _, made = worker(WorkerSettings("worker:7", timedelta(0)), stop)
    failed: list[int] = []

    def unavailable(*_: Any, **__: Any) -> Any:
        failed.append(1)
        if len(failed) == 5:
            stop.set()
        raise StoreUnavailable("the table does not answer")

    made._tasks.reads = SimpleNamespace(due=unavailable)  # type: ignore[assignment]
    made.run()
    alarm = watched["WorkerErrors"]
    assert alarm.is_raised_by(alarm.values_in(capsys.readouterr().out))
