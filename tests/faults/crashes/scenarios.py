"""The scenarios of the crash matrix for both engines: tables, events during the purge, and checks."""

import dataclasses
import itertools
import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from unittest import mock

from delegation.removal.index import INDEX
from delegation.removal.model import Neighbour
from delegation.removal.purge.context import PurgeContext
from delegation.storage.memory import Faults, MemoryObjectStore
from tests.kit.lakes.lake import Lake, LakeSource, PurgedTables, busy_table, rows

Prepare = Callable[[PurgedTables, PurgeContext], PurgeContext]


def alone(_bench: PurgedTables, ctx: PurgeContext) -> PurgeContext:
    return ctx


def with_a_commit(bench: PurgedTables, ctx: PurgeContext) -> PurgeContext:
    """Append after the data files are deleted, so that the plan is extended."""

    def commit() -> None:
        # The file names are the same each time, because they identify calls.
        names = random.Random(9)
        with mock.patch("uuid.uuid4", side_effect=lambda: uuid.UUID(int=names.getrandbits(128), version=4)):
            bench.lake.table("doomed").append(rows(9, part="z"))

    if ctx.attempt.attempt == 1:
        bench.on_load(ctx, 3, commit)
    return ctx


def beside_a_nested_table(bench: PurgedTables, ctx: PurgeContext) -> PurgeContext:
    store = MemoryObjectStore()
    store.objects = bench.lake.objects
    nested = Neighbour(LakeSource(bench.lake, "nested").load(), store)
    return dataclasses.replace(ctx, neighbours=lambda _roots: [nested])


SCENARIOS: dict[str, Prepare] = {
    "alone": alone,
    "with a commit": with_a_commit,
    "beside a nested table": beside_a_nested_table,
}
# How many plans a purge makes, extensions included, if not 1.
_SEGMENTS = {"with a commit": 2}


@dataclass
class Totals:
    """The totals of one or more matrices."""

    points: int = 0
    objects_left: int = 0
    errors_raised: int = 0
    siblings_harmed: int = 0
    planned_again: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return self.points > 0 and not (
            self.objects_left or self.errors_raised or self.siblings_harmed or self.planned_again or self.problems
        )

    def add(self, other: "Totals") -> None:
        self.points += other.points
        self.objects_left += other.objects_left
        self.errors_raised += other.errors_raised
        self.siblings_harmed += other.siblings_harmed
        self.planned_again += other.planned_again
        self.problems += other.problems

    def error(self, text: str) -> None:
        self.errors_raised += 1
        self.problems.append(text)

    def line(self, name: str) -> str:
        return (
            f"{name}: {self.points} kill points, {self.objects_left} objects left, {self.errors_raised} errors raised, "
            f"{self.siblings_harmed} other tables harmed, {self.planned_again} second plans"
        )


def world() -> Lake:
    lake = Lake()
    busy_table(lake, "doomed")
    busy_table(lake, "sibling")
    busy_table(lake, "nested", location="s3://lake/wh/doomed/data/nested")
    return lake


class Point:
    """One kill point on a separate bench: two attempts and what they leave."""

    def __init__(self, lake: Lake, scenario: str, where: str) -> None:
        self.bench = PurgedTables(lake=lake.copy())
        self.bench.uuid("doomed")
        self.where = where
        self._scenario = scenario
        self._kept = lake.below("s3://lake/wh/sibling/") | lake.below("s3://lake/wh/doomed/data/nested/")
        self._published = 0

    def attempt(self, faults: Faults) -> PurgeContext:
        """Return the context of the next attempt."""
        self._published = len(self.bench.head.read())
        ctx = SCENARIOS[self._scenario](self.bench, self.bench.context("doomed", faults=faults))
        nonces = itertools.count(1)
        return dataclasses.replace(ctx, nonce=lambda: f"{next(nonces):012x}")

    def account(self, totals: Totals) -> None:
        """Count what is left after the last attempt."""
        totals.points += 1
        left = self.bench.lake.below("s3://lake/wh/doomed/") - self._kept
        harmed = self._kept - set(self.bench.lake.uris())
        totals.objects_left += len(left)
        totals.siblings_harmed += bool(harmed)
        totals.problems.extend(f"{self.where}: {uri}" for uri in sorted(left | harmed)[:3])
        if self._published and self._plans_written() > _SEGMENTS.get(self._scenario, 1) - self._published:
            totals.planned_again += 1
            totals.problems.append(f"{self.where}: a published plan was made again")

    def _plans_written(self) -> int:
        """Return the number of plans that the last attempt wrote."""
        last = f"task/{self.bench.attempts}/"
        return sum(key.startswith(last) and key.endswith(f"/{INDEX}") for key in self.bench.plans.objects)
