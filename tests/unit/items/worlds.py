"""For each loop of the service a world with good items among bad ones, and which of the good ones it served."""

from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import datetime, timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import pytest

from delegation.gateway.drop.tombstones import TombstoneState, pending
from delegation.handlers import dispatcher, sweeper
from delegation.idempotency.keys import State
from delegation.idempotency.store import Record, RecordUpkeep, RecordWrite
from delegation.identifiers import TableIdentifier
from delegation.notifications.delivery import Delivered, Notifier, deliver_due
from delegation.notifications.queue import announce, parse
from delegation.orchestration.sweep import sweep, unfinished
from delegation.references import blocking
from delegation.references.blocking import Blocking, Exemption, HeldPurge, LocatedTable, Subject
from delegation.references.model import LostRefs
from delegation.references.recurring import RecurringCatalog, ensure_each_submitted, reference_index
from delegation.references.store import ReferenceStore
from delegation.removal.expiry.requests import TableExpiry
from delegation.removal.expiry.task_type import TASK_TYPE
from delegation.removal.lost_refs import LostRefsKeeper
from delegation.removal.orphans.requests import TableOrphans
from delegation.removal.purge.indexed import release
from delegation.rewrites.shared_job import release_former
from delegation.rewrites.task_type import COMPACTION_TASK_TYPE
from delegation.storage.memory import MemoryPlanStore
from delegation.tasks.admission import Admission
from delegation.tasks.life.lanes import Caps
from delegation.tasks.life.model import Task
from delegation.tasks.life.notifications import NotificationPolicy, NotificationState, Receiver
from delegation.tasks.life.policy import Lease
from delegation.tasks.stores import notifications as stored
from delegation.tasks.stores.base import Advance, Create
from delegation.tasks.work.worker import DueHints, lease_next_available_task
from delegation.upkeep.execution.kinds import KeptTables
from delegation.upkeep.execution.passes import run_kinds
from delegation.upkeep.execution.sweeps import TASK_TYPE as SWEEP_TYPE
from delegation.upkeep.execution.sweeps import OrphanSweeps
from delegation.upkeep.health import refresh as health_refresh
from delegation.upkeep.health import store as health_store
from delegation.upkeep.health.model import TableHealth
from delegation.upkeep.health.store import HealthStore, health_item
from delegation.upkeep.rules.limits import UpkeepSettings
from delegation.upkeep.schedule import Amount, Choice, UpkeepNeed, Waits
from delegation.wiring.notifier import _run
from polaris_common.dynamodb import to_item
from tests.contract.task_tables import moto, moto_task_store, record_store
from tests.contract.test_reference_store import reference_store
from tests.kit.dynamodb import MemoryReferenceStore
from tests.kit.lakes.lake import Lake
from tests.kit.tasks.builders import HOUR, MINUTE, failed, submitted
from tests.kit.worlds.service import World
from tests.unit.gateway.drop.world import HIDDEN, REALM, DropWorld
from tests.unit.notifications.site import NotifyingProcesses
from tests.unit.orchestration.test_admission import TASK_TYPES, NotedAdmission
from tests.unit.references.test_refresh import Scene
from tests.unit.rewrites.test_shared_job import SharingWorld, leave, left_rewrites, world_lease
from tests.unit.tasks.test_worker_admission import AdmittingWorkers
from tests.unit.tasks.work.test_maintenance import MaintainedTasks
from tests.unit.upkeep.execution.test_bad_tables import BOTH, Archive, BothKinds
from tests.unit.upkeep.health.test_refresh import NOW, RefreshedCatalog
from tests.unit.upkeep.health.test_refresh import world_of as refreshed_catalog

Failing = Callable[[], Exception]
Served = tuple[set[str], set[str]]
"""The good items, and those of all that were served."""

WORLDS: dict[str, Callable[[Failing], Served]] = {}
"""By the name of the loop."""
ORDER = "bbgbggbgg"
"""Bad items are first, in the middle, and beside each other."""


