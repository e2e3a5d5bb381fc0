"""The service with a reference index."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from delegation.tasks.life.model import Task
from delegation.wiring.types import TYPES
from tests.kit.dynamodb import MemoryReferenceStore
from tests.kit.lakes.lake import Lake, rows
from tests.kit.lakes.listing import LakeListing
from tests.kit.worlds.service import World


class IndexedWorld(World):
    """A service with a reference index, and a second namespace over the same objects."""

    def __init__(self) -> None:
        super().__init__()
        self.other = Lake()
        self.other.objects = self.other.io.objects = self.lake.objects
        self.listing = LakeListing({("ns",): self.lake, ("other",): self.other})
        self.index = MemoryReferenceStore()
        self.become(replace(self.behavior, catalog=self.listing, references=self.index))

    def purge(self, name: str, **properties: str) -> Task:
        task_id = self.submit(self.body(name, **properties)).task_id
        self.drive()
        return self.tasks.reads.get(task_id)

    def reached(self, name: str) -> list[str]:
        """Return every file of the current state of a table in the other namespace."""
        table = self.other.table(name)
        current = table.current_snapshot()
        assert current is not None
        manifests = current.manifests(self.other.io)
        data = [entry.data_file.file_path for m in manifests for entry in m.fetch_manifest_entry(self.other.io)]
        lists = [snapshot.manifest_list for snapshot in table.snapshots()]
        former = [one.metadata_file for one in table.metadata.metadata_log]
        return [*data, *lists, *former, *(m.manifest_path for m in manifests), self.other.pointers[name]]

    def far_table(self, name: str) -> None:
        """Create a table of the other namespace far from all others."""
        self.other.create(name, location=f"s3://other/far/{name}").append(rows(1))

    def take(self, name: str, count: int = 1) -> list[str]:
        """Have a table of the other namespace take the first data files of `t`; return them."""
        files = sorted(uri for uri in self.lake.below("s3://lake/wh/t/data/") if uri.endswith(".parquet"))[:count]
        self.other.table(name).add_files(files, check_duplicate_files=False)
        return files

    def after_publishing(self, act: Callable[[], object]) -> None:
        """Do something right after each plan is written."""
        put = self.plans.put

        def publish(key: str, data: bytes) -> None:
            put(key, data)
            if key.endswith("index.json"):
                act()

        self.plans.put = publish  # type: ignore[method-assign]

    def readable(self, name: str) -> bool:
        """Return whether all of them exist."""
        return all(self.other.io.new_input(path).exists() for path in self.reached(name))

    def receipt(self, task: Task) -> dict[str, Any]:
        """Return the receipt of the plan that a task executed last."""
        found: dict[str, Any] = json.loads(self.plans.get(str(TYPES.of(task).receipt_key(task))))
        return found
