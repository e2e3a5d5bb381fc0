"""Commits on DynamoDB Local: round trips and write units per commit, and commits per second, single and grouped.

    PYTHONPATH=functions:. python tests/bench/bench_commits.py [--commits N] [--tables N ...] [--threads N ...]

A commit changes a random table. Write units are those that DynamoDB would bill, one for each started KB of a row,
spilled stripes included. Most of a commit's time is reading the server's answers here, so compare ratios.
"""

import contextlib
import itertools
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from infra.local.aws.dynamodb import DynamoDbLocal
from polaris_persistence.backends.base import Backend
from polaris_persistence.backends.dynamodb import Calls, DynamoDbBackend
from polaris_persistence.commits.commits import Changed, CommitAttempt
from polaris_persistence.commits.committer import CommitRetries, Committer
from polaris_persistence.commits.entities import HEAD_TYPE, EntityChanges, EntityHead, seal
from polaris_persistence.ids.snowflake import EPOCH_MS, join_id
from polaris_persistence.index.keys import IndexKey
from polaris_persistence.index.spill import IndexPolicy
from polaris_persistence.index.stripes import STRIPES
from polaris_persistence.objects.cache import Cache
from polaris_persistence.objects.objects import ObjectRef
from polaris_persistence.objects.store import CatalogStore
from polaris_persistence.objects.types import ObjectTypes
from tests.bench.frame import options
from tests.kit.printing import print_now
from tests.persistence.builders import ENTITY, Entity
from tests.persistence.contract.backends import create_tables, dynamodb_client

TYPES = ObjectTypes([ENTITY, HEAD_TYPE, STRIPES])


class MeteredClient:
    """Counts calls, and the write units that the server states."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._lock = threading.Lock()
        self.calls: Counter[str] = Counter()
        self.units = 0.0

    def __getattr__(self, operation: str) -> Any:
        real = getattr(self._client, operation)
        if operation == "meta":
            return real

        def call(**arguments: Any) -> Any:
            writes = operation in {"batch_write_item", "put_item", "update_item"}
            with self._lock:
                self.calls[operation] += 1
            answer = real(**arguments, **({"ReturnConsumedCapacity": "TOTAL"} if writes else {}))
            used = answer.get("ConsumedCapacity", []) if writes else []
            with self._lock:
                self.units += sum(one["CapacityUnits"] for one in (used if isinstance(used, list) else [used]))
            return answer

        return call

    def reset(self) -> None:
        self.calls.clear()
        self.units = 0.0


def key_of(number: int) -> IndexKey:
    return IndexKey.of(f"ns{number % 100:03}", f"table_{number:06}")


def change_of(number: int) -> Any:
    def change(attempt: CommitAttempt[EntityHead]) -> Changed[EntityHead, None]:
        entities = EntityChanges(attempt)
        entities.put(key_of(number), Entity(name=f"table_{number:06}", number=number))
        return Changed(entities.head, None)

    return change


def loading(numbers: range, new_id: Callable[[], int]) -> Any:
    """Return a change that adds table names; the objects are never read."""

    def change(attempt: CommitAttempt[EntityHead]) -> Changed[EntityHead, None]:
        # Not by `link`, which refuses objects that nobody wrote.
        head = attempt.head or EntityHead()
        return Changed(head.with_changes({key_of(one): ObjectRef("entity", new_id()) for one in numbers}), None)

    return change


def process(backend: Backend, node: int, types: ObjectTypes = TYPES) -> CatalogStore:
    """Return the catalog of a new process, with an empty cache."""
    started = time.time_ns() // 1_000_000 - EPOCH_MS
    ids = (join_id(started + number // 4, node, number % 4096) for number in itertools.count())
    return CatalogStore(
        backend,
        realm="realm",
        catalog="catalog",
        types=types,
        cache=Cache(200_000_000, clock=time.monotonic),
        new_id=ids.__next__,
        now_us=lambda: time.time_ns() // 1_000,
    )


@contextlib.contextmanager
def catalog(url: str, tables: int, group_size: int) -> Iterator[tuple[Committer[EntityHead], MeteredClient]]:
    with contextlib.closing(dynamodb_client(url)) as client:
        objects, references = create_tables(client)
        metered = MeteredClient(client)
        store = process(DynamoDbBackend(Calls(metered), objects=objects, references=references), 7)
        store.create_reference("main")
        committer = Committer(
            store,
            "main",
            EntityHead,
            seal=seal(IndexPolicy()),
            group_size=group_size,
            retry=CommitRetries(tries=10_000, seconds=600),
        )
        for start in range(0, tables, 50_000):
            committer.commit(loading(range(start, min(start + 50_000, tables)), store.new_id))
        metered.reset()
        yield committer, metered
        for table in (objects, references):
            client.delete_table(TableName=table)


def cost(url: str, tables: int, commits: int) -> None:
    """Print the cost of sequential commits, after enough of them to spill every stripe several times."""
    draw = random.Random(1)
    with catalog(url, tables, 1) as (committer, metered):
        for _ in range(commits // 4):
            committer.commit(change_of(draw.randrange(tables)))
        metered.reset()
        for _ in range(commits):
            committer.commit(change_of(draw.randrange(tables)))
        trips = sum(metered.calls.values()) / commits
        print_now(f"{tables:>7} tables: {trips:.3f} round trips and {metered.units / commits:.2f} write units a commit")


def retried(url: str) -> None:
    """Print the cost of commits that each lose one race against another process."""
    with catalog(url, 1_000, 1) as (committer, metered):
        # It shares only the DynamoDB tables with the other.
        rival = Committer(process(committer._store.backend, 8), "main", EntityHead, seal=seal(IndexPolicy()))
        counts = []
        for number in range(100):
            rival.commit(change_of(number))
            metered.reset()
            committer.commit(change_of(number + 500))
            counts.append(sum(metered.calls.values()))
        print_now(
            f"   lost once: {max(counts)} round trips at most (2 lost, 3 for the retry, 1 to delete what was lost)"
        )


def speed(url: str, threads: int, group_size: int, seconds: float) -> float:
    with catalog(url, 1_000, group_size) as (committer, metered):
        until = time.monotonic() + seconds

        def work(seed: int) -> int:
            draw, done = random.Random(seed), 0
            while time.monotonic() < until:
                committer.commit(change_of(draw.randrange(1_000)))
                done += 1
            return done

        begun = time.monotonic()
        with ThreadPoolExecutor(threads) as pool:
            done = sum(pool.map(work, range(threads)))
        took = time.monotonic() - begun
        swaps = metered.calls["update_item"]
        what = "grouped" if group_size > 1 else "ungrouped"
        print_now(
            f"{threads:>3} threads {what:>9}: {done / took:7.0f} commits/s, {swaps / max(done, 1):.2f} swaps a commit"
        )
        return done / took


def main() -> None:
    given = options(__doc__, commits=2_000, tables=[1_000, 100_000], threads=[1, 8, 32], seconds=5.0)
    with tempfile.TemporaryDirectory() as folder:
        server = DynamoDbLocal(log=Path(folder) / "server.log").start()
        try:
            for tables in given.tables:
                cost(server.url, tables, given.commits)
            retried(server.url)
            for threads in given.threads:
                alone = speed(server.url, threads, 1, given.seconds)
                grouped = speed(server.url, threads, 64, given.seconds)
                print_now(f"{threads:>3} threads: grouped is {grouped / alone:.1f} times as fast")
        finally:
            server.stop()


if __name__ == "__main__":
    main()
