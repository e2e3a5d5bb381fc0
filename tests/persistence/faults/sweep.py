"""Commits that win, lose, crash and freeze while maintenance marks and sweeps, on a clock moved by hand.

Commits happen between any two calls of maintenance to the store, and maintenance crashes too. After every run all
objects that a head needs must exist, and at the end all others must be deleted. The wall clocks of the writers and of
maintenance may be off by any time; only the store's clock is right.
"""

import itertools
import random
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from polaris_persistence.backends.base import Backend, Reference
from polaris_persistence.backends.memory import MemoryBackend
from polaris_persistence.commits.commits import Changed, CommitAttempt
from polaris_persistence.commits.committer import CommitRetries, Committer
from polaris_persistence.commits.log import read_log
from polaris_persistence.errors import (
    BackendUnavailable,
    CommitContended,
    CommitOutcomeUnknown,
    CommitUnknown,
    TaskHeld,
    TaskTakenOver,
)
from polaris_persistence.maintenance.run import RealmSweepReport, SweepPolicy
from polaris_persistence.maintenance.sweep import MAINTENANCE_TYPES, RealmMaintenance
from polaris_persistence.objects.cache import Cache
from polaris_persistence.objects.objects import ObjectRef
from polaris_persistence.objects.store import CatalogStore
from polaris_persistence.objects.types import ObjectTypes
from tests.kit.clocks import MicrosecondClock
from tests.persistence.builders import ENTITY, HEAD, Entity, Head

TYPES = ObjectTypes([ENTITY, HEAD, *MAINTENANCE_TYPES])
GRACE = 600.0
GRACE_US = round(GRACE * 1e6)
NAMES = 12


class Watched:
    """The store of maintenance, which calls `between` before each call and `after`, which may raise, after it."""

    def __init__(self, world: "SweptCatalogs", between: Callable[[], None], after: Callable[[], None]) -> None:
        self._world = world
        self._between = between
        self._after = after

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._world.backend, name)

        def call(*arguments: Any, **named: Any) -> Any:
            self._between()
            before, self._world.calm = self._world.calm, True
            answer = method(*arguments, **named)
            self._world.calm = before
            self._after()
            return answer

        return call


class Crash(Exception):
    """The process ended during a commit."""


