"""One store and several processes committing to it, for the tests of the commit loop."""

import itertools

from polaris_persistence.commits.committer import Committer
from polaris_persistence.errors import BackendUnavailable, CommitOutcomeUnknown
from polaris_persistence.objects.store import CatalogStore
from tests.kit.clocks import MicrosecondClock
from tests.persistence.builders import CountingBackend, Entity, Head, committer_on, put, store_on

LOST = CommitOutcomeUnknown("cut off")
DOWN = BackendUnavailable("down")
UNCONTENDED = ["put_many", "replace_reference"]
RETRY = ["fetch_many", "put_many", "replace_reference"]


class Refusal(Exception):
    """An unmet requirement."""


class CommitWorld:
    """One store, and processes that each have a cache and a committer."""

    def __init__(self) -> None:
        self.backend = CountingBackend()
        self.clock = MicrosecondClock()
        self._ids = itertools.count(1)
        self.first = self.process()
        self.store, self.committer = self.first
        self.store.create_reference("main")

    def process(self, **more: object) -> tuple[CatalogStore, Committer[Head]]:
        store = store_on(self.backend, self.clock, ids=self._ids.__next__)
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


def times(world: CommitWorld, count: int) -> None:
    """Have another process commit before each of the next `count` swaps."""
    rival = world.process()[1]
    numbers = itertools.count()

    def meanwhile() -> None:
        queue = world.backend.meanwhile.pop("replace_reference", [])
        rival.commit(put(f"rival{next(numbers)}", 0))
        world.backend.meanwhile["replace_reference"] = queue

    world.backend.meanwhile["replace_reference"] = [meanwhile] * count