def world(name: str) -> Callable[[Callable[[Failing], Served]], Callable[[Failing], Served]]:
    def register(made: Callable[[Failing], Served]) -> Callable[[Failing], Served]:
        assert name not in WORLDS
        WORLDS[name] = made
        return made

    return register


def planted(target: Any, method: str, is_bad: Callable[..., bool], failing: Failing) -> Any:
    """Have a call of a store or the catalog fail for bad items."""
    real = getattr(target, method)

    def call(*args: Any, **options: Any) -> Any:
        if is_bad(*args, **options):
            raise failing()
        return real(*args, **options)

    return patch.object(target, method, call)


def made(make: Callable[[int], str]) -> dict[str, set[str]]:
    """Make an item for each letter of ORDER; return the good and the bad ones."""
    found: dict[str, set[str]] = {"g": set(), "b": set()}
    for number, kind in enumerate(ORDER):
        found[kind].add(make(number))
    return found


class DueTasks:
    """Purges that are due, good and bad ones."""

    def __init__(self) -> None:
        self.world = World()
        found = made(self._due)
        self.good, self.bad = found["g"], found["b"]
        self.world.clock.advance(HOUR)

    def _due(self, _number: int) -> str:
        now = self.world.clock()
        self.world.clock.advance(timedelta(seconds=1))
        times = dict.fromkeys(("received_timestamp", "created_ts", "last_status_change_ts"), now)
        task = submitted(str(uuid4()), next_scheduled_run_ts=now, due_at=now + timedelta(minutes=1), **times)
        return self.world.store.apply(Create(task)).task_id

    def swept(self) -> Served:
        for _ in range(3):
            list(sweep(self.world.tasks, {"TABLE_PURGE"}, deadline=self.world.deadline(), clock=self.world.clock))
            self.world.clock.advance(MINUTE)
        return self.good, {task_id for task_id, _ in self.world.queue.sent}

    def is_bad(self, task_id: str) -> bool:
        return task_id in self.bad

    def changes_bad(self, change: Any) -> bool:
        return change.after.task_id in self.bad


@world("sweep.read")
def due_tasks_that_cannot_be_read(failing: Failing) -> Served:
    due = DueTasks()
    with planted(due.world.store, "get", due.is_bad, failing):
        return due.swept()


@world("sweep.reconcile")
def due_tasks_that_cannot_be_dispatched(failing: Failing) -> Served:
    due = DueTasks()
    with planted(due.world.store, "apply", due.changes_bad, failing):
        return due.swept()


class SharedTasks:
    """Rewrites of a deployment with a shared Spark worker."""

    def __init__(self) -> None:
        self.world = SharingWorld()
        submission, self.tasks = self.world.tasks.submission, dict[str, Task]()
        for _ in ORDER:
            first = submission.first(task_id=str(uuid4()), task_type=COMPACTION_TASK_TYPE, payload="{}")
            self.tasks[first.task_id] = submission.create(first)[0]
        self.good = {task_id for task_id, kind in zip(self.tasks, ORDER, strict=True) if kind == "g"}

    def is_bad(self, task_id: str) -> bool:
        return task_id not in self.good


@world("rewrites.former")
def rewrites_that_a_former_job_held(failing: Failing) -> Served:
    shared = SharedTasks()
    for task_id in shared.tasks:
        shared.world.tasks.leases.acquire(task_id, "rewrites:1/1", world_lease(shared.world))
    with planted(shared.world.store, "get", shared.is_bad, failing):
        release_former(shared.world.tasks)
    return shared.good, {task_id for task_id in shared.tasks if not shared.world.head(task_id).is_held}


@world("rewrites.left")
def rewrites_that_are_left_to_the_shared_worker(failing: Failing) -> Served:
    shared, leased = SharedTasks(), set[str]()
    for task in shared.tasks.values():
        leave(shared.world, task)
    left = left_rewrites(shared.world)
    with planted(shared.world.store, "get", shared.is_bad, failing):
        for _ in range(len(ORDER)):
            task_id = left.admit_one()
            if task_id is not None:
                shared.world.tasks.leases.acquire(task_id, "rewrites:1/1", world_lease(shared.world))
                leased.add(task_id)
    return shared.good, leased


