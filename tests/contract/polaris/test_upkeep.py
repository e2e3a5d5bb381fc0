"""Pull mode against a Polaris over HTTP: a policy is attached with Polaris' own path, acts, and detached, stops."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import boto3
import pytest

from delegation.identifiers import TableIdentifier
from delegation.polaris.client import PolarisClient
from delegation.polaris.model import LoadedTable
from delegation.references.recurring import ensure_submitted
from delegation.removal.expiry.behavior import ExpiryBehavior
from delegation.removal.expiry.context import ExpirySettings
from delegation.removal.expiry.task_type import TASK_TYPE, ExpiryDetails
from delegation.removal.neighbourhood import OneTable, no_neighbours
from delegation.storage.base import ObjectStore
from delegation.storage.credentials import S3Settings
from delegation.storage.memory import MemoryPlanStore
from delegation.storage.s3 import S3ObjectStore
from delegation.tasks.life.model import Status, Task
from delegation.tasks.work.behaviors import TaskBehavior
from delegation.upkeep.execution.expiries import PolicyExpiries
from delegation.upkeep.rules.limits import UpkeepLimits
from delegation.upkeep.rules.model import PolicyType
from tests.contract.polaris.policy_service import PolicyService
from tests.contract.polaris.world import PolarisView, encoded
from tests.kit.stories.tables import ADDED, DELETED, EXISTING, Entry, Warehouse

KEEP_A_WEEK = json.dumps({"version": "2025-02-03", "enable": True, "config": {"max_snapshot_age_days": 7}})
LIMITS = UpkeepLimits(types=frozenset({PolicyType.SNAPSHOT_EXPIRY}))


class Service(PolicyService):
    """The service with expiry by policy."""

    def __init__(self, world: PolarisView) -> None:
        super().__init__(world, client_of(world), PolicyExpiries, LIMITS)
        self.expiry = ExpiryBehavior(
            tasks=self.tasks,
            commits=self.client,
            open_table=lambda name: (OneTable(self.client, name), self.files(name)),
            plans=MemoryPlanStore(),
            search=lambda *_: (no_neighbours, None),
            hold=lambda *_: None,
            settings=ExpirySettings(vended=False, probe=False),
            permissions=self.permissions.of_expiry,
        )

    def behaviors(self) -> Sequence[TaskBehavior]:
        return [self.expiry]

    def files(self, name: TableIdentifier) -> ObjectStore:
        if self.world.polaris.s3_endpoint is not None:
            # The stand-in's emulated S3 is in this process, not where it says.
            return S3ObjectStore(settings=S3Settings(region="us-east-1"))
        return super().files(name)

    def check_health(self, name: TableIdentifier) -> None:
        """Raise for a table that could not be read."""
        health = self.healths.health(name)
        assert health is not None
        assert health.problem is None, health.problem

    def expiries(self) -> list[Task]:
        return self.of_type(TASK_TYPE)


class Writer:
    """A writer of one table: its files are in S3, its commits go to the catalog."""

    def __init__(self, world: PolarisView, client: PolarisClient, name: str) -> None:
        assert world.create(name).status_code == 200
        self.world = world
        self.client = client
        self.name = TableIdentifier(world.polaris.warehouse, (world.name,), name)
        self.lake = Warehouse()
        self.written: set[tuple[str, str]] = set()
        self.live: list[str] = []
        loaded = client.load_table(self.name)
        self.folder = loaded.location
        self.s3 = s3_of(world, loaded)

    def append(self, minutes: int) -> int:
        """Commit a snapshot that has a new file and, from the second one on, not the one before."""
        added = self.lake.put(f"{self.folder}/data/d{self.lake.next()}.parquet")
        entries = [Entry(ADDED, added), *(Entry(DELETED, one) for one in self.live)]
        return self._commit([self.lake.manifest(self.folder, entries)], [added], minutes)

    def add(self, minutes: int) -> int:
        """Commit a snapshot that has a new file beside the others."""
        added = self.lake.put(f"{self.folder}/data/d{self.lake.next()}.parquet")
        entries = [Entry(ADDED, added), *(Entry(EXISTING, one) for one in self.live)]
        return self._commit([self.lake.manifest(self.folder, entries)], [*self.live, added], minutes)

    def _commit(self, manifests: list[str], live: list[str], minutes: int) -> int:
        loaded = self.load()
        number = int(loaded.metadata.get("last-sequence-number") or 0) + 1
        parent = loaded.metadata.get("current-snapshot-id")
        snapshot: dict[str, Any] = {
            "snapshot-id": 10**15 + number,
            "sequence-number": number,
            "timestamp-ms": int(loaded.metadata["last-updated-ms"]) + minutes,
            "manifest-list": self.lake.manifest_list(self.folder, manifests),
            "summary": {"operation": "append"},
            "schema-id": 0,
            **({"parent-snapshot-id": parent} if parent not in (None, -1) else {}),
        }
        for bucket, key in self.lake.objects.keys() - self.written:
            self.s3.put_object(Bucket=bucket, Key=key, Body=self.lake.objects[bucket, key])
        self.written = set(self.lake.objects)
        ref = {"ref-name": "main", "snapshot-id": snapshot["snapshot-id"], "type": "branch"}
        updates: list[Mapping[str, Any]] = [
            {"action": "add-snapshot", "snapshot": snapshot},
            {"action": "set-snapshot-ref", **ref},
        ]
        self.client.commit_table(self.name, [], updates)
        self.live = live
        return int(snapshot["snapshot-id"])

    def load(self) -> LoadedTable:
        return self.client.load_table(self.name, vend=False)

    def ids(self) -> set[int]:
        return {int(one["snapshot-id"]) for one in self.load().metadata["snapshots"]}

    def stored(self) -> set[str]:
        """Return all objects at the table's location."""
        bucket, _, prefix = self.folder.removeprefix("s3://").partition("/")
        listed = self.s3.list_objects_v2(Bucket=bucket, Prefix=f"{prefix}/").get("Contents", ())
        return {f"s3://{bucket}/{one['Key']}" for one in listed}

    def needed(self) -> set[str]:
        """Return the files that the current snapshot reads."""
        metadata = self.load().metadata
        [last] = [one for one in metadata["snapshots"] if one["snapshot-id"] == metadata["current-snapshot-id"]]
        return {last["manifest-list"], *self.lake.lists[last["manifest-list"]], *self.live}


