"""Expiries by this service of tables that Spark wrote (tests/fixtures), in memory."""

from dataclasses import dataclass
from datetime import UTC, datetime

from delegation.removal.attempt import MemoryAttempt, PlanSegment
from delegation.removal.chunks import Phase
from delegation.removal.expiry.context import ExpiryContext, ExpiryIndex, ExpiryResult
from delegation.removal.expiry.retention import Retention
from delegation.removal.expiry.run import expire_snapshots
from delegation.removal.index import load_index_as, planned_paths
from delegation.storage.memory import MemoryObjectStore, MemoryPlanStore
from tests.actions.lake import SparkLake
from tests.kit.lakes.lake import LakeSource, identifier
from tests.kit.stories.expiries import SMALL


@dataclass(frozen=True, slots=True)
class Expiry:
    """What an expiry of this service did: its result, the objects deleted, and those kept for a reason."""

    result: ExpiryResult
    deleted: frozenset[str]
    kept: frozenset[str]


def expire(lake: SparkLake, name: str, retention: Retention) -> Expiry:
    """Expire snapshots of a table, beside the other tables of the lake."""
    before = set(lake.uris())
    store, plans = MemoryObjectStore(), MemoryPlanStore()
    store.objects = lake.objects
    ctx = ExpiryContext(
        attempt=MemoryAttempt("task"),
        identifier=identifier(name),
        table_uuid=str(lake.metadata(name)["table-uuid"]),
        tables=LakeSource(lake, name, prefixes=("s3://lake/",)),
        commits=lake,
        store=store,
        plans=plans,
        retention=retention,
        settings=SMALL,
        neighbours=lambda _roots: list(lake.neighbours(name)),
        clock=lambda: datetime.fromtimestamp(lake.now_ms / 1000, UTC),
    )
    result = expire_snapshots(ctx)
    indexes = [load_index_as(ExpiryIndex, plans, segment) for segment in ctx.attempt.plan()]
    indexes += [
        load_index_as(ExpiryIndex, plans, PlanSegment(one.id, one.sha256)) for index in indexes for one in index.reduces
    ]
    kept = set(planned_paths(plans, indexes, (Phase.KEPT,)))
    return Expiry(result, frozenset(before - set(lake.uris())), frozenset(kept))