@world("sweep.measured")
def tasks_that_are_measured(failing: Failing) -> Served:
    due = DueTasks()
    with planted(due.world.store, "get", due.is_bad, failing):
        return due.good, {task.task_id for task in unfinished(due.world.tasks.reads, due.world.clock())}


@world("sweeper.steps")
def what_the_sweeper_does_beside_the_sweep(failing: Failing) -> Served:
    done: set[str] = set()
    here = World()
    deployed = SimpleNamespace(tasks=here.tasks, store=here.store, task_types={"TABLE_PURGE"})
    steps = ("_wake", "_send_owed", "_ensure_maintenance", "_measured", "_maintenance_age", "_pauses")
    made = {name: step(name, done, failing if number < 2 else None) for number, name in enumerate(steps)}
    with patch.multiple(sweeper, _deployed=lambda: deployed, **made):
        context: Any = SimpleNamespace(get_remaining_time_in_millis=lambda: 30_000)
        sweeper.handler({}, context)
    return set(steps[2:]), done


def step(name: str, done: set[str], failing: Failing | None) -> Callable[[Any], None]:
    def does(_deployed: Any) -> None:
        if failing is not None:
            raise failing()
        done.add(name)

    does.__name__ = name
    return does


@world("worker.lease")
def due_tasks_that_a_worker_cannot_lease(failing: Failing) -> Served:
    due, leased, due_hints = DueTasks(), set[str](), DueHints()

    def lease(now: datetime) -> Lease:
        return Lease.lasting(timedelta(days=1), now)

    with planted(due.world.store, "apply", due.changes_bad, failing):
        for _ in range(2 * len(ORDER)):
            task = lease_next_available_task(due.world.tasks, "worker", {"TABLE_PURGE"}, lease, due_hints=due_hints)
            if task is not None:
                leased.add(task.task_id)
    return due.good, leased


@world("worker.turns")
def turns_of_a_worker_that_fail(failing: Failing) -> Served:
    """The index of due tasks fails at some turns, and the worker lives."""
    site = AdmittingWorkers(None)
    good = {site.submit(f"00000000-0000-4000-8000-00000000000{number}").task_id for number in range(4)}
    site.clock.advance(HOUR)
    worker = site.worker("w")
    site.working = lambda _task_id: worker.stop() if len(site.ran) == len(good) else None
    turns = iter(range(1_000))
    with (
        planted(site.store, "due", lambda *_args, **_options: next(turns) % 3 != 2, failing),
        patch.object(worker._stop, "wait", lambda _seconds: site.clock.advance(MINUTE)),
    ):
        worker.run()
    return good, set(site.ran)


class WaitingTasks:
    """Tasks that wait for the one place that there is."""

    def __init__(self) -> None:
        self.site = NotedAdmission(Caps(everything=1))
        found = made(self._submitted)
        self.good, self.bad = found["g"], found["b"]
        self.admission = Admission(self.site.tasks, self.site.store, TASK_TYPES, self.start, limits=Caps(everything=1))

    def _submitted(self, _number: int) -> str:
        self.site.clock.advance(timedelta(seconds=1))
        return self.site.submit()

    def start(self, task_id: str, n: int) -> None:
        self.site.started.append((task_id, n))
        held = self.site.acquire(task_id)
        self.site.tasks.leases.succeed(task_id, held.attempt_count, "done")

    def admitted(self) -> Served:
        for _ in range(4 * len(ORDER)):
            self.admission.run()
            self.site.clock.advance(timedelta(seconds=15))
        return self.good, {task_id for task_id, _ in self.site.started}


@world("admission.start")
def waiting_tasks_that_cannot_be_started(failing: Failing) -> Served:
    waiting = WaitingTasks()
    with planted(waiting.site.store, "apply", lambda change: change.after.task_id in waiting.bad, failing):
        return waiting.admitted()


@world("admission.doubted")
def admitted_tasks_that_cannot_be_read(failing: Failing) -> Served:
    waiting = WaitingTasks()
    with planted(waiting.site.store, "get", lambda task_id: task_id in waiting.bad, failing):
        return waiting.admitted()


