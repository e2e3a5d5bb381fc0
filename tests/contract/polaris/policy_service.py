"""The service's passes over a Polaris: stores in memory, a clock of its own, and one kind of policies."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from datetime import timedelta
from typing import Any

from delegation.identifiers import TableIdentifier
from delegation.polaris.client import PolarisClient
from delegation.polaris.policies import PolicyClient
from delegation.references.model import CatalogPass, TableEntry
from delegation.references.recurring import ensure_submitted
from delegation.storage.base import ObjectStore
from delegation.tasks.life.model import Task
from delegation.tasks.stores.memory import MemoryTaskStore
from delegation.tasks.work.behaviors import Behaviors, FunctionBehavior, TaskBehavior
from delegation.tasks.work.worker import Worker, WorkerSettings
from delegation.timestamps import utc_now
from delegation.upkeep.execution.kinds import PolicyKind
from delegation.upkeep.execution.passes import catalog_upkeep
from delegation.upkeep.execution.permissions import PolicyPermissions
from delegation.upkeep.health.refresh import HealthRefresher, catalog_health
from delegation.upkeep.rules.limits import UpkeepLimits, UpkeepSettings
from delegation.wiring.table_access import vended_table
from delegation.wiring.types import TYPES, default_properties
from tests.contract.polaris.world import PolarisView
from tests.kit.dynamodb import MemoryHealthStore, MemoryReferenceStore
from tests.kit.tasks.services import task_service


class PolicyService:
    """The service over a Polaris; `hours` is what time and a worker do. `kind` reads the policies of one type, and a
    subclass adds with `behaviors` what runs their tasks."""

    def __init__(
        self, world: PolarisView, client: PolarisClient, kind: Callable[..., PolicyKind], limits: UpkeepLimits
    ) -> None:
        self.world = world
        self.catalog = world.polaris.warehouse
        self.client = client
        self.now = utc_now() + timedelta(days=30)
        policies, settings = PolicyClient(client.requests), UpkeepSettings()
        self.permissions = PolicyPermissions(policies, limits)
        self.index, self.healths = MemoryReferenceStore(), MemoryHealthStore()
        self.store = MemoryTaskStore()
        self.tasks = task_service(self.store, default_properties(), clock=lambda: self.now, types=TYPES)
        self.health = catalog_health(lambda _run: self.refresher(), every=timedelta(hours=1))
        self.upkeep = catalog_upkeep(
            lambda run: [
                kind(
                    world.polaris.realm,
                    self.healths,
                    client,
                    policies,
                    self.tasks,
                    limits,
                    settings,
                    lambda: self.now,
                    checkpoint=run.checkpoint,
                )
            ],
            every=settings.interval,
        )

    def behaviors(self) -> Sequence[TaskBehavior]:
        raise NotImplementedError

    def files(self, name: TableIdentifier) -> ObjectStore:
        return vended_table(self.client, name, clock=utc_now)[1]

    def refresher(self) -> HealthRefresher:
        return HealthRefresher(
            self.healths, self.index, self.client, lambda loaded: self.files(loaded.identifier), lambda: self.now
        )

    def index_tables(self, *names: TableIdentifier) -> None:
        """Make what a pass of the reference index makes."""
        for name in names:
            loaded, before = self.client.load_table(name, vend=False), self.index.get(name)
            revision = 0 if before is None else before.revision
            self.index.put(TableEntry(name, loaded.table_uuid, loaded.metadata_location, revision=revision))
        state = self.index.pass_of(self.catalog)
        if state.complete_as_of is None:
            self.index.write_pass(state, CatalogPass(self.catalog, complete_as_of=self.now))

    def work(self, kinds: Sequence[str] | None = None) -> None:
        """Run what is due until nothing is, only tasks of some types if they are given."""
        passes = [FunctionBehavior(self.tasks, self.health), FunctionBehavior(self.tasks, self.upkeep)]
        every = Behaviors([*self.behaviors(), *passes])
        chosen = Behaviors([behavior for kind, behavior in every.items() if kinds is None or kind in kinds])
        worker = Worker(self.tasks, chosen, WorkerSettings(owner="worker"), waits=_until_done)
        while worker.run_once() is not None:
            pass

    def hours(self, hours: float, kinds: Sequence[str] | None = None) -> None:
        self.now += timedelta(hours=hours)
        self.work(kinds)

    def begin(self) -> None:
        """Do what the first complete pass of the index does."""
        ensure_submitted(self.tasks, self.health, self.catalog)
        ensure_submitted(self.tasks, self.upkeep, self.catalog)
        self.work()

    def of_type(self, task_type: str) -> list[Task]:
        return [task for task in self.store.heads().tasks if task.task_type == task_type]


def _until_done(work: "Future[Any]", _seconds: float) -> bool:
    wait([work])
    return True
