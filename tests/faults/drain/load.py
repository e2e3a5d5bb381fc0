"""The tasks of the drain, and what became of them."""

import json
import math
import random
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from delegation.tasks.life.model import Status, Task
from delegation.tasks.stores.admission import queued
from delegation.tasks.stores.base import TaskStore
from tests.faults.drain.site import DispatchedTasks, nothing
from tests.faults.drain.work import TASK_TYPE, seconds_of

SMALL = 60
"""Seconds of work up to which a table is small."""


@dataclass(frozen=True)
class Load:
    """Tasks that one tenant submits for one bucket: `count` from `first` on, one every `every` seconds.

    With `poison` they are of that kind, and no part of the outcome.
    """

    tenant: str
    bucket: str
    count: int
    longest: float = 7_200
    first: float = 0
    every: float = 0.02
    poison: str = ""

    def payloads(self, dice: random.Random) -> Iterator[dict[str, object]]:
        """Sizes from 1 s to `longest`, evenly over the orders of magnitude."""
        if self.poison:
            poisoned = {
                "tenant": self.tenant,
                "bucket": self.bucket,
                "seconds": 5,
                "small": True,
                "poison": self.poison,
            }
            yield from (poisoned for _ in range(self.count))
            return
        for _ in range(self.count):
            seconds = math.exp(dice.uniform(0, math.log(self.longest)))
            yield {"tenant": self.tenant, "bucket": self.bucket, "seconds": seconds, "small": seconds <= SMALL}


def submit(site: DispatchedTasks, loads: Sequence[Load], seed: int = 1) -> float:
    """Submit every task at its time, and return the seconds of all their work."""
    dice = random.Random(seed)
    total = 0.0
    for load in loads:
        for n, payload in enumerate(load.payloads(dice)):
            total += float(payload["seconds"])  # type: ignore[arg-type]
            text = json.dumps(payload)
            task_id = str(uuid.UUID(int=dice.getrandbits(128), version=4))

            def create(task_id: str = task_id, text: str = text) -> None:
                site.tasks.submission.create(
                    site.tasks.submission.first(task_id=task_id, task_type=TASK_TYPE, payload=text)
                )

            site.after(timedelta(seconds=load.first + n * load.every), create)
    return total


def heads(store: TaskStore) -> Iterator[Task]:
    cursor = None
    while True:
        page = store.heads(cursor=cursor, limit=1_000)
        yield from page.tasks
        cursor = page.cursor
        if cursor is None:
            return


class Shares:
    """How many places each tenant and bucket has while others wait, looked at every minute."""

    def __init__(self, site: DispatchedTasks) -> None:
        self._site = site
        self.places: dict[tuple[str, str], list[float]] = defaultdict(list)
        self.most = 0

    def look(self) -> None:
        running = self._site.store.running()
        self.most = max(self.most, len(running))
        waiting = {one.lane for one in queued(self._site.store, self._site.clock(), each=1)}
        tenants = {lane.tenant for lane in waiting}
        for tenant in tenants if len(tenants) > 1 else ():
            self._note("tenant", tenant, [one.lane.tenant for one in running])
        for tenant in tenants:
            buckets = {lane.bucket for lane in waiting if lane.tenant == tenant}
            for bucket in buckets if len(buckets) > 1 else ():
                self._note("bucket", bucket, [one.lane.bucket for one in running if one.lane.tenant == tenant])

    def _note(self, kind: str, name: str, among: Sequence[str]) -> None:
        if among:
            self.places[kind, name].append(among.count(name) / len(among))


@dataclass(frozen=True)
class Outcome:
    """The end of a drain; `ideal` and `took` in seconds, `waits` by load in ascending order."""

    ideal: float
    took: float
    statuses: Counter[Status]
    errors: Counter[str]
    most_running: int
    waits: Mapping[Load, Sequence[float]]
    small_waits: Sequence[float]
    shares: Shares


def drained(
    site: DispatchedTasks,
    loads: Sequence[Load],
    *,
    slots: int,
    most: timedelta = timedelta(days=30),
    shares: bool = True,
) -> Outcome:
    """Submit the loads, let the deployment work until every task has ended, and return what came of it."""
    began = site.clock()
    total = submit(site, loads)
    loads = [load for load in loads if not load.poison]
    count = sum(load.count for load in loads)
    ended, looked = site.count_ends(), Shares(site)
    site.keep_sweeping(looked.look if shares else nothing)
    site.run(lambda: ended() == count or site.clock() > began + most)
    found = [task for task in heads(site.store) if site.is_good(task)]
    waited = {task_id: wait.total_seconds() for task_id, wait in site.behavior.waited.items()}
    of_load = {(load.tenant, load.bucket): load for load in loads}
    waits: dict[Load, list[float]] = {load: [] for load in loads}
    for task in found:
        stated = json.loads(task.task_payload)
        waits[of_load[stated["tenant"], stated["bucket"]]].append(waited[task.task_id])
    return Outcome(
        ideal=max(total / slots, *(seconds_of(task) for task in found)),
        took=(site.clock() - began).total_seconds(),
        statuses=Counter(task.status for task in found),
        errors=Counter(task.error_code for task in found if task.error_code is not None),
        most_running=site.most_running,
        waits={load: sorted(found) for load, found in waits.items()},
        small_waits=sorted(waited[task.task_id] for task in found if seconds_of(task) <= SMALL),
        shares=looked,
    )
