"""Removals of orphan files as tasks, with a reference index over two namespaces and tables that pyiceberg writes.

The store's objects that no test dated were written in 1970.
"""

import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from delegation.operations.orphans.behavior.details import OrphanDetails
from delegation.operations.orphans.behavior.kinds import KIND
from delegation.operations.orphans.behavior.limits import OrphanLimits
from delegation.operations.orphans.behavior.run import OrphansBehavior
from delegation.operations.orphans.place import Place
from delegation.operations.purge.behavior.run import PurgeBehavior
from delegation.orchestration.steps import Steps
from delegation.orchestration.sweep import sweep
from delegation.storage.memory import Faults
from delegation.tasks.life.model import Task
from delegation.tasks.work.behaviors import Behaviors, FunctionBehavior
from delegation.worksets.chunks import Phase
from delegation.worksets.index import load_index, planned_paths
from tests.unit.edge.world import REALM
from tests.unit.operations.orphans.world import SMALL
from tests.unit.operations.purge.behavior.test_references import IndexedWorld
from tests.unit.operations.purge.lake import LakeSource

AT_ONCE = {"delegation.orphan-files.first-run": "delete", "delegation.orphan-files.max-share": "1"}
"""What is found is deleted without a person."""


class SweepingWorld(IndexedWorld):
    """The service with purges, an index and removals of orphan files."""

    def __init__(self, properties: Mapping[str, str] = AT_ONCE) -> None:
        self.orphans: OrphansBehavior | None = None
        super().__init__()
        self.faults = Faults()
        self.places: list[Place] = []
        self.orphans = OrphansBehavior(
            tasks=self.tasks,
            open_table=lambda identifier: (LakeSource(self.lake, identifier.name, self.faults), self.objects),
            plans=self.plans,
            search=self.behavior.search,
            places=lambda _catalogs, before: before() or list(self.places),
            hold=self.behavior.hold,
            limits=OrphanLimits.from_properties(properties),
            settings=SMALL,
            monotonic=self.seconds,
            sleep=self.sleep,
        )
        self.become(self.behavior, properties)

    def become(self, behavior: PurgeBehavior, properties: Mapping[str, str] = {}) -> None:
        super().become(behavior, properties)
        indexing = behavior.reference_task()
        more = [] if indexing is None else [FunctionBehavior(self.tasks, indexing)]
        behaviors = Behaviors([behavior, *([] if self.orphans is None else [self.orphans]), *more])
        self.kinds = frozenset(behaviors)
        self.steps = Steps(self.tasks, self.kinds, behaviors=behaviors)

    def later(self, hours: float) -> None:
        """Let time pass, and the sweeper dispatch what is due."""
        self.clock.advance(timedelta(hours=hours))
        for swept in sweep(self.tasks, self.kinds, deadline=self.deadline(), clock=self.clock):
            assert swept.error is None, swept.error
        self.drive()

    def plant(self, *names: str, days: float | None = None) -> set[str]:
        """Put objects below the location of the table `t`, written in 1970 or some days ago."""
        for name in names:
            self.lake.objects["lake", f"wh/t/{name}"] = b"orphan"
            self.objects.modified.pop(("lake", f"wh/t/{name}"), None)
            if days is not None:
                self.objects.modified["lake", f"wh/t/{name}"] = int(time.time() - days * 86_400)
        return {f"s3://lake/wh/t/{name}" for name in names}

    def request(self, name: str = "t", **properties: str) -> dict[str, Any]:
        identity = {"catalog_name": "cat", "namespace_levels": ["ns"], "table_name": name}
        return {
            "common_payload": {"operation_type": KIND, "realm_identifier": REALM},
            "operation_parameters": {
                "table_identity": identity,
                "properties": {one.replace("_", "-"): value for one, value in properties.items()},
            },
        }

    def ask(self, name: str = "t", **properties: str) -> Task:
        """Have a request run until it ends or waits; requests come an hour apart."""
        self.clock.advance(timedelta(hours=1))
        task_id = self.submit(self.request(name, **properties)).task_id
        self.drive()
        return self.tasks.reads.get(task_id)

    def uris(self) -> set[str]:
        return set(self.lake.uris())

    def planned(self, task: Task) -> set[str]:
        """Return the files of a task's plan."""
        indexes = [load_index(self.plans, segment) for segment in OrphanDetails.of(task).plan_segments]
        return set(planned_paths(self.plans, indexes, (Phase.DATA,)))

    def needed(self, name: str = "t") -> set[str]:
        """Return every file that the snapshots of a table and its metadata log name, as pyiceberg finds them."""
        table = self.lake.table(name)
        found = {self.lake.pointers[name], *(one.metadata_file for one in table.metadata.metadata_log)}
        for snapshot in table.snapshots():
            found.add(snapshot.manifest_list)
            for manifest in snapshot.manifests(self.lake.io):
                found.add(manifest.manifest_path)
                found |= {
                    one.data_file.file_path
                    for one in manifest.fetch_manifest_entry(self.lake.io, discard_deleted=False)
                }
        return found

    def waiting(self, task: Task) -> str:
        """Return the id of the plan that waits for approval."""
        plan = OrphanDetails.of(task).waiting_plan
        assert plan is not None, task.result_summary
        return plan.id
