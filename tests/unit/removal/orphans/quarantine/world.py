"""Tables whose orphan files an operator's role tags, and the bucket's lifecycle rule for the tag."""

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from delegation.removal.orphans.context import OrphanResult
from delegation.removal.orphans.quarantine import Restoration, UntagRun
from delegation.storage.listing.model import TAG
from delegation.storage.memory import MemoryObjectStore
from tests.kit.stories.orphans import SweptTables
from tests.kit.stories.tables import StoryTable

NAMES = ("a.parquet", "b.parquet", "p=1/c c%.parquet", "p=2/ü\u2028.parquet", "e.parquet")


class Lagoon(SweptTables):
    """A beach of which an operator's role may tag the objects."""

    role = "s3://lake/wh/t/"
    tags: dict[Any, Any]

    def context(self, table: StoryTable, **more: Any) -> Any:
        ctx = super().context(table, **{"quarantine": True, **more})
        self.tags = self.store.tags = getattr(self, "tags", {})
        return replace(ctx, tags=self._opened)

    def _opened(self, bucket: str, location: str) -> MemoryObjectStore:
        assert (bucket, location) == ("lake", self.role)
        return self.store

    def tagged(self) -> set[str]:
        """Return the paths of the objects with the tag, as they are now."""
        now = {(bucket, self.store._listed(bucket, key)) for bucket, key in self.lake.objects}
        return {
            f"s3://{bucket}/{one.key}"
            for (bucket, one), tags in self.tags.items()
            if tags.get(TAG[0]) == TAG[1] and (bucket, one) in now
        }

    def lifecycle(self) -> set[str]:
        """Delete what has the tag, as the bucket's rule does some time, and return the paths."""
        gone = self.tagged()
        for path in gone:
            del self.lake.objects["lake", path.removeprefix("s3://lake/")]
        return gone

    def planted(self, names: Iterable[str] = NAMES) -> set[str]:
        found = {self.orphan(f"s3://lake/wh/t/data/{name}", name.encode()) for name in names}
        self.lake.pass_days(4)
        return found

    def receipt(self, result: OrphanResult) -> dict[str, Any]:
        assert result.receipt is not None
        return dict(json.loads(self.plans.get(result.receipt)))

    def restore(self, result: OrphanResult, **more: Any) -> Restoration:
        return UntagRun(self.store, self.plans, result.plan_ids, result.location, **more).run()


def lagoon() -> tuple[Lagoon, StoryTable, set[str]]:
    """Return a table with five orphan files that are four days old."""
    world = Lagoon()
    table = world.table()
    return world, table, world.planted()


def restored_files(found: Restoration) -> dict[str, int]:
    return {str(state): one.files for state, one in found.amounts.items() if one.files}
