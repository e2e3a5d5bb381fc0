"""A process that commits from several threads to one reference, and says what it began and what it was answered.

Its DynamoDB client loses answers: of some swaps before they are sent, of some after they are applied, and some arrive
later than their time-out. Its wall clock may jump. One JSON argument (Orders) says what it does. It
begins when a line arrives on its standard input: until when, in seconds of the monotonic clock. It is killed at times.
"""

import itertools
import json
import os
import random
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from botocore.exceptions import ReadTimeoutError
from pydantic import BaseModel

from polaris_persistence.backends.dynamodb import Calls, DynamoDbBackend
from polaris_persistence.catalogs.process import OWN_TYPES, PersistenceProcess
from polaris_persistence.commits.commits import Changed, CommitAttempt
from polaris_persistence.commits.committer import CommitRetries, Committer
from polaris_persistence.commits.entities import EntityChanges, EntityHead, seal
from polaris_persistence.commits.waiting import ChangeKind
from polaris_persistence.errors import BackendUnavailable, CommitContended, CommitUnknown, CorruptIndexError
from polaris_persistence.index.index import Index
from polaris_persistence.index.keys import IndexKey
from polaris_persistence.index.spill import IndexPolicy
from polaris_persistence.objects.objects import Loaded
from polaris_persistence.objects.store import CatalogStore
from polaris_persistence.objects.types import ObjectTypes
from tests.persistence.builders import ENTITY, Entity
from tests.persistence.contract.backends import dynamodb_client
from tests.persistence.linearizability.history import COUNTERS, place_of

TYPES = ObjectTypes([*OWN_TYPES, ENTITY])
SMALL_INDEX = IndexPolicy(min_embedded=200, max_embedded=600, stripe=800)
"""An index that spills often, and into several stripes."""


def add(attempt: CommitAttempt[EntityHead], counter: str) -> Changed[EntityHead, int]:
    """Raise a counter by one, and put the name of its new value on it too."""
    entities = EntityChanges(attempt)
    key = IndexKey.of(counter)
    if entities.get(key) is None:
        number, ref = 1, entities.put(key, Entity(name=counter, number=1))
    else:
        done = entities.update(key, lambda old: old.model_copy(update={"number": old.number + 1}), Entity)
        number, ref = done.value.number, done.ref
    entities.link(IndexKey.of(place_of(counter, number)), ref)
    return Changed(entities.head, number)


ADD = ChangeKind[EntityHead]("add", add)


class Orders(BaseModel):
    """What a process does. `jump` is how many seconds its wall clock may be off, `pause` the longest time between two
    commits of a thread; with `reads`, it also reads the head with all that it names; `as_data`, other processes may
    apply its changes."""

    url: str
    objects: str
    references: str
    number: int
    threads: int = 1
    commits: int
    group_size: int = 64
    seconds: float = 20.0
    jump: float = 0.0
    pause: float = 0.0
    reads: bool = False
    as_data: bool = False


class LossyClient:
    """A client some of whose swaps of a reference get no answer."""

    def __init__(self, client: Any, references: str, draw: random.Random) -> None:
        self._client = client
        self._references = references
        self._draw = draw

    def __getattr__(self, operation: str) -> Any:
        real = getattr(self._client, operation)
        if operation == "meta":
            return real

        def call(**arguments: Any) -> Any:
            chance = self._draw.random() if arguments.get("TableName") == self._references else 1.0
            if operation not in {"put_item", "update_item"} or chance > 0.24:
                return real(**arguments)
            if chance < 0.08:
                real(**arguments)
            elif chance < 0.16:
                threading.Timer(self._draw.random() / 20, _late, (real, arguments)).start()
            raise ReadTimeoutError(endpoint_url="http://dynamodb")

        return call


def _late(real: Any, arguments: dict[str, Any]) -> None:
    try:
        real(**arguments)
    except Exception as error:  # noqa: BLE001 - nobody waits for this answer
        del error


class JumpingClock:
    """A wall clock in ns that is off by up to `jump` seconds, and every few seconds by another time."""

    def __init__(self, jump: float, draw: random.Random) -> None:
        self._jump, self._draw = jump, draw
        self._off, self._until = 0, 0.0

    def __call__(self) -> int:
        if self._jump and time.monotonic() >= self._until:
            self._off = round(self._draw.uniform(-self._jump, self._jump) * 1e9)
            self._until = time.monotonic() + self._draw.uniform(1, 5)
        return time.time_ns() + self._off