@world("maintenance.tasks")
def old_tasks_that_cannot_be_removed(failing: Failing) -> Served:
    site = MaintainedTasks()
    found = made(lambda _number: site.finished().task_id)
    site.clock.advance(timedelta(days=30))
    with planted(site.store, "remove", lambda task: task.task_id in found["b"], failing):
        site.run()
    return found["g"], {one for ids in found.values() for one in ids if site.store.get(one) is None}


def record_of_key(scope: str, task_id: str, now: datetime, expires_at: datetime | None = None) -> Record:
    texts = dict.fromkeys(("caller", "realm_id", "method", "resource_path", "idempotency_key"), "x")
    return Record(
        scope=scope, payload_hash="0", state=State.IN_PROGRESS, task_id=task_id, bound_version=1,
        created_at=now, updated_at=now, expires_at=expires_at, nonce="n", **texts,
    )  # fmt: skip


@world("keys.expiry")
def keys_whose_tasks_cannot_be_read(failing: Failing) -> Served:
    here = World()
    now = here.clock()

    def recorded(number: int) -> str:
        task = submitted(str(uuid4()))
        here.store.apply(Create(task))
        here.store.apply(Advance(task, failed(task, now)))
        here.records.put(RecordWrite(record_of_key(f"key-{number}", task.task_id, now)))
        return task.task_id

    found = made(recorded)
    upkeep = RecordUpkeep(here.store, here.records, lifetime=HOUR, nonce=lambda: "m")
    with planted(here.store, "get", lambda task_id: task_id in found["b"], failing):
        list(upkeep.start_expiry(now))
    records = [here.records.get(f"key-{number}") for number in range(len(ORDER))]
    return found["g"], {one.task_id for one in records if one.expires_at is not None}


@world("keys.removed")
def expired_keys_that_cannot_be_removed(failing: Failing) -> Served:
    with moto_task_store() as tasks:
        store, now = record_store(tasks), NOW
        names = {f"key-{number}": kind for number, kind in enumerate(ORDER)}
        for scope in names:
            store.put(RecordWrite(record_of_key(scope, str(uuid4()), now, now)))
        with planted(store, "_remove", lambda key, _moment: names[key["scope"]["S"]] == "b", failing):
            store.remove_expired(now + HOUR, 100)
        left = {scope for scope in names if store.get(scope) is not None}
    return {scope for scope, kind in names.items() if kind == "g"}, names.keys() - left


@world("references.release")
def held_purges_that_cannot_be_woken(failing: Failing) -> Served:
    due, index = DueTasks(), MemoryReferenceStore()
    for task_id in due.good | due.bad:
        index.put_held(HeldPurge(task_id, Subject("lake", ("ns",), "t")))
    with planted(due.world.store, "get", due.is_bad, failing):
        release(index, due.world.tasks.writes, ["lake"], due.world.clock())
    return due.good, (due.good | due.bad) - {one.task_id for one in index.held("lake")}


class OwedEvents:
    """Events of ended tasks that are owed."""

    def __init__(self) -> None:
        receiver: Any = SimpleNamespace(url="https://127.0.0.1/", authorities=None)
        self.site = NotifyingProcesses(receiver, policy=NotificationPolicy(events=True))
        self.site.queue_is_down = True
        self.found = made(self._finished)
        self.site.queue_is_down = False
        self.site.clock.advance(HOUR)

    def _finished(self, _number: int) -> str:
        task = self.site.held(callback=None)
        self.site.finish(task)
        return task.task_id

    def is_bad(self, owed: Any, **_options: Any) -> bool:
        return owed.task_id in self.found["b"]

    def served(self) -> Served:
        sent = {parse(text).task_id for text in self.site.messages}
        return self.found["g"], sent | {str(event["task_id"]) for event in self.site.bus.events}


@world("notifications.sent")
def events_that_the_sweeper_cannot_send(failing: Failing) -> Served:
    owed = OwedEvents()
    with planted(owed.site, "send", owed.is_bad, failing):
        owed.site.sweep()
    return owed.served()


