"""Which task a worker leases next, and how many index queries that takes."""

import itertools
import threading
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any

from delegation.tasks.life.model import Task
from delegation.tasks.life.policy import Lease, Policies, RetryPolicy
from delegation.tasks.stores import codec
from delegation.tasks.stores.base import Create, DueEntry
from delegation.tasks.stores.memory import MemoryTaskStore
from delegation.tasks.work.worker import DueHints, lease_next_available_task
from tests.contract.task_tables import moto_task_store
from tests.kit.tasks.builders import HOUR, NOW, SECOND, Clock, submitted
from tests.kit.tasks.services import task_service

TASK_TYPES = {"TABLE_PURGE"}


class CountingStore(MemoryTaskStore):
    """Records index queries and counts writes."""

    def __init__(self) -> None:
        super().__init__()
        self.queries: list[tuple[str, ...]] = []
        self.writes = 0

    def due(self, now: datetime, *, limit: int = 100, shards: Collection[str] | None = None) -> Sequence[DueEntry]:
        self.queries.append(tuple(shards or codec.due_buckets()))
        return super().due(now, limit=limit, shards=shards)

    def apply(self, change: Any) -> Task:
        self.writes += 1
        return super().apply(change)


class Fleet:
    """Workers of one store, by number."""

    def __init__(self, tasks: int) -> None:
        self.store = CountingStore()
        self.clock = Clock()
        self.service = task_service(self.store, Policies(default=RetryPolicy(), by_type={}), clock=self.clock)
        self.due_hints_by_owner: dict[str, DueHints] = {}
        for n in range(tasks):
            self.store.apply(Create(submitted(f"task-{n:03}", due_at=NOW)))
        self.store.writes = 0

    def lease(self, owner: str) -> Task | None:
        due_hints = self.due_hints_by_owner.setdefault(owner, DueHints())
        return lease_next_available_task(
            self.service, owner, TASK_TYPES, lambda now: Lease.lasting(HOUR, now), due_hints=due_hints
        )


def test_one_query_serves_many_leases() -> None:
    fleet = Fleet(50)
    leased = {task.task_id for _ in range(50) if (task := fleet.lease("w"))}
    assert len(leased) == 50
    assert sum(map(len, fleet.store.queries)) <= 2 * codec.SHARDS
    assert fleet.lease("w") is None


def test_the_result_of_a_query_is_not_used_after_the_clock_was_set_back() -> None:
    fleet = Fleet(10)
    fleet.lease("w")
    fleet.clock.advance(-HOUR)
    assert fleet.lease("w") is None  # by this clock nothing is due yet
    assert {shard for query in fleet.store.queries[1:] for shard in query} == set(codec.due_buckets())


def test_hints_of_a_later_time_are_forgotten() -> None:
    """They are of tasks that are not due yet, and hide none that are."""
    fleet = Fleet(10)
    due_hints = DueHints()
    due_hints.find(fleet.service.reads, "w", fleet.clock(), 50, codec.due_buckets())
    assert len(due_hints.remembered(fleet.clock())) == 10
    assert len(due_hints.remembered(fleet.clock() - SECOND)) == 0


def test_a_new_query_follows_when_others_leased_what_the_last_one_found() -> None:
    fleet = Fleet(400)
    fleet.lease("slow")
    while fleet.lease("fast"):
        pass
    fleet.store.apply(Create(submitted("later", due_at=NOW)))
    read: list[str] = []
    fleet.store.fault = read.append
    assert fleet.lease("slow").task_id == "later"
    assert read.count("before get") == 3