def s3_of(world: PolarisView, loaded: LoadedTable) -> Any:
    keys = loaded.credentials[0]
    return boto3.client(
        "s3",
        endpoint_url=world.polaris.s3_endpoint or loaded.s3.endpoint,
        region_name=loaded.s3.region or "us-east-1",
        aws_access_key_id=keys.access_key_id,
        aws_secret_access_key=keys.secret_access_key,
        aws_session_token=keys.session_token,
    )


def client_of(world: PolarisView) -> PolarisClient:
    """Return the service's client: a principal that may read and commit, and manages no policy."""
    return world.client_with(*({"type": "catalog", "privilege": one} for one in SERVICE))


SERVICE = (
    "TABLE_READ_PROPERTIES",
    "TABLE_WRITE_PROPERTIES",
    "TABLE_READ_DATA",
    "TABLE_WRITE_DATA",
    "NAMESPACE_READ_PROPERTIES",
    "CATALOG_READ_PROPERTIES",
)


class Operator:
    """A person who manages policies by Polaris' own paths."""

    def __init__(self, world: PolarisView) -> None:
        self.world = world
        base = f"{world.polaris.url}/polaris/v1/{world.polaris.warehouse}/namespaces/{encoded((world.name,))}"
        self.path = f"{base}/policies"

    def create(self, content: str, name: str = "keep", kind: str = "system.snapshot-expiry") -> None:
        body = {"name": name, "type": kind, "description": "", "content": content}
        answer = self.world.admin.post(self.path, json=body)
        assert answer.is_success, answer.text
        self.world.after(self.world.admin.delete, f"{self.path}/{name}", params={"detach-all": "true"})

    def attach(self, name: str = "keep", *, to: str | None = None) -> None:
        answer = self.world.admin.put(f"{self.path}/{name}/mappings", json=self._target(to))
        assert answer.is_success, answer.text

    def detach(self, name: str = "keep", *, to: str | None = None) -> None:
        answer = self.world.admin.post(f"{self.path}/{name}/mappings", json=self._target(to))
        assert answer.is_success, answer.text

    def _target(self, table_name: str | None) -> dict[str, Any]:
        if table_name is None:
            return {"target": {"type": "namespace", "path": [self.world.name]}}
        return {"target": {"type": "table-like", "path": [self.world.name, table_name]}}


@pytest.fixture
def service(world: PolarisView) -> Service:
    world.namespace()
    return Service(world)