@world("notifications.announced")
def events_that_cannot_be_sent_at_the_end_of_tasks(failing: Failing) -> Served:
    owed = OwedEvents()
    with planted(owed.site, "send", owed.is_bad, failing):
        announce(owed.site, owed.site.left(NotificationState.OWED))
    return owed.served()


@world("notifications.delivered")
def events_that_a_worker_cannot_deliver(failing: Failing) -> Served:
    owed = OwedEvents()
    with planted(owed.site.bus, "put", owed.is_bad, failing):
        deliver_due(owed.site.notifier)
    return owed.served()


@world("notifications.records")
def stored_notifications_that_cannot_be_read(failing: Failing) -> Served:
    owed = OwedEvents()
    items = [stored.notification_item(one) for one in owed.site.left(NotificationState.OWED)]
    bad = {one["task_id"] for one in items if one["task_id"].removesuffix(stored.PARTITION) in owed.found["b"]}
    with planted(stored, "notification_of", lambda item: item["task_id"] in bad, failing):
        return owed.found["g"], {one.task_id for one in stored.readable_notifications(items)}


@world("notifications.receivers")
def records_of_receivers_that_cannot_be_read(failing: Failing) -> Served:
    found = made(lambda number: f"callback-{number}")
    items = [stored.receiver_item(Receiver(f"callback-{number}", NOW, NOW)) for number in range(len(ORDER))]
    with planted(stored, "receiver_of", lambda item: item["channel"] in found["b"], failing):
        return found["g"], {one.channel for one in stored.readable_receivers(items)}


@world("dispatcher.admission")
def an_admission_that_fails_after_a_batch(failing: Failing) -> Served:
    """SQS would deliver all messages of the batch again."""
    taken: set[str] = set()

    def admit() -> int:
        raise failing()

    inbox = SimpleNamespace(take=lambda body: taken.add(body) or "started", admit=admit)
    records = [{"messageId": body, "body": body, "eventSource": "aws:sqs"} for body in ("one", "two")]
    with patch.object(dispatcher, "inbox", lambda: inbox):
        answer = dispatcher.handler({"Records": records}, SimpleNamespace())  # type: ignore[arg-type]
    assert answer["batchItemFailures"] == []
    return {"one", "two"}, taken


@world("notifications.turns")
def turns_of_a_worker_that_cannot_deliver(failing: Failing) -> Served:
    owed, turns = OwedEvents(), iter(range(10))
    stop: Any = SimpleNamespace(wait=lambda _seconds: next(turns) == 4)

    def deliver(notifier: Notifier) -> list[Delivered]:
        owed.site.clock.advance(HOUR)
        return deliver_due(notifier, limit=2)

    reads = iter(range(100))
    with planted(owed.site.owed, "receivers", lambda: next(reads) % 2 == 0, failing):
        _run(owed.site.notifier, deliver, stop)
    found = owed.served()[1]
    return {"something"}, {"something"} if len(found) == 4 else found


@world("tombstones.settled")
def tombstones_that_cannot_be_settled(failing: Failing) -> Served:
    return settled_tombstones(failing, first_only=True)


@world("tombstones.noted")
def tombstones_whose_trouble_cannot_be_noted(failing: Failing) -> Served:
    return settled_tombstones(failing, first_only=False)


def settled_tombstones(failing: Failing, *, first_only: bool) -> Served:
    with closing(DropWorld()) as here:

        def dropped(number: int) -> str:
            table = TableIdentifier("lake", ("ns",), f"t{number}")
            record = pending(REALM, table, HIDDEN, here.clock(), expected_uuid="u", caller="bob", waits=False)
            here.records.put(record)
            return record.tombstone_id

        found, asked = made(dropped), Counter[str]()

        def is_bad(tombstone_id: str) -> bool:
            asked[tombstone_id] += 1
            return tombstone_id in found["b"] and (asked[tombstone_id] % 2 == 1 or not first_only)

        with planted(here.records, "get", is_bad, failing):
            for _ in range(4):
                here.clock.advance(HOUR)
                here.upkeep()
        records = [here.records.get(one) for ids in found.values() for one in ids]
        return found["g"], {one.tombstone_id for one in records if one.state is TombstoneState.CLEARED}


