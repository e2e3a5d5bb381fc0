"""One purge against a store that is wrong in one way, and another when it is sound again; what both leave."""

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from delegation.errors import RunHandedOver
from delegation.identifiers import TableIdentifier
from delegation.removal.purge.context import PurgeContext, PurgeResult
from delegation.removal.purge.requests import PurgeSettings
from delegation.removal.purge.run import purge_table
from delegation.removal.spark_executors import no_checkpoint
from delegation.storage.credentials import S3Settings
from delegation.storage.deleter import DeletePolicy, RatePolicy
from delegation.storage.s3 import S3ObjectStore, S3Timeouts
from delegation.storage.s3_plans import S3PlanStore
from delegation.storage.sessions import s3_client
from polaris_common.errors import DelegationError
from tests.faults.hostile.server import HostileStore, Way
from tests.faults.hostile.ways import ENDLESS, MET, READS
from tests.faults.hostile.world import LARGE, world
from tests.kit.lakes.lake import Lake, PurgedTables

AWS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}
SMALL_SIZE, LARGE_SIZE, RESUMED = "small", "large", "resumed"
SIZES = (SMALL_SIZE, LARGE_SIZE, RESUMED)
# Seconds to wait for an answer that never ends, and for any other one: on a busy machine a purge that waits for less
# may give up before the store was wrong.
_ENDLESS_READ, _READ = 1.0, 30.0
_RATE = RatePolicy(start=20_000.0)
_ONE_BATCH = DeletePolicy(threads=2, tries=2, throttled_tries=2, pause=0.0, longest_pause=0.0, rate=_RATE)
_SMALL_BATCHES = dataclasses.replace(_ONE_BATCH, batch=7)
_numbers = itertools.count()

Purge = Callable[[PurgeContext, "Resources"], PurgeResult]


@dataclass(frozen=True)
class Resources:
    """Creates the stores of a run, also in Spark's workers; `run` differs, so that no run uses another's clients."""

    url: str
    run: int
    read: float

    def store(self, identifier: TableIdentifier) -> S3ObjectStore:
        del identifier
        return S3ObjectStore(settings=self._settings(), timeouts=S3Timeouts(connect=30.0, read=self.read, tries=1))

    def plans(self) -> S3PlanStore:
        return S3PlanStore(s3_client(self._settings()), "plans")

    def checkpoint(self, task_id: str, attempt: int) -> Callable[[], None]:
        del task_id, attempt
        return no_checkpoint

    def _settings(self) -> S3Settings:
        return S3Settings(endpoint=self.url, region="us-east-1", path_style=True)


def read_seconds(name: str) -> float:
    """Return how long an answer is waited for in a way of this name."""
    return _ENDLESS_READ if name in ENDLESS else _READ


def inline(ctx: PurgeContext, _resources: Resources) -> PurgeResult:
    return purge_table(ctx)


@dataclass
class Ended:
    """What came of the runs in one way: how many were made, how many ended well, and what was wrong."""

    runs: int = 0
    well: int = 0
    problems: list[str] = field(default_factory=list)

    def wrong(self, where: str, what: str, uris: Iterable[str]) -> None:
        """Note objects of which something is wrong, the first few of many."""
        self.problems += [f"{where}: {uri} {what}" for uri in sorted(uris)[:3]]


class Worlds:
    """The tables by size, written once; each run gets a copy."""

    def __init__(self) -> None:
        small, large = world(), world(more=LARGE)
        self._worlds = {SMALL_SIZE: small, LARGE_SIZE: large, RESUMED: small}

    def copy(self, size: str) -> tuple[Lake, frozenset[str]]:
        lake, own = self._worlds[size]
        return lake.copy(), own


class Run:
    """A table of a size in a hostile store, and the attempts at purging it."""

    def __init__(self, worlds: Worlds, size: str, purge: Purge) -> None:
        self._lake, self._own = worlds.copy(size)
        self._others = set(self._lake.uris()) - self._own
        self._bench = PurgedTables(lake=self._lake)
        self._bench.uuid("doomed")
        self._size = size
        self._purge = purge

    def play(self, name: str, way: Way) -> Ended:
        """Purge with the store wrong in this way, then with a sound one; return what happened."""
        ended = Ended()
        with HostileStore(self._lake.objects) as store:
            if self._size == RESUMED:
                self._interrupt(store)
            store.set(way)
            self._wrong(store, ended, name)
            store.set(None)
            self._sound(store, ended)
        ended.wrong(self._size, "is not the table's and was deleted", self._others - set(self._lake.uris()))
        return ended

    def left(self) -> frozenset[str]:
        return self._own & set(self._lake.uris())

    def _interrupt(self, store: HostileStore) -> None:
        """Hand the task over once some files are deleted and marked."""
        ctx, _ = self._context(store)

        def stop() -> None:
            if len(store.removed) >= 10:
                raise RunHandedOver("t")

        ctx.attempt.on_checkpoint = stop  # type: ignore[attr-defined]
        with contextlib.suppress(RunHandedOver):
            purge_table(ctx)

    def _wrong(self, store: HostileStore, ended: Ended, way: str) -> None:
        ended.runs += 1
        try:
            self._purge(*self._context(store, read_seconds(way)))
        except DelegationError:
            pass
        except Exception as error:  # noqa: BLE001 - an error of no type is what is looked for
            ended.problems.append(f"{type(error).__name__} has no type of ours: {error}")
        else:
            ended.well += 1
            ended.wrong("PURGED", "is left", self.left())
        if not store.wrong and way not in MET and not (self._size == RESUMED and way in READS):
            ended.problems.append("the store was not wrong")

    def _sound(self, store: HostileStore, ended: Ended) -> None:
        ended.runs += 1
        try:
            self._purge(*self._context(store))
        except DelegationError as error:
            ended.problems.append(f"sound again: {error.code}: {error}")
        else:
            ended.well += 1
        ended.wrong("sound again", "is left", self.left())

    def _context(self, store: HostileStore, read: float = _READ) -> tuple[PurgeContext, Resources]:
        resources = Resources(store.url, next(_numbers), read)
        ctx = self._bench.context("doomed")
        policy = _ONE_BATCH if self._size == LARGE_SIZE else _SMALL_BATCHES
        settings = PurgeSettings(chunk_paths=250 if self._size == LARGE_SIZE else 10, read_threads=1, delete=policy)
        return dataclasses.replace(
            ctx, settings=settings, store=resources.store(ctx.identifier), plans=resources.plans()
        ), resources
