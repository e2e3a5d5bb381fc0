"""The parts of a commit: the head object it writes, the change that makes it, and one attempt of the change."""

import time
from collections import ChainMap
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar

from polaris_persistence.backends.base import Reference, ReferenceKey
from polaris_persistence.errors import PreparedExpired
from polaris_persistence.objects.objects import Loaded, M, ObjectRef, PersistedModel
from polaris_persistence.objects.store import CatalogStore, Prepared, of_model
from polaris_persistence.objects.types import follows_links

TAIL: Final = 20
"""The most ancestors that a head names, so that the log is read in batches."""
REUSED_FOR: Final = 60.0
"""For how many seconds an object stored for a lost attempt may be reused; far below the grace period."""

_MOST_READ: Final = 1_000
"""Objects of a level that are read to find out whether what a value names is kept."""
FENCES_OF_A_DELETION: Final = 2
"""Maintenance deletes what two of its runs found unneeded, and each run fences every reference."""


class CommitObject(PersistedModel):
    """The base of head objects; only the committer sets these fields, never a change.

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


class PreparedHandle(NamedTuple):
    """An object that was written outside of an attempt (`Committer.prepare`), for a later commit to name.

    `reference` and `created_at` are those of the reference, `fences` counts its fences before the object was written.
    """

    ref: ObjectRef
    reference: ReferenceKey
    created_at: int
    fences: int

    def usable(self, reference: Reference, fences: int) -> bool:
        """Return whether the object certainly exists if a reference with this many fences moves.

        Maintenance deletes what two runs found unneeded, and each has fenced the reference before: after one fence a
        commit comes before the second, or its compare-and-set fails. A reset changes the count too.
        """
        return self.created_at == reference.created_at and 0 <= fences - self.fences < FENCES_OF_A_DELETION


class Moment(NamedTuple):
    """When something was made, by three counts: wall clock (µs), monotonic clock (s), fences of the reference.

    Each clock may be wrong, or stop while a machine is suspended. `fences` is exact: maintenance adds one before each
    deletion of what the reference does not name.
    """

    wall: int
    monotonic: float
    fences: int

    def reusable(self, now: "Moment") -> bool:
        """Return whether what was made at this moment still exists `now`: no fence since, and REUSED_FOR not passed."""
        near = abs(now.wall - self.wall) <= REUSED_FOR * 1e6
        return near and now.monotonic - self.monotonic <= REUSED_FOR and now.fences == self.fences


class Memoised(NamedTuple):
    """An object made in an earlier attempt, and all objects that were written while it was made, including itself.

    `source` is the id of the entity state that it was made from, `begun` the moment before its first object was made.
    """

    source: int | None
    made: Prepared[Any]
    parts: Writes
    begun: Moment


Memo = dict[Hashable, Memoised]
"""Objects made in earlier attempts, by the name of their entity."""


class CommitAttempt(Generic[H]):
    """One attempt of a change: its head, its writes, and reads that include the earlier writes of its group.

    `fences` counts the fences of the reference (`fences_of`), `clock` seconds that never go back. `reference` is the
    one that the attempt moves, None if no prepared object may be used. `files` are those that earlier changes of the
    group have named, None if none can be written.

    `opaque` is set once the change has seen the head itself. `reader` is what the change read and changed entities
    with, and `used` are the prepared objects that it used: so it can be recorded as data (`commits.recorded`).
    """

    def __init__(
        self,
        store: CatalogStore,
        head: H | None,
        *,
        before: Writes,
        memo: Memo,
        fences: int = 0,
        reference: Reference | None = None,
        clock: Callable[[], float] = time.monotonic,
        files: Mapping[str, bytes] | None = None,
    ) -> None:
        self._files = files
        self.opaque = False
        self.reader: object | None = None
        self.used: list[PreparedHandle] = []
        self.files: dict[str, bytes] = {}
        self._head = head
        self.writes: Writes = {}
        self._store = store
        self._before = before
        self._memo = memo
        self._fences = fences
        self._reference = reference
        self._clock = clock
        self._recording: list[Writes] = []
        self._fetched: list[Loaded[PersistedModel]] = []

    @property
    def head(self) -> H | None:
        """The head that the change is applied to, None before the first commit."""
        self.opaque = True
        return self._head

    def read_by(self, reader: object) -> H | None:
        """Return the head to a reader that notes all that it reads of it; an attempt has at most one."""
        self.opaque = self.opaque or self.reader is not None
        self.reader = reader
        return self._head

    @property
    def new_id(self) -> int:
        """A new id that no other object and no other attempt has."""
        return self._store.new_id()

    @property
    def now_us(self) -> int:
        return self._store.now_us()

    def fetch(self, ref: ObjectRef, model: type[M]) -> Loaded[M] | None:
        [found] = self.fetch_many([ref])
        return of_model(found, model) if found else None

    def fetch_many(self, refs: Iterable[ObjectRef]) -> list[Loaded[PersistedModel] | None]:
        """Return objects in the order of `refs`, None for absent ones."""
        refs = list(refs)
        written = ChainMap(self.writes, self._before)
        new = {ref.id: written[ref.id].loaded for ref in refs if ref.id in written}
        stored = self._store.fetch_many(ref for ref in refs if ref.id not in new)
        self._fetched += [loaded for loaded in stored if loaded is not None]
        rest = iter(stored)
        return [new[ref.id] if ref.id in new else next(rest) for ref in refs]

    def wrote(self, ref: ObjectRef) -> bool:
        """Return whether the commit writes the object: this attempt, or an earlier change of its group."""
        found = self.writes.get(ref.id) or self._before.get(ref.id)
        return found is not None and found.loaded.key.type == ref.type

    def write(self, value: PersistedModel) -> ObjectRef:
        """Write a new object, which is deleted again if this attempt loses."""
        return self._written(self._store.prepare(value))

    def file(self, path: str, content: bytes) -> str:
        """Name a file, which is written before this attempt can be applied and deleted if it is refused (`Files`).

        A path is used in one attempt only: put `new_id` into it. Raises ValueError for a path that was named before,
        and if the committer has no files.
        """
        self.opaque = True
        if self._files is None:
            raise ValueError(f"file {path!r} cannot be written: the committer was created without `files`")
        if path in self._files or path in self.files:
            raise ValueError(f"file {path!r} is named twice. Put `new_id` into the path")
        self.files[path] = content
        return path

    def use(self, prepared: PreparedHandle) -> ObjectRef:
        """Return the ref of a prepared object, for this attempt only. Raises PreparedExpired if it may be deleted;
        ValueError if it was prepared for another reference."""
        if self._reference is None or prepared.reference != self._reference.key:
            raise ValueError(
                f"{prepared.ref} was prepared for {prepared.reference}, not for the reference of this commit"
            )
        self.used.append(prepared)
        if not prepared.usable(self._reference, self._fences):
            raise PreparedExpired(
                f"{prepared.ref.type}/{prepared.ref.id} was prepared before maintenance ran twice, which may have "
                "deleted it. Prepare it again"
            )
        return prepared.ref

    def use_stored(self, ref: ObjectRef, created_at: int, fences: int) -> ObjectRef:
        """Return the ref of an object that was prepared for this reference. Raises as `use`."""
        if self._reference is None:
            raise ValueError(f"a commit without a reference cannot use the prepared object {ref}")
        return self.use(PreparedHandle(ref, self._reference.key, created_at, fences))

    def write_once(self, memo: Hashable, source: ObjectRef | None, make: Callable[[], PersistedModel]) -> ObjectRef:
        """Write the object that `make` returns, once for all attempts that find the entity at `source`.

        Only the entity at `source` may influence `make` (NoSQL persistence proposal, Performing a Commit: memoized
        results). `memo` names the entity within this commit. What `make` writes through this attempt belongs to the
        memo, and every attempt that reuses it writes it. All of it is made again once maintenance may have deleted it
        while the process was frozen: after REUSED_FOR by either clock, or after a fence. The same applies to what names
        a file, because the file belongs to one attempt.
        """
        id_ = source.id if source else None
        now = Moment(self.now_us, self._clock(), self._fences)
        kept = self._memo.get(memo)
        if kept is None or kept.source != id_ or not kept.begun.reusable(now):
            self._memo.pop(memo, None)
            named = len(self.files)
            kept = self._memoised(id_, make, now)
            if len(self.files) == named:
                self._memo[memo] = kept
        else:
            for part in kept.parts.values():
                self._written(part)
        return kept.made.loaded.ref

    def check_links(self) -> None:
        """Raise PreparedExpired if a written value names an object that may not be kept.

        Kept is what the head leads to, what this commit writes, and what it used as prepared; maintenance may have
        deleted any other. What the change fetched is checked first, so usually nothing is read.
        """
        used = {handle.ref[:2] for handle in self.used}
        named = (ref for new in self.writes.values() for ref in self._links(new.loaded))
        unproved = {ref[:2] for ref in named if ref[:2] not in used and not self.wrote(ref)}
        if not unproved:
            return
        fetched = {loaded.key.id: loaded for loaded in self._fetched}
        kept: dict[tuple[str, int], ObjectRef] = {}
        level = self._links_of_head()
        unread: list[ObjectRef] = []
        while level:
            new = {ref[:2]: ref for ref in level if ref[:2] not in kept}
            kept |= new
            unread += [ref for ref in new.values() if ref.id not in fetched and self._leads_on(ref)]
            known = [fetched[ref.id] for ref in new.values() if ref.id in fetched]
            unproved -= new.keys()
            if unproved and not known:
                known = [loaded for loaded in self._store.fetch_many(unread[:_MOST_READ]) if loaded is not None]
                unread = []
            level = [ref for loaded in known for ref in self._links(loaded)] if unproved else []
        if unproved:
            type_, id_ = min(unproved)
            raise PreparedExpired(
                f"a written value links to {type_}/{id_}, but the head does not lead to this object, so maintenance "
                "may delete it. Prepare it with Committer.prepare, and use the returned handle"
            )

    def _links_of_head(self) -> list[ObjectRef]:
        if self._head is None:
            return []
        return list(self._store.types.of(type(self._head)).links(self._head, self._store.fetch_many))

    def _links(self, of: Loaded[Any]) -> Iterable[ObjectRef]:
        declared = self._store.types.get(of.key.type)
        return declared.links(of.value, self._store.fetch_many) if declared else ()

    def _leads_on(self, ref: ObjectRef) -> bool:
        declared = self._store.types.get(ref.type)
        return declared is not None and follows_links(declared)

    def _memoised(self, source: int | None, make: Callable[[], PersistedModel], begun: Moment) -> Memoised:
        parts: Writes = {}
        self._recording.append(parts)
        try:
            made = self._store.prepare(make())
            self._written(made)
        finally:
            self._recording.pop()
        return Memoised(source, made, parts, begun)

    def _written(self, new: Prepared[Any]) -> ObjectRef:
        for writes in (self.writes, *self._recording):
            writes[new.loaded.key.id] = new
        return new.loaded.ref


def fences_of(reference: Reference, head: CommitObject | None) -> int:
    """Return how often a reference was fenced: each commit raises its `version` and the head's `seq`, a fence only the
    former. A reset to an older head counts too."""
    return reference.version - (head.seq if head else 0)


CommitChange = Callable[[CommitAttempt[H]], Changed[H, R]]
"""Step 3 of NoSQL persistence proposal, Performing a Commit: check requirements, write entities, make the new head.

It is called once per attempt, each time on another head, and must have no other effect than the attempt's writes. What
it raises refuses the commit, once it was raised on the current head.
"""