def archive() -> tuple[Archive, dict[str, set[str]]]:
    """Tables whose snapshots a policy wants expired, the bad ones first."""
    return Archive(*(f"t{number}" for number in range(len(ORDER)))), made(lambda number: f"t{number}")


def started(here: Archive) -> set[str]:
    return {TableExpiry.of(task).identifier.name for task in here.all_tasks()}


@world("upkeep.rules")
def tables_whose_policies_cannot_be_read(failing: Failing) -> Served:
    here, found = archive()
    with planted(here.policies, "applicable", lambda target, _type=None: target.table in found["b"], failing):
        here.run()
    expired = started(here)
    here, found = archive()
    here.attach({"enable": True}, "ns")
    with planted(here.policies, "applicable", lambda target, _type=None: target.table in found["b"], failing):
        here.sweep()
    return found["g"], expired & {TableOrphans.of(task).identifier.name for task in here.all_tasks()}


@world("upkeep.starts")
def tables_that_do_not_load_when_their_run_starts(failing: Failing) -> Served:
    here, found = archive()
    with planted(here, "load_table", lambda identifier, **_options: identifier.name in found["b"], failing):
        here.run(settings=UpkeepSettings(at_once=len(found["g"])))
    return found["g"], started(here)


@world("upkeep.waits")
def tables_whose_wait_cannot_be_noted(failing: Failing) -> Served:
    here, found = archive()
    sweeps, tables = here.sweeps(policies=BothKinds(here), limits=BOTH), KeptTables(here.healths, "lake")
    waiting = [UpkeepNeed(one, SWEEP_TYPE, "p", 0, Amount(), here.now) for one in tables.names]
    with planted(here.healths, "put", lambda health: health.identifier.name in found["b"], failing):
        sweeps.count_wait(tables, Choice(waiting=tuple((one, Waits.RUNS) for one in waiting)))
    return found["g"], {one.identifier.name for one in here.healths.healths("lake") if one.wanted}


@world("upkeep.ended")
def tables_whose_last_runs_cannot_be_read(failing: Failing) -> Served:
    here, found = archive()
    here.run()
    bad = {here.health(name).runs[TASK_TYPE].task_id for name in found["b"]}
    for name in found["g"]:
        here.finish(name)
    with planted(here.store, "get", lambda task_id: task_id in bad, failing):
        here.run()
    return found["g"], {name for names in found.values() for name in names if here.health(name).runs[TASK_TYPE].ended}


@world("upkeep.kinds")
def a_kind_of_upkeep_whose_policies_cannot_be_read(failing: Failing) -> Served:
    here, found = archive()
    both = BothKinds(here)
    expiry, sweeps = here.making(policies=both, limits=BOTH), here.sweeps(policies=both, limits=BOTH)
    with (
        patch.object(OrphanSweeps, "evaluate", lambda *_: (_ for _ in ()).throw(failing())),
        suppress(Exception),  # it is raised at the end
    ):
        run_kinds((sweeps, expiry), "lake")
    return found["g"] | found["b"], started(here)


def indexed_tables() -> tuple[RefreshedCatalog, dict[str, set[str]]]:
    _, found = archive()
    return refreshed_catalog(*sorted(found["g"] | found["b"])), found


@world("health.tables")
def tables_whose_health_cannot_be_read(failing: Failing) -> Served:
    here, found = indexed_tables()
    with planted(here, "load_table", lambda identifier, **_options: identifier.name in found["b"], failing):
        here.refresh()
    return found["g"], {one.identifier.name for one in here.healths.healths("lake") if one.files}


