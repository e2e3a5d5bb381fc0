"""A catalog with policies, its tables' healths and a task service, for passes of upkeep."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from delegation.identifiers import TableIdentifier
from delegation.polaris.answers import NoSuchTable
from delegation.polaris.model import LoadedTable
from delegation.polaris.policies import ApplicablePolicy, PolicyTarget, StoredPolicy
from delegation.removal.expiry.requests import TableExpiry
from delegation.removal.expiry.task_type import TASK_TYPE
from delegation.storage.memory import Killed
from delegation.tasks.life.model import Task
from delegation.tasks.life.outcomes import AttemptError, ErrorClass
from delegation.tasks.life.policy import Lease
from delegation.tasks.stores.memory import MemoryTaskStore
from delegation.upkeep.execution.expiries import PolicyExpiries
from delegation.upkeep.execution.kinds import UpkeepCounts
from delegation.upkeep.execution.passes import run_kinds
from delegation.upkeep.health.model import ManifestSizes, ReadState, SnapshotChange, TableHealth
from delegation.upkeep.health.reading import health_of, history_in
from delegation.upkeep.rules.limits import UpkeepLimits, UpkeepSettings
from delegation.upkeep.rules.model import PolicyType
from delegation.wiring.types import TYPES, default_properties
from tests.kit.dynamodb import MemoryHealthStore
from tests.kit.tasks.queues import Queue
from tests.kit.tasks.services import task_service

EXPIRY = PolicyType.SNAPSHOT_EXPIRY
ALLOWED = UpkeepLimits(types=frozenset({EXPIRY}))
WEEK = {"enable": True, "config": {"max_snapshot_age_days": 7}}
NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
DAY_MS = 86_400_000
MIB = 1024 * 1024


@dataclass
class MemoryPolicies:
    """Policies by what they are attached to; of each type the nearest applies, as in Polaris."""

    attached: dict[PolicyTarget, StoredPolicy] = field(default_factory=dict)
    asked: Counter[PolicyTarget] = field(default_factory=Counter)
    broken: dict[PolicyTarget, Exception] = field(default_factory=dict)

    def attach(
        self, content: Any, *levels: str, table: str | None = None, name: str = "keep", version: int = 0
    ) -> None:
        text = content if isinstance(content, str) else json.dumps(content)
        self.attached[PolicyTarget("lake", levels, table)] = StoredPolicy(EXPIRY.value, name, text, version)

    def detach(self, *levels: str, table: str | None = None) -> None:
        del self.attached[PolicyTarget("lake", levels, table)]

    def applicable(self, target: PolicyTarget, type_: str | None = None) -> list[ApplicablePolicy]:
        self.asked[target] += 1
        if target in self.broken:
            raise self.broken[target]
        above = [PolicyTarget(target.catalog, target.namespace[:n]) for n in range(len(target.namespace) + 1)]
        for place in [*([] if target.table is None else [target]), *reversed(above)]:
            if place in self.attached:
                return [ApplicablePolicy(self.attached[place], ("gov",), inherited=place != target)]
        return []


def metadata(name: str, ages: list[float], **more: Any) -> dict[str, Any]:
    """Return metadata with a line of snapshots 1, 2, … of these ages in days as of NOW."""
    now_ms = int(NOW.timestamp() * 1000)
    snapshots = [
        {
            "snapshot-id": at + 1,
            "sequence-number": at + 1,
            "timestamp-ms": int(now_ms - age * DAY_MS),
            "schema-id": 0,
            "manifest-list": f"s3://b/{name}/metadata/snap-{at}.avro",
            "summary": {"operation": "append"},
            **({"parent-snapshot-id": at} if at else {}),
        }
        for at, age in enumerate(ages)
    ]
    return {
        "format-version": 2,
        "table-uuid": f"00000000-0000-4000-8000-{sum(map(ord, name)):012d}",
        "location": f"s3://b/{name}",
        "last-sequence-number": len(ages),
        "last-updated-ms": now_ms,
        "last-column-id": 1,
        "schemas": [{"type": "struct", "schema-id": 0, "fields": []}],
        "current-schema-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "default-spec-id": 0,
        "last-partition-id": 999,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "default-sort-order-id": 0,
        "current-snapshot-id": len(ages),
        "refs": {"main": {"snapshot-id": len(ages), "type": "branch"}},
        "snapshots": snapshots,
        "properties": {},
        **more,
    }


@dataclass
class UpkeepWorld:
    """Tables `lake.ns.NAME`; `look` is what the health task does after a pass of the reference index."""

    documents: dict[str, dict[str, Any]] = field(default_factory=dict)
    healths: MemoryHealthStore = field(default_factory=MemoryHealthStore)
    policies: MemoryPolicies = field(default_factory=MemoryPolicies)
    store: MemoryTaskStore = field(default_factory=MemoryTaskStore)
    now: datetime = NOW
    loads: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.queue = Queue()
        self.tasks = task_service(self.store, default_properties(), self.queue, clock=lambda: self.now, types=TYPES)

    def load_table(self, identifier: TableIdentifier, *, vend: bool = True, snapshots: str = "all") -> LoadedTable:
        self.loads[identifier.name] += 1
        if identifier.name not in self.documents:
            raise NoSuchTable(f"no table {identifier}", status=404)
        return self.loaded(identifier.name)

    def loaded(self, name: str) -> LoadedTable:
        document = self.documents[name]
        return LoadedTable(named(name), f"s3://b/{name}/{len(document['snapshots'])}.metadata.json", document, {}, ())

    def write(self, name: str, ages: list[float], **more: Any) -> None:
        self.documents[name] = metadata(name, ages, **more)
        self.look(name)

    def look(self, name: str) -> None:
        """Store what the health task would store."""
        document, before = self.documents[name], self.healths.health(named(name))
        changes = {one["snapshot-id"]: SnapshotChange(100 * MIB, 50 * MIB, 50 * MIB) for one in document["snapshots"]}
        sizes = {b"12345678": ManifestSizes(files=10, bytes=1000 * MIB)}
        state = ReadState(document["table-uuid"], 1, sizes, changes, history_in(document))
        base = before or TableHealth(named(name), document["table-uuid"], "", self.now)
        self.healths.put(health_of(self.loaded(name), state, base, None, self.now), state)

    def parts(self) -> dict[str, Any]:
        """Return what every pass over the world is made of."""
        return {
            "realm": "R",
            "healths": self.healths,
            "catalog": self,
            "policies": self.policies,
            "settings": UpkeepSettings(),
            "clock": lambda: self.now,
        }

    def making(self, **changes: Any) -> PolicyExpiries:
        return PolicyExpiries(**{**self.parts(), "tasks": self.tasks, "limits": ALLOWED, **changes})

    def run(self, **changes: Any) -> UpkeepCounts:
        return run_kinds((self.making(**changes),), "lake")

    def later(self, **by: float) -> None:
        self.now += timedelta(**by)

    def health(self, name: str) -> TableHealth:
        found = self.healths.health(named(name))
        assert found is not None
        return found

    def all_tasks(self) -> list[Task]:
        return list(self.store.heads().tasks)

    def submissions(self) -> int:
        """Return how often a task was submitted, by the rows of its history."""
        rows = [one for task in self.all_tasks() for one in self.tasks.reads.versions(task.task_id)]
        return sum(one.status.value == "SUBMITTED" for one in rows)

    def asked_by_a_caller(self, name: str) -> str:
        """Submit an expiry that a caller asked for, and return its id."""
        wanted = TableExpiry.model_validate(
            {"realm": "R", "identifier": named(name), "table": self.loaded(name), "properties": {"retain-last": "9"}}
        )
        first = self.tasks.submission.first(task_id=wanted.task_id, task_type=TASK_TYPE, payload=wanted.to_payload())
        self.tasks.submission.create(first)
        return wanted.task_id

    def begin(self, task_id: str, *, effects: bool = False) -> int:
        """Begin the work of a task, and return its attempt."""
        held = self.tasks.leases.acquire(task_id, "worker", lambda now: Lease.until(now + timedelta(minutes=1), now))
        self.tasks.leases.start(task_id, held.attempt_count, effects=effects)
        return held.attempt_count

    def fail(self, task_id: str, error: str = "NO", *, effects: bool = False) -> Task:
        """Fail a task, after its commit if it had effects."""
        failed = AttemptError(error, "no", ErrorClass.PERMANENT)
        return self.tasks.leases.end_attempt(task_id, self.begin(task_id, effects=effects), failed)

    def finish(self, name: str, *, error: str | None = None, details: Any = None, task_type: str = TASK_TYPE) -> Task:
        """End the task of a table's reserved run, by default the one that removes what is expired."""
        task_id = self.health(name).runs[task_type].task_id
        if error is not None:
            return self.fail(task_id, error)
        return self.tasks.leases.succeed(task_id, self.begin(task_id), "done", details=details or {})


def named(name: str) -> TableIdentifier:
    return TableIdentifier("lake", ("ns",), name)


def killing(at: int) -> Callable[[], None]:
    """Return a checkpoint that kills the process at its n-th call."""
    calls = iter(range(1, 10_000))

    def checkpoint() -> None:
        if next(calls) == at:
            raise Killed

    return checkpoint


def without_history(world: UpkeepWorld, name: str) -> None:
    """Have a table's history be too large to be kept."""
    state = world.healths.read_state(named(name))
    world.healths.put(world.health(name), replace(state, history=None))
