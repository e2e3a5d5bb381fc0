"""Drain a dropped schema on a hand-moved clock, in memory or on DynamoDB Local (`make drain`).

A second tenant and a second bucket come when the first has filled all places; small tables of a third tenant come one
by one. Prints the time against the ideal one, waits, and shares; exits with 1 if a task failed or it took too long.
"""

import argparse
import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from delegation.tasks.life.model import Status
from delegation.tasks.life.policy import Policies
from delegation.tasks.stores.memory import MemoryTaskStore
from delegation.wiring.types import default_properties
from infra.local.aws.dynamodb import DynamoDbLocal
from tests.contract.task_tables import dynamodb_client, task_store
from tests.faults.drain.load import SMALL, Load, Outcome, drained
from tests.faults.drain.poison import PoisonedTasks, poisoned_loads
from tests.faults.drain.reads import AdmissionReads
from tests.faults.drain.site import DispatchedTasks

_LIMIT = 1.10
_HEADROOM = 10
"""Concurrent Lambda invocations beyond the cap: for the steps before and after the work."""

LONGEST_OF_MANY = 600
"""Seconds of the work of a table, where many lanes are drained: the drain is to end within minutes of this machine."""
_SAMPLES = 10
"""A share of fewer minutes is not printed."""
_PRINTED = 10
"""Loads that are printed, if there are no more."""
_MOST_QUERIES = 64
"""Of one admission, with however many lanes."""


def loads(tasks: int, slots: int) -> list[Load]:
    """Return the loads; the mean size is about 810 s, so an hour works off 4.4 tasks for each place."""
    part = tasks // 20
    trickle = max(tasks // 100, 1)
    spread = tasks * 810 / slots
    return [
        Load("sales", "lake", tasks - 2 * part - trickle),
        Load("sales", "archive", part, first=spread * 0.1),
        Load("ops", "lake", part, first=spread * 0.3),
        Load("shop", "lake", trickle, longest=SMALL, first=60, every=spread * 0.8 / trickle),
    ]


@contextlib.contextmanager
def opened(*, dynamodb: bool) -> Iterator[Any]:
    if not dynamodb:
        yield MemoryTaskStore()
        return
    with tempfile.TemporaryDirectory() as folder:
        server = DynamoDbLocal(log=Path(folder) / "dynamodb.log").start()
        try:
            with task_store(dynamodb_client(server.url)) as store:
                yield store
        finally:
            server.stop()


def many_lanes(tasks: int, lanes: int) -> list[Load]:
    """Return loads of `lanes` tenants, which all come at once: a schema was dropped in each catalog."""
    return [Load(f"catalog-{n:05d}", "lake", tasks // lanes, longest=LONGEST_OF_MANY) for n in range(lanes)]


def percentile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)] if ordered else 0.0


def report(outcome: Outcome, slots: int) -> str:
    """Return the figures as text."""
    lines = [
        f"ended            {dict(outcome.statuses)}, errors {dict(outcome.errors)}",
        f"took             {outcome.took / 3600:.2f} h, ideal {outcome.ideal / 3600:.2f} h: x{ratio(outcome):.3f}",
        f"running          at most {outcome.most_running} of {slots} places",
        f"small tables     (up to {SMALL} s) {waits(outcome.small_waits)}",
    ]
    for load, found in outcome.waits.items() if len(outcome.waits) <= _PRINTED else ():
        lines.append(f"{load.tenant + '/' + load.bucket:<16} {len(found)} tasks, {waits(found)}")
    for (kind, name), shares in sorted(outcome.shares.places.items()):
        if len(shares) < _SAMPLES:
            continue
        lines.append(f"{kind} {name:<9} has {statistics.mean(shares):.0%} of the places while it and another wait")
    return "\n".join(lines)


def waits(ordered: Sequence[float]) -> str:
    middle, late = percentile(ordered, 0.5), percentile(ordered, 0.99)
    return f"waits: median {middle / 60:.1f} min, p99 {late / 60:.1f} min"


def ratio(outcome: Outcome) -> float:
    return outcome.took / outcome.ideal


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--slots", type=int, default=100)
    parser.add_argument("--lanes", type=int, help="as many tenants with tasks of their own, all from the beginning")
    parser.add_argument("--dynamodb", action="store_true", help="on DynamoDB Local instead of in memory")
    parser.add_argument("--poison", type=int, default=0, help="poisoned tasks of each kind among them, in memory only")
    options = parser.parse_args()
    if options.poison and options.dynamodb:
        parser.error("--poison needs the store in memory")
    properties = {**default_properties(), "delegation.limits.all": str(options.slots)}
    began = time.process_time()
    with opened(dynamodb=options.dynamodb) as store:
        made = PoisonedTasks if options.poison else DispatchedTasks
        site = made(store, Policies.from_properties(properties), lambdas=options.slots + _HEADROOM)
        reads = AdmissionReads(site, store.dynamodb) if options.dynamodb else None
        planned = many_lanes(options.tasks, options.lanes) if options.lanes else loads(options.tasks, options.slots)
        planned += poisoned_loads(options.poison)
        outcome = drained(site, planned, slots=options.slots, shares=not options.lanes)
    sys.stdout.write(f"{report(outcome, options.slots)}\nCPU time         {time.process_time() - began:.0f} s\n")
    if isinstance(site, PoisonedTasks):
        sys.stdout.write(f"poisoned         {site.report()}\n")
    too_many = reads is not None and max(reads.queries) > _MOST_QUERIES
    if reads is not None:
        sys.stdout.write(f"reads            {reads.text}\n")
    return int(set(outcome.statuses) != {Status.SUCCESS} or ratio(outcome) > _LIMIT or too_many)


if __name__ == "__main__":
    sys.exit(main())
