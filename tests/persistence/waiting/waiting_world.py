"""Processes whose changes may wait on a reference to be combined, for the tests of the commit loop."""

from collections.abc import Callable
from typing import Any

from polaris_persistence.commits.commits import Changed, CommitAttempt
from polaris_persistence.commits.committer import CommitRetries, Committer
from polaris_persistence.commits.waiting import WAITING_TYPES, ChangeKind
from polaris_persistence.maintenance.sweep import MAINTENANCE_TYPES
from polaris_persistence.objects.store import CatalogStore
from polaris_persistence.objects.types import ObjectTypes
from tests.persistence.builders import TYPES, Head, add, put
from tests.persistence.commits.commit_world import CommitWorld, Refusal
from tests.persistence.worlds import TimedCatalogs


def refuse(attempt: CommitAttempt[Head], data: Any) -> Changed[Head, Any]:
    if attempt.head is not None and data in attempt.head.entities:
        raise Refusal(f"{data} is there")
    return put(data, 1)(attempt)


KINDS = [ChangeKind[Head]("add", lambda attempt, data: add(data)(attempt)), ChangeKind[Head]("new", refuse)]


class Waiting(TimedCatalogs, CommitWorld):
    """Processes whose changes may wait."""

    types = ObjectTypes([*TYPES, *WAITING_TYPES, *MAINTENANCE_TYPES])

    def process(self, **more: object) -> tuple[CatalogStore, Committer[Head]]:
        return super().process(**{"kinds": KINDS, "retry": CommitRetries(tries=1_000), **more})

    def waiting(self) -> tuple[int, ...]:
        return self.store.current_reference("main").waiting

    def contend(self, *, then: Callable[[], object] = lambda: None, losses: int = 2) -> None:
        """Let rivals without kinds win the next swaps, and `then` happen once a change waits."""
        rival = self.process(kinds=[])[1]
        self.lose_swaps(losses, lambda number: rival.commit(put(f"rival{number}", 0)))
        self.once_a_change_waits(then)


def operations(world: Waiting) -> list[str]:
    return [name for one in world.committer.log() for name in one.value.operations]