def test_a_policy_acts_from_its_attachment_to_its_detachment(world: PolarisView, service: Service) -> None:
    operator, writer = Operator(world), Writer(world, service.client, "t")
    writer.append(1)
    writer.append(2)
    last = writer.add(3)
    before = writer.stored()

    # No policy: the tables are looked at, and nothing is done.
    service.index_tables(writer.name)
    service.begin()
    service.hours(1)
    service.check_health(writer.name)
    assert service.expiries() == []
    assert len(writer.ids()) == 3

    # Attached to the namespace: within one pass the old snapshots go, with the file that only they had.
    operator.create(KEEP_A_WEEK)
    operator.attach()
    service.hours(0.3)
    [task] = service.expiries()
    assert task.status is Status.SUCCESS, task.result_summary
    assert writer.ids() == {last}
    # Exactly what only they reached; the catalog's own metadata files stay, and there is one of the expiry's commit.
    assert before - writer.stored() == writer.lake.uris() - writer.needed() != set()
    assert all(uri.endswith(".metadata.json") for uri in writer.stored() - writer.needed())
    assert ExpiryDetails.of(task).snapshots_expired == 2
    receipts = task.version

    # Detached: there are old snapshots again, and they stay.
    operator.detach()
    writer.append(4)
    kept = writer.stored()
    service.index_tables(writer.name)
    for _ in range(30):
        service.hours(24)
    assert [one.version for one in service.expiries()] == [receipts]
    assert len(writer.ids()) == 2
    assert writer.stored() == kept

    # Attached again, it acts again.
    operator.attach()
    service.hours(0.3)
    [task] = service.expiries()
    assert (task.status, task.version > receipts) == (Status.SUCCESS, True), task.result_summary
    assert kept - writer.stored() == kept & writer.lake.uris() - writer.needed() != set()


def test_a_policy_that_is_detached_between_submission_and_run_stops_the_task(
    world: PolarisView, service: Service
) -> None:
    operator, writer = Operator(world), Writer(world, service.client, "t")
    operator.create(KEEP_A_WEEK)
    operator.attach(to="t")
    writer.append(1)
    writer.append(2)
    before, ids = writer.stored(), writer.ids()
    service.index_tables(writer.name)
    ensure_submitted(service.tasks, service.health, service.catalog)
    ensure_submitted(service.tasks, service.upkeep, service.catalog)
    service.work([service.health.task_type])
    service.work([service.upkeep.task_type])
    [task] = service.expiries()
    assert task.status is Status.SUBMITTED

    operator.detach(to="t")
    service.work()

    [task] = service.expiries()
    assert task.status is Status.SUCCESS
    assert "before its commit" in str(task.result_summary)
    assert (writer.stored(), writer.ids()) == (before, ids)


def test_a_tables_own_property_keeps_more_than_its_policy(world: PolarisView, service: Service) -> None:
    operator, writer = Operator(world), Writer(world, service.client, "t")
    operator.create(KEEP_A_WEEK)
    operator.attach()
    for minutes in (1, 2, 3):
        writer.append(minutes)
    own = {"delegation.policy.snapshot-expiry.min_snapshot_to_keep": "2"}
    service.client.commit_table(writer.name, [], [{"action": "set-properties", "updates": own}])
    service.index_tables(writer.name)
    service.begin()
    service.hours(0.3)
    [task] = service.expiries()
    assert task.status is Status.SUCCESS, task.result_summary
    assert len(writer.ids()) == 2


def test_a_disabled_policy_of_a_table_hides_that_of_its_namespace(world: PolarisView, service: Service) -> None:
    operator = Operator(world)
    operator.create(KEEP_A_WEEK)
    operator.create(json.dumps({"enable": False}), "off")
    operator.attach()
    writers = [Writer(world, service.client, name) for name in ("a", "b")]
    operator.attach("off", to="a")
    for writer in writers:
        writer.append(1)
        writer.append(2)
    service.index_tables(*(one.name for one in writers))
    service.begin()
    service.hours(0.3)
    assert [len(one.ids()) for one in writers] == [2, 1]


def test_a_table_is_kept_by_its_own_policy_and_not_by_that_of_a_name_that_its_own_encodes_to(
    world: PolarisView, service: Service
) -> None:
    operator = Operator(world)
    operator.create(json.dumps({"enable": False}), "off")
    operator.attach("off")
    operator.create(KEEP_A_WEEK)
    writers = [Writer(world, service.client, name) for name in ("m%n", "m%25n", "m%2525n")]
    operator.attach(to="m%25n")
    for writer in writers:
        for minutes in (1, 2, 3, 4):
            writer.append(minutes)
    service.index_tables(*(one.name for one in writers))
    service.begin()
    service.hours(0.3)
    assert [len(one.ids()) for one in writers] == [4, 1, 4]