@world("health.visits")
def visited_tables_whose_health_cannot_be_read(failing: Failing) -> Served:
    here, found = indexed_tables()
    with (
        patch.object(health_refresh, "MOST_FAILED", len(ORDER)),
        planted(here.healths, "read_state", lambda identifier: identifier.name in found["b"], failing),
    ):
        visited = here.refresher().visited()
        for name in sorted(found["g"] | found["b"]):
            visited(here.table(name).loaded(TableIdentifier("lake", ("ns",), name)), here.store, NOW)
    return found["g"], {one.identifier.name for one in here.healths.healths("lake")}


@world("health.gone")
def healths_of_dropped_tables_that_cannot_be_removed(failing: Failing) -> Served:
    here, found = indexed_tables()
    here.refresh()
    for name in found["g"] | found["b"]:
        here.drop(name)
    with planted(here.healths, "remove", lambda health: health.identifier.name in found["b"], failing):
        here.refresh()
    return found["g"], (found["g"] | found["b"]) - {one.identifier.name for one in here.healths.healths("lake")}


@world("health.records")
def healths_that_cannot_be_read(failing: Failing) -> Served:
    """Items of a newer release or damaged ones; the kinds of errors are those that reading them raises."""
    _, found = archive()
    stored = [health_item(TableHealth(TableIdentifier("lake", ("ns",), name), "u", "m", NOW)) for name in found["g"]]
    damaged = [{**stored[0], "as_of": "never"}, {"format": 9}, {**stored[0], "past": 7}, {**stored[0], "runs": [{}]}]
    calls: Any = SimpleNamespace(repeatable=lambda *_args, **_options: {"Items": [*map(to_item, [*damaged, *stored])]})
    with patch.object(health_store, "past_of_rows", lambda _rows: (_ for _ in ()).throw(failing())):
        return found["g"], {one.identifier.name for one in HealthStore(calls, "table").healths("lake")}


@world("catalogs.submitted")
def catalogs_whose_tasks_cannot_be_read(failing: Failing) -> Served:
    here, behavior = World(), reference_index(lambda _run: None, every=HOUR)  # type: ignore[arg-type]
    found = made(lambda number: f"lake{number}")
    ids = {behavior.task_id(RecurringCatalog(catalog=one)): one for one in found["g"] | found["b"]}
    with planted(here.store, "get", lambda task_id: ids.get(task_id) in found["b"], failing):
        ensure_each_submitted(here.tasks, behavior, sorted(found["g"] | found["b"]))
    return found["g"], {ids[task.task_id] for task in here.store.heads().tasks}


def lost_refs(catalog: str, name: str) -> LostRefs:
    table = TableIdentifier(catalog, ("ns",), name)
    return LostRefs(table, name, f"s3://lake/{name}", "copy", {"b": 1}, 1, "task", NOW, NOW)


@world("lost-refs.removed")
def lost_refs_that_cannot_be_forgotten(failing: Failing) -> Served:
    index, found = MemoryReferenceStore(), made(lambda number: f"t{number}")
    for name in found["g"] | found["b"]:
        index.put_lost_refs(lost_refs("lake", name))
    keeper = LostRefsKeeper(
        index, MemoryPlanStore(), TableIdentifier("lake", ("ns",), "t8"), "u", "task", lambda: NOW + HOUR
    )
    with planted(index, "remove_lost_refs", lambda lost: lost.identifier.name in found["b"], failing):
        keeper.check()
    return found["g"], (found["g"] | found["b"]) - {one.identifier.name for one in index.lost_refs("lake")}


def listed_tables() -> tuple[Scene, dict[str, set[str]]]:
    """Tables of one namespace, and a namespace for each of others."""
    here, found = Scene(), made(lambda number: f"t{number}")
    for name in found["g"] | found["b"]:
        here.one.create(name, location=f"s3://lake/{name}")
    return here, found


@world("references.visits")
def tables_that_a_pass_cannot_load(failing: Failing) -> Served:
    here, found = listed_tables()

    def is_bad(identifier: TableIdentifier, *_args: Any, **_options: Any) -> bool:
        return identifier.name in found["b"]

    with (
        planted(here.listing, "load_if_changed", is_bad, failing),
        planted(here.listing, "load_table", is_bad, failing),
    ):
        state = here.refresher().ensure_fresh("cat", HOUR)
    assert state.complete == state.number
    return found["g"], {one.identifier.name for one in here.store.entries("cat") if one.problem is None}