def process_of(
    url: str, objects: str, references: str, draw: random.Random, *, lossy: bool, jump: float = 0.0
) -> PersistenceProcess:
    """Return persistence as one process sees it, with a node id of its own."""
    client = dynamodb_client(url)
    calls = Calls(LossyClient(client, references, draw) if lossy else client)
    backend = DynamoDbBackend(calls, objects=objects, references=references)
    return PersistenceProcess(backend, types=TYPES, now_ns=JumpingClock(jump, draw))


def catalog_of(process: PersistenceProcess) -> CatalogStore:
    return process.store("r", "c")


def numbers_of(store: CatalogStore, head: Loaded[EntityHead]) -> dict[str, int | None]:
    """Return the numbers that a head names, None for one that is not there, or for an index that is not."""
    try:
        named = list(Index.load(head.value.index, store.fetch_many).items())
    except CorruptIndexError:
        return {"index": None}
    found = store.fetch_many(ref for _, ref in named)
    return {
        key.elements()[0]: one.value.number if one is not None and isinstance(one.value, Entity) else None
        for (key, _), one in zip(named, found, strict=True)
    }


def committer_of(store: CatalogStore, **settings: Any) -> Committer[EntityHead]:
    try:
        from polaris_persistence.commits.directories import entity_committer
    except ModuleNotFoundError:  # A former release, which records no functions.
        return Committer(store, "main", EntityHead, kinds=[ADD], seal=seal(SMALL_INDEX), **settings)
    return entity_committer(store, "main", kinds=[ADD], policy=SMALL_INDEX, **settings)


class Worker:
    """The threads of one process."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._draw = random.Random(orders.number)
        process = process_of(orders.url, orders.objects, orders.references, self._draw, lossy=True, jump=orders.jump)
        self._store = catalog_of(process)
        retry = CommitRetries(tries=100, seconds=orders.seconds, first_wait=0.005, max_wait=0.1)
        self._committer = committer_of(self._store, retry=retry, group_size=orders.group_size)
        self._lock = threading.Lock()

    def say(self, what: str, **more: Any) -> None:
        """Write a line at once, so that a killed process leaves no half line."""
        line = json.dumps({"what": what, "at": time.monotonic(), **more}) + "\n"
        with self._lock:
            os.write(sys.stdout.fileno(), line.encode())

    def run(self, until: float) -> None:
        """Commit until done, or until this time of the monotonic clock; the process may be killed before."""
        works: list[Callable[[], None]] = [self._reading(until)] if self._orders.reads else []
        works += [self._committing(thread, until) for thread in range(self._orders.threads)]
        with ThreadPoolExecutor(len(works)) as pool:
            for ended in [pool.submit(work) for work in works]:
                ended.result()

    def _committing(self, thread: int, until: float) -> Callable[[], None]:
        def work() -> None:
            counters = itertools.cycle(COUNTERS)
            for number in range(self._orders.commits):
                if time.monotonic() >= until:
                    return
                counter = next(counters)
                self._commit(f"{self._orders.number}.{thread}.{number}.{counter}", counter)
                time.sleep(self._draw.uniform(0, self._orders.pause))

        return work

    def _commit(self, operation: str, counter: str) -> None:
        self.say("begin", operation=operation)
        try:
            if self._orders.as_data:
                done = self._committer.commit_data(ADD.name, counter, operation=operation)
            else:
                done = self._committer.commit(lambda attempt: add(attempt, counter), operation=operation)
        except CommitUnknown as error:
            self.say("unknown", operation=operation, commit=error.commit_id)
        except (CommitContended, BackendUnavailable) as error:
            self.say("failed", operation=operation, error=type(error).__name__)
        else:
            self.say("done", operation=operation, commit=done.commit_id, result=done.result)

    def _reading(self, until: float) -> Callable[[], None]:
        def work() -> None:
            while time.monotonic() < until:
                time.sleep(self._draw.uniform(0.2, 2.0))
                began = time.monotonic()
                head = self._committer.head()
                if head is not None:
                    numbers = numbers_of(self._store, head)
                    self.say("read", began=began, seq=head.value.seq, commit=head.key.id, numbers=numbers)

        return work


def main(argument: str) -> None:
    """Say `ready`, and work from when a line says until when."""
    worker = Worker(Orders.model_validate_json(argument))
    worker.say("ready")
    worker.run(float(sys.stdin.readline()))


if __name__ == "__main__":
    main(sys.argv[1])
