"""The parts of a commit: the head object it writes, the change that makes it, and one attempt of the change."""

from collections import ChainMap
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar

from delegation.persistence.objects.objects import Loaded, M, ObjectRef, PersistedModel
from delegation.persistence.objects.store import CatalogStore, Prepared, of_model

TAIL: Final = 20
"""The most ancestors that a head names, so that the log is read in batches."""
REUSED_FOR: Final = 60_000_000
"""How many µs an object stored for a lost attempt may be used by the next one; far below the grace period."""


class CommitObject(PersistedModel):
    """The base of head objects; the committer sets these fields, never a change.

    `seq` counts the commits of the reference, `tail` are the ids of at most TAIL heads before this one, newest first,
    `created_at` is in µs, `operations` name what was committed, several when commits were grouped.
    """

    seq: int = 0
    tail: tuple[int, ...] = ()
    created_at: int = 0
    operations: tuple[str, ...] = ()


H = TypeVar("H", bound=CommitObject)
R = TypeVar("R")


class Changed(NamedTuple, Generic[H, R]):
    """The outcome of a change: a new head, or None to keep the present one; and its result."""

    head: H | None
    result: R


@dataclass(frozen=True, slots=True)
class Committed(Generic[R]):
    """An acknowledged commit: `commit_id` is its head, None if the change kept the present one."""

    result: R
    commit_id: int | None


Writes = dict[int, Prepared[Any]]
"""New objects by id, in the order of writing."""
Memo = dict[Hashable, tuple[int | None, Prepared[Any]]]
"""Objects made in an earlier attempt, each with the id of the entity state that it was made from."""


class CommitAttempt(Generic[H]):
    """One attempt of a change: its head, its writes, and reads that include the earlier writes of its group."""

    def __init__(self, store: CatalogStore, head: H | None, *, before: Writes, memo: Memo) -> None:
        self.head = head
        self.writes: Writes = {}
        self._store = store
        self._before = before
        self._memo = memo

    @property
    def now_us(self) -> int:
        """Return the time in µs since 1970."""
        return self._store.now_us()

    def fetch(self, ref: ObjectRef, model: type[M]) -> Loaded[M] | None:
        """Return one object, None if it is absent."""
        [found] = self.fetch_many([ref])
        return of_model(found, model) if found else None

    def fetch_many(self, refs: Iterable[ObjectRef]) -> list[Loaded[PersistedModel] | None]:
        """Return objects in the order of `refs`, None for absent ones."""
        refs = list(refs)
        written = ChainMap(self.writes, self._before)
        new = {ref.id: written[ref.id].loaded for ref in refs if ref.id in written}
        stored = self._store.fetch_many(ref for ref in refs if ref.id not in new)
        rest = iter(stored)
        return [new[ref.id] if ref.id in new else next(rest) for ref in refs]

    def write(self, value: PersistedModel) -> ObjectRef:
        """Write a new object, which is deleted again if this attempt loses."""
        return self._written(self._store.prepare(value))

    def write_once(self, memo: Hashable, source: ObjectRef | None, make: Callable[[], PersistedModel]) -> ObjectRef:
        """Write the object that `make` returns, once for all attempts that find the entity at `source`.

        Only the entity at `source` may influence `make` (NoSQL persistence proposal, Performing a Commit: memoized
        results). `memo` names the entity within this commit. After REUSED_FOR the object is made again, because
        maintenance may have deleted it while the process was frozen.
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
"""Step 3 of NoSQL persistence proposal, Performing a Commit: check requirements, write entities, make the new head.

It is called once per attempt, each time on another head, and must have no other effect than the attempt's writes. What
it raises refuses the commit, once it was raised on the current head.
"""
