"""The plan of an expiry: a plan of files to delete, and what the commit before it removes from the metadata."""

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from delegation.operations.expiry.history import history
from delegation.operations.expiry.retention import Expired
from delegation.storage.base import PlanStore
from delegation.worksets.attempt import PlanSegment
from delegation.worksets.chunks import Stored
from delegation.worksets.index import PlanIndex, ReplacedPlan, load_index_as


class Removal(Stored):
    """What the commit removes: snapshots, refs with the snapshot that each was at, schemas, partition specs."""

    snapshot_ids: tuple[int, ...] = ()
    refs: dict[str, int] = Field(default_factory=dict)
    schema_ids: tuple[int, ...] = ()
    spec_ids: tuple[int, ...] = ()

    @classmethod
    def of(cls, metadata: Mapping[str, Any], gone: Expired) -> "Removal":
        """Return what is removed from metadata, in order."""
        refs = history(metadata).refs
        return cls(
            snapshot_ids=tuple(sorted(gone.snapshot_ids)),
            refs={name: refs[name].snapshot_id for name in sorted(gone.refs)},
            schema_ids=tuple(sorted(gone.schema_ids)),
            spec_ids=tuple(sorted(gone.spec_ids)),
        )

    def gone_from(self, metadata: Mapping[str, Any]) -> "Removal":
        """Return what of it metadata has no more; raise CorruptMetadata."""
        found = history(metadata)
        return Removal(
            snapshot_ids=tuple(one for one in self.snapshot_ids if one not in found.snapshots),
            refs={name: at for name, at in self.refs.items() if name not in found.refs},
            schema_ids=tuple(one for one in self.schema_ids if one not in found.schema_ids),
            spec_ids=tuple(one for one in self.spec_ids if one not in found.spec_ids),
        )


class ExpiryIndex(PlanIndex):
    """The index of an expiry's plan. `reduces` are the plans that it replaced, the first one first.

    A plan is reduced after the commit, when a file in it turns out to be needed; never extended. What was deleted by a
    reduced plan has its marks beside that one.
    """

    removal: Removal
    reduces: tuple[ReplacedPlan, ...] = ()

    @property
    def origin(self) -> str:
        """The id of the plan as it was before the commit."""
        return self.reduces[0].id if self.reduces else self.plan_id


def load_plan(store: PlanStore, segment: PlanSegment) -> ExpiryIndex:
    """Return a published index; raise PlanLost, or PlanTampered if it is altered or of another operation."""
    return load_index_as(ExpiryIndex, store, segment)
