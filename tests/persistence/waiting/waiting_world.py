"""Processes whose changes may wait on a reference to be combined, for the tests of the commit loop."""

import itertools
from collections.abc import Callable
from typing import Any

from polaris_persistence.commits.commits import Changed, CommitAttempt
from polaris_persistence.commits.committer import CommitRetries, Committer
from polaris_persistence.commits.waiting import WAITING_TYPES, ChangeKind
from polaris_persistence.ids.snowflake import EPOCH_MS, join_id
from polaris_persistence.objects.store import CatalogStore
from polaris_persistence.objects.types import ObjectTypes
from tests.persistence.builders import TYPES, Head, add, committer_on, put, store_on
from tests.persistence.commits.commit_world import CommitWorld, Refusal

WITH_WAITING = ObjectTypes([*TYPES, *WAITING_TYPES])
NODES = itertools.count(1)


def refuse(attempt: CommitAttempt[Head], data: Any) -> Changed[Head, Any]:
    if attempt.head is not None and data in attempt.head.entities:
        raise Refusal(f"{data} is there")
    return put(data, 1)(attempt)


KINDS = [ChangeKind[Head]("add", lambda attempt, data: add(data)(attempt)), ChangeKind[Head]("new", refuse)]


class Waiting(CommitWorld):
    """Processes whose changes may wait; every call of the store takes 2 ms."""

    def __init__(self) -> None:
        super().__init__()
        plain = self.backend.before

        def before(operation: str) -> None:
            if not operation.endswith("_row"):
                self.clock.advance(0.002)
            plain(operation)

        self.backend.before = before

    def process(self, **more: object) -> tuple[CatalogStore, Committer[Head]]:
        node, sequence = next(NODES) % 1_024, itertools.count()

        def new_id() -> int:
            return join_id(self.clock.now_ms() - EPOCH_MS, node, next(sequence) % 4_096)

        store = store_on(self.backend, self.clock, ids=new_id, types=WITH_WAITING)
        settings: dict[str, Any] = {"kinds": KINDS, "retry": CommitRetries(tries=1_000), **more}
        return store, committer_on(store, self.clock, **settings)

    def waiting(self) -> tuple[int, ...]:
        """Return the ids that wait."""
        return self.store.current_reference("main").waiting

    def contend(self, *, then: Callable[[], object] = lambda: None, losses: int = 2) -> None:
        """Let rivals without kinds win the next swaps, and `then` happen once a change waits."""
        rival = self.process(kinds=[])[1]
        numbers = itertools.count()

        def lose() -> None:
            left = self.backend.meanwhile.pop("replace_reference", [])
            rival.commit(put(f"rival{next(numbers)}", 0))
            self.backend.meanwhile["replace_reference"] = left

        def waits(operation: str) -> None:
            if operation == "add_waiting" and not done:
                done.append(operation)
                then()

        done: list[str] = []
        plain = self.backend.after
        self.backend.meanwhile["replace_reference"] = [lose] * losses

        def after(operation: str) -> None:
            plain(operation)
            waits(operation)

        self.backend.after = after


def operations(world: Waiting) -> list[str]:
    return [name for one in world.committer.log() for name in one.value.operations]
