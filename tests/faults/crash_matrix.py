"""Kill an inline purge before and after every call that it makes, run it again, and count what is left.

    PYTHONPATH=functions:. python tests/faults/crash_matrix.py

Calls are those to the table's store, the plan's store, the catalog and the task. Each scenario is played once to learn
how many there are, then once for each of them, twice: the call has no effect, or it has and its answer is lost. The
last line holds the totals; the exit status is 1 when anything is left, raised or missing.
"""

import dataclasses
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from delegation.errors import DelegationError
from delegation.purge.context import Neighbour, PurgeContext
from delegation.purge.engine import purge_table
from delegation.purge.memory import Faults, Killed, MemoryObjectStore
from tests.unit.purge.lake import Bench, Lake, LakeSource, busy_table, rows

Prepare = Callable[[Bench, PurgeContext], PurgeContext]


def alone(_bench: Bench, ctx: PurgeContext) -> PurgeContext:
    return ctx


def with_a_commit(bench: Bench, ctx: PurgeContext) -> PurgeContext:
    """A writer appends after the data files went, so that the plan is extended."""
    if ctx.attempt.attempt == 1:
        writer = bench.lake.table("doomed")
        bench.on_load(ctx, 3, lambda: writer.append(rows(9, part="z")))
    return ctx


def beside_a_nested_table(bench: Bench, ctx: PurgeContext) -> PurgeContext:
    store = MemoryObjectStore()
    store.objects = bench.lake.objects
    nested = Neighbour(LakeSource(bench.lake, "nested").load(), store)
    return dataclasses.replace(ctx, neighbours=lambda: [nested])


SCENARIOS: dict[str, Prepare] = {
    "alone": alone,
    "with a commit": with_a_commit,
    "beside a nested table": beside_a_nested_table,
}


@dataclass
class Totals:
    """What the whole matrix came to."""

    points: int = 0
    objects_left: int = 0
    errors_raised: int = 0
    siblings_harmed: int = 0
    told: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return self.points > 0 and not (self.objects_left or self.errors_raised or self.siblings_harmed)

    def line(self) -> str:
        return (
            f"crash-matrix: {self.points} kill points, {self.objects_left} objects left, "
            f"{self.errors_raised} errors raised, {self.siblings_harmed} sibling tables harmed"
        )


def world() -> Lake:
    lake = Lake()
    busy_table(lake, "doomed")
    busy_table(lake, "sibling")
    busy_table(lake, "nested", location="s3://lake/wh/doomed/data/nested")
    return lake


def play(lake: Lake, name: str, *, step: int = 1, totals: Totals | None = None) -> Totals:
    """Every `step`th point of one scenario."""
    totals = totals or Totals()
    kept = lake.below("s3://lake/wh/sibling/") | lake.below("s3://lake/wh/doomed/data/nested/")
    counted = Faults()
    _run(Bench(lake=lake.copy()), name, counted)
    for after in (False, True):
        for number in range(1, counted.calls + 1, step):
            bench = Bench(lake=lake.copy())
            bench.uuid("doomed")
            totals.points += 1
            where = f"{name}, {'after' if after else 'before'} call {number} ({counted.names[number - 1]})"
            try:
                _run(bench, name, Faults(kill_at=number, after=after))
            except Killed:
                pass
            else:
                totals.told.append(f"{where}: was not killed")
                totals.errors_raised += 1
            try:
                _run(bench, name, Faults())
            except DelegationError as error:
                totals.errors_raised += 1
                totals.told.append(f"{where}: {error.code}: {error}")
            left = bench.lake.below("s3://lake/wh/doomed/") - kept
            harmed = kept - set(bench.lake.uris())
            totals.objects_left += len(left)
            totals.siblings_harmed += bool(harmed)
            totals.told.extend(f"{where}: {uri}" for uri in sorted(left | harmed)[:3])
    return totals


def _run(bench: Bench, name: str, faults: Faults) -> None:
    purge_table(SCENARIOS[name](bench, bench.context("doomed", faults=faults)))


def main() -> int:
    totals, lake = Totals(), world()
    for name in SCENARIOS:
        before = totals.points
        play(lake, name, totals=totals)
        sys.stdout.write(f"{name}: {totals.points - before} points\n")
    sys.stdout.write("".join(f"{line}\n" for line in (*totals.told, totals.line())))
    return 0 if totals.clean else 1


if __name__ == "__main__":
    sys.exit(main())
