"""Removals by this service of orphan files of tables that Spark wrote (tests/fixtures), in memory."""

from datetime import UTC, datetime
from typing import Any

from delegation.removal.attempt import MemoryAttempt
from delegation.removal.orphans.context import OrphanContext, OrphanOptions
from delegation.removal.orphans.place import MismatchMode
from delegation.removal.orphans.run import remove_orphan_files
from delegation.storage.memory import MemoryObjectStore, MemoryPlanStore
from tests.actions.lake import SparkLake, where
from tests.kit.lakes.lake import LakeSource, identifier
from tests.kit.stories.orphans import AT_ONCE, SMALL
from tests.orphans.plants import LIMIT
from tests.orphans.questions import SweepQuestion


class LiveReferences:
    """References that are always as of now."""

    def summary(self) -> list[dict[str, Any]]:
        return []

    def renew(self) -> None:
        return None


def planted_lake(question: SweepQuestion, now_ms: int) -> SparkLake:
    """Return the lake that a question begins with."""
    lake = SparkLake(question.scenario, now_ms)
    for uri, data in question.added().items():
        lake.objects[where(uri)] = data
    lake.pointers[question.table] = question.begins_with
    return lake


def sweep(lake: SparkLake, question: SweepQuestion) -> set[str]:
    """Remove the orphan files of a table beside the lake's other tables, or raise; return the objects deleted."""
    before = set(lake.uris())
    name, mismatch = question.table, question.options.mismatch or MismatchMode.ERROR
    store = MemoryObjectStore(clock=lambda: lake.now_ms / 1000)
    store.objects = lake.objects
    # What is not planted was written in 1970.
    store.modified = {where(one.uri): int(lake.now_ms / 1000 - one.age.total_seconds()) for one in question.planted}
    ctx = OrphanContext(
        attempt=MemoryAttempt("task"),
        identifier=identifier(name),
        table_uuid=str(lake.metadata(name)["table-uuid"]),
        tables=LakeSource(lake, name, prefixes=("s3://lake/",)),
        store=store,
        plans=MemoryPlanStore(),
        neighbours=lambda _roots: list(lake.neighbours(name)),
        references=LiveReferences(),
        places=list,
        claims=list,
        options=OrphanOptions(
            older_than=LIMIT, equal=question.options.equal(), mismatch=mismatch, loosest=mismatch, limits=AT_ONCE
        ),
        settings=SMALL,
        clock=lambda: datetime.fromtimestamp(lake.now_ms / 1000, UTC),
        now=lambda: 0.0,
        sleep=lambda _seconds: None,
    )
    remove_orphan_files(ctx)
    return before - set(lake.uris())
