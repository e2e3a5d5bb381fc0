"""What a commit is made of: the head object it writes, the change that makes it, the attempt the change works in."""

from collections import ChainMap
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar

from delegation.persistence.objects.objects import Loaded, M, ObjectRef, PersistedModel
from delegation.persistence.objects.store import CatalogStore, Prepared, of_model

TAIL: Final = 20
"""How many ancestors a head names, so that the log is read in batches."""
REUSED_FOR: Final = 60_000_000
"""For how many µs an object that was stored for a lost attempt may serve the next one; far below the grace period."""


class CommitObject(PersistedModel):
    """What every head object holds besides its own: the committer fills these fields, never a change.

    `seq` counts the commits of the reference, `tail` are the ids of the heads before this one, newest first (at most
    TAIL), `created_at` is in µs, `operations` name what was committed, several when commits were grouped.
    """

    seq: int = 0
    tail: tuple[int, ...] = ()
    created_at: int = 0
    operations: tuple[str, ...] = ()


H = TypeVar("H", bound=CommitObject)
R = TypeVar("R")


class Changed(NamedTuple, Generic[H, R]):
    """What a change makes of the head: a new one, or None to leave it as it is; and its result."""

    head: H | None
    result: R


@dataclass(frozen=True, slots=True)
class Committed(Generic[R]):
    """An acknowledged commit: `commit_id` is the head that holds it, None if the change left the head as it was."""

    result: R
    commit_id: int | None


Writes = dict[int, Prepared[Any]]
"""New objects by id, in the order of writing."""
Memo = dict[Hashable, tuple[int | None, Prepared[Any]]]
"""Objects made in an earlier attempt, each with the id of the entity state it was made from."""


class CommitAttempt(Generic[H]):
    """One attempt of a change: the head it starts from, and what it reads and writes.

    Objects that changes before it in the same group wrote are read here although they are not stored yet.
    """

    def __init__(self, store: CatalogStore, head: H | None, *, before: Writes, memo: Memo) -> None:
        self.head = head
        self.writes: Writes = {}
        self._store = store
        self._before = before
        self._memo = memo

    @property
    def now_us(self) -> int:
        """The time, in µs."""
        return self._store.now_us()

    def fetch(self, ref: ObjectRef, model: type[M]) -> Loaded[M] | None:
        """One object; None if it is absent."""
        [found] = self.fetch_many([ref])
        return of_model(found, model) if found else None

    def fetch_many(self, refs: Iterable[ObjectRef]) -> list[Loaded[PersistedModel] | None]:
        """Objects in the order asked, None for absent ones."""
        refs = list(refs)
        written = ChainMap(self.writes, self._before)
        new = {ref.id: written[ref.id].loaded for ref in refs if ref.id in written}
        stored = self._store.fetch_many(ref for ref in refs if ref.id not in new)
        rest = iter(stored)
        return [new[ref.id] if ref.id in new else next(rest) for ref in refs]

    def write(self, value: PersistedModel) -> ObjectRef:
        """Write a new object; if this attempt loses, it is deleted again."""
        return self._written(self._store.prepare(value))

    def write_once(self, memo: Hashable, source: ObjectRef | None, make: Callable[[], PersistedModel]) -> ObjectRef:
        """Write what `make` answers, once for all attempts that find the entity at `source`.

        `make` may use nothing that changes between attempts but the entity at `source` (proposal: memoized results
        must only be reused if the entity-obj-ID did not change). `memo` names the entity within this commit. After
        REUSED_FOR it is made again: maintenance may have taken a process that was frozen for long for dead.
        """
        id_ = source.id if source else None
        made = self._memo.get(memo)
        if made is None or made[0] != id_ or self.now_us - made[1].stored.created_at > REUSED_FOR:
            made = self._memo[memo] = (id_, self._store.prepare(make()))
        return self._written(made[1])

    def _written(self, new: Prepared[Any]) -> ObjectRef:
        self.writes[new.loaded.key.id] = new
        return new.loaded.ref


CommitChange = Callable[[CommitAttempt[H]], Changed[H, R]]
"""Step 3 of a commit (proposal, Performing a Commit): look up, check requirements, write entities, make the new head.

It is called once per attempt, each time on another head, and must have no other effect than the attempt's writes. What
it raises refuses the commit, once it is certain that it was raised on the current head.
"""