class SweptCatalogs:
    """Two catalogs with a process each, which is sometimes replaced, and maintenance."""

    def __init__(self, seed: int, commits: int, writer: float = 0, keeper: float = 0) -> None:
        self.draw = random.Random(seed)
        self.clock = MicrosecondClock()
        self.writer = writer
        self.keeper = keeper
        self.backend = MemoryBackend(before=self._fault_before, after=self._fault_after, now_us=self.clock.now_us)
        # When each head was replaced, by the store's clock: a listing of it may run for a grace period from then.
        self.replaced: dict[int, int] = {}
        self.ids = itertools.count(1)
        self.left = commits
        self.calm = True
        self.committed = 0
        self.crashed = 0
        self.frozen = 0
        self.maintaining = False
        self.deleted = 0
        self.stores: dict[str, CatalogStore] = {}
        self.committers: dict[str, Committer[Head]] = {}
        for catalog in ("c1", "c2"):
            self.start(catalog)
            self.stores[catalog].create_reference("main")
        self.policy = SweepPolicy(grace=GRACE, page=200, checkpoint_after=20, lost_after=60, chunk=300)
        self.calm = False

    def store(self, realm: str, catalog: str, backend: Backend | None = None, off: float = 0) -> CatalogStore:
        """Return a store of a process whose wall clock is `off` seconds off, not corrected by that of the store."""
        cache: Cache[Any, Any] = Cache(200_000, clock=self.clock.seconds)
        return CatalogStore(
            backend or self.backend,
            realm=realm,
            catalog=catalog,
            types=TYPES,
            cache=cache,
            new_id=self.ids.__next__,
            now_us=lambda: self.clock.us + round(off * 1e6),
        )

    def start(self, catalog: str) -> None:
        """Replace the process of a catalog by one without a cache and a known reference."""
        self.stores[catalog] = self.store("r", catalog, off=self.writer)
        self.committers[catalog] = Committer(
            self.stores[catalog],
            "main",
            Head,
            retry=CommitRetries(tries=4, first_wait=0.01, max_wait=0.05),
            sleep=self.clock.sleep,
            # The clock of retries stops in a frozen machine.
            clock=lambda: 0.0,
            draw=self.draw.random,
        )

    def commit(self) -> None:
        self.left -= 1
        self.clock.advance(self.draw.choice([0.1, 1.0, 3.0]))
        catalog = self.draw.choice(["c1", "c2"])
        if self.draw.random() < 0.05:
            self.start(catalog)
        try:
            self.committers[catalog].commit(self._change())
        except Crash:
            self.crashed += 1
            self.start(catalog)
        except (BackendUnavailable, CommitContended, CommitUnknown):
            self.start(catalog)
        else:
            self.committed += 1
        for key, reference in self.backend._references.items():
            if key.catalog == catalog:
                for id_ in reference.heads[1:]:
                    self.replaced.setdefault(id_, self.clock.us)

    def maintain(self, stop: Callable[[], bool] = lambda: False) -> RealmSweepReport:
        """Run maintenance with commits between all its calls."""

        def between() -> None:
            for _ in range(self.draw.choice([0, 0, 1, 3])):
                if self.left > 0 and not self.calm:
                    self.commit()

        def after() -> None:
            if not self.calm and self.draw.random() < 0.005:
                raise Crash

        watched: Any = Watched(self, between, after)
        runner = RealmMaintenance(
            watched,
            lambda realm, catalog: self.store(realm, catalog, watched, self.keeper),
            policy=self.policy,
            clock=self.clock.seconds,
        )
        try:
            report = runner.run(stop)
        except (Crash, TaskHeld):
            self.clock.advance(self.policy.lost_after + 1)
            return RealmSweepReport()
        except TaskTakenOver:
            return RealmSweepReport()
        self.deleted += report.deleted if report.complete else 0
        return report

    def needed(self) -> dict[str, set[int]]:
        """Return what heads, recent heads and young commits name, found by other code than that of maintenance."""
        self.calm = True
        needed: dict[str, set[int]] = {"entity": set(), "head": set()}
        for catalog in self.stores:
            store = self.store("r", catalog)
            reference: Reference = store.current_reference("main")
            kept = set(reference.heads)
            for older in itertools.islice(read_log(store, reference.head, Head), 1, None):
                if self.replaced.get(older.key.id, 0) > self.clock.us - GRACE_US:
                    kept.add(older.key.id)
            for id_ in kept:
                head = store.fetch(ObjectRef("head", id_), Head)
                assert head, f"head {id_} of {catalog} was deleted"
                needed["head"].add(id_)
                for name, ref in head.value.entities.items():
                    entity = store.fetch(ref, Entity)
                    assert entity, f"{ref} of head {id_} was deleted"
                    assert entity.value.name == name
                    needed["entity"].add(ref.id)
        self.calm = False
        return needed

    def stored(self) -> dict[str, set[int]]:
        found: dict[str, set[int]] = defaultdict(set)
        for key in list(self.backend._objects):
            found[key.type].add(key.id)
        return found

    def _change(self) -> Callable[[CommitAttempt[Head]], Changed[Head, None]]:
        names = self.draw.sample(range(NAMES), self.draw.choice([1, 1, 2]))
        removing = self.draw.random() < 0.1
        number = self.draw.randrange(10**6)

        def change(attempt: CommitAttempt[Head]) -> Changed[Head, None]:
            head = attempt.head or Head()
            entities = dict(head.entities)
            for name in (f"n{one}" for one in names):
                if removing:
                    entities.pop(name, None)
                else:
                    source = entities.get(name)
                    entities[name] = attempt.write_once(name, source, lambda n=name: Entity(name=n, number=number))
            return Changed(head.model_copy(update={"entities": entities}), None)

        return change

    def _fault_before(self, operation: str) -> None:
        if self.calm or operation != "replace_reference":
            return
        chance = self.draw.random()
        if chance < 0.02:
            raise Crash
        if chance < 0.04:
            raise CommitOutcomeUnknown("cut off")
        if chance < 0.06:
            self._freeze()

    def _fault_after(self, operation: str) -> None:
        if self.calm or operation not in {"replace_reference", "put_many"}:
            return
        chance = self.draw.random()
        if chance < 0.02:
            raise Crash
        if chance < 0.04:
            raise CommitOutcomeUnknown("cut off") if operation == "replace_reference" else BackendUnavailable("down")

    def _freeze(self) -> None:
        """Stop the process for longer than the grace period, with everything written but the reference."""
        if self.maintaining:
            return
        self.maintaining = True
        self.frozen += 1
        before = self.calm
        self.calm = True
        for _ in range(3):
            self.clock.advance(GRACE * 1.5)
            while not self.maintain().complete:
                pass
        self.calm = before
        self.maintaining = False


def after_steps(most: int) -> Callable[[], bool]:
    calls = itertools.count(1)
    return lambda: next(calls) > most


def simulate(seed: int, commits: int, writer: float = 0, keeper: float = 0) -> SweptCatalogs:
    """Run all commits with maintenance between them, then let grace periods pass and check the store."""
    world = SweptCatalogs(seed, commits, writer, keeper)
    while world.left > 0:
        for _ in range(world.draw.randrange(20, 400)):
            if world.left > 0:
                world.commit()
        most = world.draw.choice([2, 5, 10**9])
        # Some runs are stopped, and continued by the next one.
        while not world.maintain(after_steps(most)).complete:
            world.needed()
        world.needed()
    world.calm = True
    for _ in range(3):
        world.clock.advance(GRACE + 2)
        while not world.maintain().complete:
            world.needed()
    needed, stored = world.needed(), world.stored()
    unneeded = {kind: stored[kind] - needed[kind] for kind in ("entity", "head")}
    assert not any(unneeded.values()), f"left past the grace period: {unneeded}"
    assert len(stored["maintenance-keys"]) <= 1, "chunks of former runs are left"
    assert not stored["maintenance-marks"]
    return world