@world("references.retired")
def entries_of_dropped_tables_that_cannot_be_marked(failing: Failing) -> Served:
    here, found = listed_tables()
    here.refresher().ensure_fresh("cat", HOUR)
    for name in found["g"] | found["b"]:
        del here.one.pointers[name]
    here.now += 2 * HOUR
    with planted(here.store, "put", lambda entry: entry.identifier.name in found["b"], failing):
        state = here.refresher().ensure_fresh("cat", HOUR)
    assert state.complete == state.number
    return found["g"], {one.identifier.name for one in here.store.entries("cat") if one.absent}


@world("references.remembered")
def tables_met_under_no_name_that_cannot_be_remembered(failing: Failing) -> Served:
    """The pass fails, but only after all others are remembered: a purge would not see what is not."""
    here, found = listed_tables()
    here.refresher().ensure_fresh("cat", HOUR)
    names: Any = SimpleNamespace(missed=lambda: ((one, one, "moved") for one in here.store.entries("cat")))
    with (
        planted(here.store, "put", lambda entry: entry.identifier.name in found["b"], failing),
        pytest.raises(type(failing())),
    ):
        here.refresher()._remember(names)
    return found["g"], {one.identifier.name for one in here.store.entries("cat") if "moved" in one.displaced}


def put_exemption(store: ReferenceStore, subject: Subject) -> None:
    store.put_exemption(Exemption(subject, "uuid", None, "x", "me", NOW, NOW + HOUR))


def put_held(store: ReferenceStore, subject: Subject) -> None:
    store.put_held(HeldPurge(str(uuid4()), subject))


def put_unlisted(store: ReferenceStore, subject: Subject) -> None:
    store.put_unlisted(Blocking(subject, "NO: x", NOW))


def put_located(store: ReferenceStore, subject: Subject) -> None:
    store.put_located(LocatedTable(subject, f"s3://lake/{subject.name}/"))


def put_lost(store: ReferenceStore, subject: Subject) -> None:
    store.put_lost_refs(lost_refs("cat", str(subject.name)))


def blocking_records(
    put: Callable[[ReferenceStore, Subject], None], reader: str, listing: str, failing: Failing
) -> Served:
    """Read the stored records of one kind, of which some cannot be read."""
    found = made(lambda number: f"t{number}")
    with moto() as client:
        store = reference_store(client)
        for name in found["g"] | found["b"]:
            put(store, Subject("cat", ("ns",), name))
        with planted(blocking, reader, lambda _catalog, item: item["name"] in found["b"], failing):
            records = list(getattr(store, listing)("cat"))
    return found["g"], {(getattr(one, "subject", None) or one.identifier).name for one in records}


for name_, *parts in (
    ("exemptions", put_exemption, "_exemption", "exemptions"),
    ("held", put_held, "_held", "held"),
    ("unlisted", put_unlisted, "_blocking", "unlisted"),
    ("located", put_located, "_located", "located"),
    ("lost", put_lost, "_lost", "lost_refs"),
):
    world(f"references.{name_}")(partial(blocking_records, *parts))


@world("references.namespaces")
def namespaces_that_a_pass_cannot_list(failing: Failing) -> Served:
    here, found = listed_tables()
    lakes = here.listing.lakes
    for name in sorted(found["g"] | found["b"]):
        lakes["other", name] = Lake()
        lakes["other", name].objects = lakes["other", name].io.objects = here.one.objects
        lakes["other", name].create("t", location=f"s3://lake/other/{name}")
    lakes["other",] = Lake()

    def is_bad(_catalog: str, namespace: tuple[str, ...]) -> bool:
        return namespace[-1] in found["b"]

    with planted(here.listing, "list_tables", is_bad, failing):
        state = here.refresher().ensure_fresh("cat", HOUR)
    assert state.complete == state.number
    return found["g"], {one.identifier.namespace[-1] for one in here.store.entries("cat")}