def test_a_query_reads_few_shards_and_each_worker_has_another_order() -> None:
    rounds = {owner: list(DueHints().groups(owner)) for owner in ("a", "b", "c")}
    for groups in rounds.values():
        assert [len(group) for group in groups] == [2, 4, 8, 2]
        assert sorted(shard for group in groups for shard in group) == list(codec.due_buckets())
    assert len({groups[0] for groups in rounds.values()}) > 1
    due_hints = DueHints()
    first = [next(due_hints.groups("a")) for _ in range(codec.SHARDS // 2)]
    assert sorted(shard for group in first for shard in group) == list(codec.due_buckets())


def test_eight_workers_need_few_queries_and_reads_for_each_lease() -> None:
    """Counted in turns: if every query read all shards, each lease would take more than two queries."""
    fleet = Fleet(400)
    reads: list[str] = []
    fleet.store.fault = reads.append
    working = {f"worker-{n}" for n in range(8)}
    while working:
        working = {owner for owner in sorted(working) if fleet.lease(owner) is not None}
    assert fleet.store.writes == 400
    idle = 8 * codec.SHARDS
    assert sum(map(len, fleet.store.queries)) - idle < 1.2 * 400
    assert reads.count("before get") < 1.8 * 400


def test_the_oldest_task_of_an_endless_backlog_is_leased() -> None:
    fleet = Fleet(60)
    fleet.store.apply(Create(submitted("oldest", due_at=NOW - HOUR)))
    for n in range(200):
        task = fleet.lease("w")
        if task.task_id == "oldest":
            break
        fleet.store.apply(Create(submitted(f"newer-{n}", due_at=NOW)))
        fleet.clock.advance(6 * SECOND)
    assert fleet.store.get("oldest").is_held


def test_workers_that_query_at_once_try_different_tasks() -> None:
    """All query the index before any of them leases; still hardly any is refused."""
    fleet = Fleet(48)
    workers = [f"worker-{n}" for n in range(8)]
    first = set()
    for worker in workers:
        due_hints = fleet.due_hints_by_owner.setdefault(worker, DueHints())
        first.add(due_hints.find(fleet.service.reads, worker, fleet.clock(), 50, codec.due_buckets())[0][0].task_id)
    assert len(first) >= 4  # of the eight oldest
    leased = [task.task_id for _ in range(6) for worker in workers if (task := fleet.lease(worker))]
    assert sorted(leased) == [f"task-{n:03}" for n in range(48)]


def test_threads_lease_every_task_once() -> None:
    fleet = Fleet(120)
    found: dict[str, list[str]] = {f"w{n}": [] for n in range(6)}

    def work(owner: str) -> None:
        while (task := fleet.lease(owner)) is not None:
            found[owner].append(task.task_id)

    threads = [threading.Thread(target=work, args=(owner,)) for owner in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    leased = [task_id for tasks in found.values() for task_id in tasks]
    assert sorted(leased) == [f"task-{n:03}" for n in range(120)]
    assert all(len(fleet.store.history(task_id)) == 2 for task_id in leased)


def test_shards_are_queried_in_parallel_and_hold_similar_numbers_of_tasks() -> None:
    with moto_task_store() as store:
        asked: list[tuple[str, str]] = []
        barrier, entered = threading.Barrier(2), itertools.count()
        real = store.dynamodb.client.query

        def query(**arguments: Any) -> Any:
            bucket = arguments["ExpressionAttributeValues"][":bucket"]["S"]
            if next(entered) < 2:
                barrier.wait(timeout=30)  # only passes when a second shard is queried before the first has answered
            asked.append((bucket, arguments["IndexName"]))
            return real(**arguments)

        store.dynamodb.client.query = query
        for n in range(3):
            store.apply(Create(submitted(f"task-{n}", due_at=NOW - timedelta(minutes=n))))
        assert [entry.task_id for entry in store.due(NOW)] == ["task-2", "task-1", "task-0"]
    assert sorted(asked) == [(bucket, "due") for bucket in codec.due_buckets()]
    shares = [codec.due_bucket(submitted().task_id) for _ in range(8_000)]
    assert max(shares.count(bucket) for bucket in set(shares)) < 2 * 8_000 / codec.SHARDS
