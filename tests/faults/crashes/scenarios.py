"""The scenarios of the crash matrix for both engines: tables, events during the purge, and checks."""

import dataclasses
import itertools
import random
import uuid
from collections.abc import Callable
from unittest import mock

from delegation.removal.index import INDEX
from delegation.removal.neighbourhood import Neighbour
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


def world() -> Lake:
    lake = Lake()
    busy_table(lake, "doomed")
    busy_table(lake, "sibling")
    busy_table(lake, "nested", location="s3://lake/wh/doomed/data/nested")
    return lake


class Point:
    """One kill point on a separate bench: two attempts and what they leave."""

    def __init__(self, lake: Lake, scenario: str) -> None:
        self.bench = PurgedTables(lake=lake.copy())
        self.bench.uuid("doomed")
        self._scenario = scenario
        self._kept = lake.below("s3://lake/wh/sibling/") | lake.below("s3://lake/wh/doomed/data/nested/")
        self._published = 0

    def attempt(self, faults: Faults) -> PurgeContext:
        """Return the context of the next attempt."""
        self._published = len(self.bench.head.read())
        ctx = SCENARIOS[self._scenario](self.bench, self.bench.context("doomed", faults=faults))
        nonces = itertools.count(1)
        return dataclasses.replace(ctx, nonce=lambda: f"{next(nonces):012x}")

    def left(self) -> set[str]:
        """Return the files of the purged table that are left."""
        return self.bench.lake.below("s3://lake/wh/doomed/") - self._kept

    def harmed(self) -> list[str]:
        """Return the files of other tables that are gone."""
        return sorted(self._kept - set(self.bench.lake.uris()))

    def wrong_at_end(self) -> list[str]:
        """Return what else is wrong after the last attempt."""
        again = self._published and self._plans_written() > _SEGMENTS.get(self._scenario, 1) - self._published
        return [
            *(f"{one} is left" for one in sorted(self.left())[:3]),
            *(["a published plan was made again"] * bool(again)),
        ]

    def _plans_written(self) -> int:
        """Return the number of plans that the last attempt wrote."""
        last = f"task/{self.bench.attempts}/"
        return sum(key.startswith(last) and key.endswith(f"/{INDEX}") for key in self.bench.plans.objects)
