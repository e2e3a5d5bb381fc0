"""Named entities of a catalog: a head with an index, and changes to it."""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

from pydantic import PrivateAttr

from polaris_persistence.commits.commits import CommitAttempt, CommitObject, PreparedHandle
from polaris_persistence.errors import (
    EntityNotFound,
    ObjectMissing,
    PreparedExpired,
)
from polaris_persistence.index.format import EmbeddedIndex, IndexBytes
from polaris_persistence.index.index import Index
from polaris_persistence.index.keys import IndexKey
from polaris_persistence.index.spill import IndexPolicy
from polaris_persistence.index.stripes import head_links
from polaris_persistence.objects.objects import Loaded, M, ObjectRef, PersistedModel
from polaris_persistence.objects.types import Fetch, ObjectType

_ALL: Final = IndexKey(b"")
"""Stands for a prefix of all names."""


class EntityHead(CommitObject):
    """A head whose index names the entities; changes are kept beside the index until the head is sealed."""

    index: IndexBytes = EmbeddedIndex()
    _waiting: dict[IndexKey, ObjectRef | None] = PrivateAttr(default_factory=dict)

    @property
    def waiting(self) -> Mapping[IndexKey, ObjectRef | None]:
        """The changes since the index was stored; None is a removal."""
        return self._waiting

    def with_changes(self, changes: Mapping[IndexKey, ObjectRef | None]) -> "EntityHead":
        """Return a head with further waiting changes; this one is not altered."""
        changed = self.model_copy()
        changed._waiting = {**self._waiting, **changes}  # noqa: SLF001 - of the same class
        return changed

    def working_index(self, fetch: Fetch) -> Index:
        index = Index.load(self.index, fetch)
        for key, ref in self._waiting.items():
            if ref is None:
                index.remove(key)
            else:
                index.put(key, ref)
        return index


def _links(head: EntityHead, _fetch: Fetch) -> Iterator[ObjectRef]:
    return head_links(head.index)


HEAD_TYPE: Final = ObjectType("catalog-head", EntityHead, links=_links)


def seal(policy: IndexPolicy) -> Callable[[EntityHead, CommitAttempt[EntityHead]], EntityHead]:
    """Return the `seal` of a committer of entities, which puts all waiting changes into the index."""

    def sealed(head: EntityHead, attempt: CommitAttempt[EntityHead]) -> EntityHead:
        if not head.waiting:
            return head
        finished = head.working_index(attempt.fetch_many).finish(policy, attempt.write)
        done = head.model_copy(update={"index": finished.embedded})
        done._waiting = {}  # noqa: SLF001
        return done

    return sealed


class EntityChanges:
    """The entities as one attempt reads and changes them."""

    def __init__(self, attempt: CommitAttempt[EntityHead]) -> None:
        self.attempt = attempt
        self._before = attempt.read_by(self) or EntityHead()
        self._changes: dict[IndexKey, ObjectRef | None] = {}
        self._reads: dict[IndexKey, ObjectRef | None] = {}
        self._scans: dict[IndexKey, None] = {}

    @property
    def head(self) -> EntityHead | None:
        """The head with the changes; None without changes."""
        return self._before.with_changes(self._changes) if self._changes else None

    @property
    def changes(self) -> Mapping[IndexKey, ObjectRef | None]:
        """The changed names; None is a removal."""
        return self._changes

    @property
    def reads(self) -> Mapping[IndexKey, ObjectRef | None]:
        """What the head had under each name that was read."""
        return self._reads

    @property
    def scans(self) -> Collection[IndexKey]:
        """The prefixes below which names were listed."""
        return self._scans.keys()

    def made(self, head: CommitObject) -> bool:
        """Return whether these changes, and nothing else, make `head` from the head that they started with."""
        mine = self.head
        return mine is not None and mine.__dict__ == head.__dict__ and mine.waiting == getattr(head, "waiting", None)

    def before(self, prefix: IndexKey) -> Iterator[tuple[IndexKey, ObjectRef]]:
        """Return the names below a prefix in order, without the changes."""
        below = None if prefix == _ALL else prefix
        return self._before.working_index(self.attempt.fetch_many).items(prefix=below)

    def name(self, key: IndexKey, ref: ObjectRef | None) -> None:
        """Put a name on an object that is known to be kept, or remove the name."""
        self._changes[key] = ref

    def get(self, key: IndexKey) -> ObjectRef | None:
        """Return the ref under a name, None if there is none."""
        if key in self._changes:
            return self._changes[key]
        waiting = self._before.waiting
        found = waiting[key] if key in waiting else Index.load(self._before.index, self.attempt.fetch_many).get(key)
        self._reads[key] = found
        return found

    def fetch(self, key: IndexKey, model: type[M]) -> Loaded[M] | None:
        """Return the entity under a name, None if there is none. Raises ObjectMissing if its object is gone."""
        ref = self.get(key)
        if ref is None:
            return None
        found = self.attempt.fetch(ref, model)
        if found is None:
            raise missing(key, ref)
        return found

    def put(self, key: IndexKey, value: PersistedModel) -> ObjectRef:
        self._changes[key] = ref = self.attempt.write(value)
        return ref

    def link(self, key: IndexKey, to: ObjectRef | PreparedHandle) -> None:
        """Put a name on an object that the head already names, that this attempt wrote, or that was prepared.

        Raises PreparedExpired for any other object, because maintenance may delete it. If this attempt did not `get`
        the object, the whole index is read to find out whether the head names it.
        """
        if isinstance(to, PreparedHandle):
            self._changes[key] = self.attempt.use(to)
            return
        named = any(ref is not None and ref[:2] == to[:2] for ref in self._reads.values())
        if not (named or self.attempt.wrote(to) or any(ref[:2] == to[:2] for _, ref in self.items())):
            raise PreparedExpired(
                f"no entity of the head links to {to.type}/{to.id}, so maintenance may delete it. Prepare it with "
                "Committer.prepare, and link the returned handle"
            )
        self._changes[key] = to

    def update(self, key: IndexKey, change: Callable[[M], M], model: type[M]) -> Loaded[M]:
        """Replace the entity under a name by what `change` returns for it. Raises EntityNotFound."""
        found = self.fetch(key, model)
        if found is None:
            raise EntityNotFound(f"there is no entity {key}")
        self._changes[key] = ref = self.attempt.write_once(key, found.ref, lambda: change(found.value))
        made = self.attempt.fetch(ref, model)
        if made is None:
            raise EntityNotFound(f"the new object of {key} cannot be read")
        return made

    def remove(self, key: IndexKey) -> bool:
        """Remove a name; return False if there is none."""
        if self.get(key) is None:
            return False
        self._changes[key] = None
        return True

    def items(self, prefix: IndexKey | None = None) -> Iterator[tuple[IndexKey, ObjectRef]]:
        """Return the names in order, with the changes applied."""
        self._scans[prefix or _ALL] = None
        changed = self._before.with_changes(self._changes)
        return changed.working_index(self.attempt.fetch_many).items(prefix=prefix)


def missing(key: IndexKey, ref: ObjectRef) -> ObjectMissing:
    return ObjectMissing(
        f"the object {ref.type}/{ref.id} of {key} no longer exists. Remove the name, or reset the reference to a "
        "complete head"
    )
