"""One store and several processes committing to it, for the tests of the commit loop."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from polaris_persistence.commits.committer import Committer
from polaris_persistence.errors import BackendUnavailable, CommitOutcomeUnknown
from polaris_persistence.objects.store import CatalogStore
from tests.persistence.builders import TYPES, Entity, Head, committer_on, put
from tests.persistence.worlds import Catalogs

LOST = CommitOutcomeUnknown("cut off")
DOWN = BackendUnavailable("down")
UNCONTENDED = ["put_many", "replace_reference"]
RETRY = ["fetch_many", "put_many", "replace_reference"]


class Refusal(Exception):
    """An unmet requirement."""


class CommitWorld(Catalogs):
    """One store, and processes that each have a cache and a committer."""

    types = TYPES

    def __init__(self) -> None:
        super().__init__()
        self.store, self.committer = self.process()

    def process(self, **more: object) -> tuple[CatalogStore, Committer[Head]]:
        store = self.store_of()
        return store, committer_on(store, self.clock, **more)

    def calls(self) -> list[str]:
        made = list(self.backend.calls)
        self.backend.calls.clear()
        return made

    def numbers(self) -> dict[str, int]:
        """Return name and number of every entity of the current head, as a new process reads them."""
        store, committer = self.process()
        head = committer.head()
        assert head is not None
        found = {name: store.fetch(ref, Entity) for name, ref in head.value.entities.items()}
        return {name: one.value.number for name, one in found.items() if one}

    def reachable(self) -> set[int]:
        head = self.process()[1].head()
        return {ref.id for ref in head.value.entities.values()} if head else set()


class Gate:
    """Holds the first swap until as many commits as wanted wait behind it."""

    def __init__(self, world: CommitWorld) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()
        world.backend.meanwhile["replace_reference"] = [self._hold]

    def _hold(self) -> None:
        self.reached.set()
        assert self.opened.wait(30)


def queued(committer: Committer[Head], count: int) -> None:
    """Return once `count` commits wait for their turn."""
    while len(committer._queue) < count:
        threading.Event().wait(0.001)


def grouped(
    world: CommitWorld,
    first: Callable[[], Any],
    *rest: Callable[[], Any],
    then: Callable[[], object] = lambda: None,
    committer: Committer[Head] | None = None,
) -> list[Future[Any]]:
    """Run commits of one process: the first is held before its swap until the others wait, and `then` was called."""
    gate = Gate(world)
    with ThreadPoolExecutor(len(rest) + 1) as pool:
        ends = [pool.submit(first)]
        assert gate.reached.wait(30)
        for number, commit in enumerate(rest, 1):
            ends.append(pool.submit(commit))
            queued(committer or world.committer, number)
        then()
        gate.opened.set()
    return ends


def times(world: CommitWorld, count: int) -> None:
    """Have another process commit before each of the next `count` swaps."""
    rival = world.process()[1]
    world.lose_swaps(count, lambda number: rival.commit(put(f"rival{number}", 0)))
