"""Named entities of a catalog: a head with an index, changes to it, and listings of one commit."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic

from pydantic import PrivateAttr

from delegation.persistence.commits.commits import Changed, CommitAttempt, CommitObject, PreparedHandle
from delegation.persistence.commits.committer import Committer
from delegation.persistence.errors import (
    CorruptIndexError,
    EntityExists,
    EntityNotFound,
    InvalidPageToken,
    ObjectMissing,
    PreparedExpired,
)
from delegation.persistence.index.format import EmbeddedIndex, IndexBytes
from delegation.persistence.index.index import Index
from delegation.persistence.index.keys import IndexKey
from delegation.persistence.index.paging import Listing, PageToken, read_page
from delegation.persistence.index.spill import IndexPolicy
from delegation.persistence.index.stripes import head_links
from delegation.persistence.objects.objects import Loaded, M, ObjectRef, PersistedModel
from delegation.persistence.objects.store import CatalogStore, of_model
from delegation.persistence.objects.types import Fetch, ObjectType

ObjectName = tuple[str, int]


class EntityHead(CommitObject):
    """A head whose index names the entities; changes are kept beside the index until the head is sealed."""

    index: IndexBytes = EmbeddedIndex()
    _waiting: dict[IndexKey, ObjectRef | None] = PrivateAttr(default_factory=dict)

    @property
    def waiting(self) -> Mapping[IndexKey, ObjectRef | None]:
        """Return the changes since the index was stored; None is a removal."""
        return self._waiting

    def with_changes(self, changes: Mapping[IndexKey, ObjectRef | None]) -> "EntityHead":
        """Return a head with further waiting changes; this one is not altered."""
        changed = self.model_copy()
        changed._waiting = {**self._waiting, **changes}  # noqa: SLF001 - of the same class
        return changed

    def working_index(self, fetch: Fetch) -> Index:
        """Return a copy of the index with the waiting changes in it."""
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
        self._before = attempt.head or EntityHead()
        self._changes: dict[IndexKey, ObjectRef | None] = {}
        self._named: set[ObjectName] = set()

    @property
    def head(self) -> EntityHead | None:
        """Return the head with the changes; None without changes."""
        return self._before.with_changes(self._changes) if self._changes else None

    def get(self, key: IndexKey) -> ObjectRef | None:
        """Return the ref under a name, None if there is none."""
        for waiting in (self._changes, self._before.waiting):
            if key in waiting:
                return waiting[key]
        found = Index.load(self._before.index, self.attempt.fetch_many).get(key)
        if found is not None:
            self._named.add(found[:2])
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
        """Store an entity under a name."""
        self._changes[key] = ref = self.attempt.write(value)
        return ref

    def link(self, key: IndexKey, to: ObjectRef | PreparedHandle) -> None:
        """Put a name on an object that the head already names, that this attempt wrote, or that was prepared.

        Raises PreparedExpired for any other object, because maintenance may delete it. That the head names one that
        this attempt did not `get` is found out by reading the whole index.
        """
        if isinstance(to, PreparedHandle):
            self._changes[key] = self.attempt.use(to)
            return
        if not (to[:2] in self._named or self.attempt.wrote(to) or any(to[:2] == ref[:2] for _, ref in self.items())):
            raise PreparedExpired(
                f"{to.type}/{to.id} is named by no entity of the head, so maintenance may delete it; prepare it "
                "(Committer.prepare), and link what that returns"
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
            raise EntityNotFound(f"{key} was not written")
        return made

    def remove(self, key: IndexKey) -> bool:
        """Remove a name; return False if there is none."""
        if self.get(key) is None:
            return False
        self._changes[key] = None
        return True

    def items(self, prefix: IndexKey | None = None) -> Iterator[tuple[IndexKey, ObjectRef]]:
        """Return the names in order, with the changes applied."""
        changed = self._before.with_changes(self._changes)
        return changed.working_index(self.attempt.fetch_many).items(prefix=prefix)


@dataclass(frozen=True, slots=True)
class EntityPage(Generic[M]):
    """Some entities in the order of their names, and the token of the next page."""

    entities: tuple[tuple[IndexKey, Loaded[M]], ...]
    next_token: str | None


class Directory(Generic[M]):
    """The entities of one model on one reference, by name. Every method also raises what Committer.commit raises."""

    def __init__(self, store: CatalogStore, committer: Committer[EntityHead], model: type[M]) -> None:
        self._store = store
        self._committer = committer
        self._model = model

    def create(self, name: str, value: M) -> ObjectRef:
        """Store a new entity. Raises EntityExists, ObjectMissing for a name whose object is gone."""
        key = IndexKey.of(name)

        def change(attempt: CommitAttempt[EntityHead]) -> Changed[EntityHead, ObjectRef]:
            entities = EntityChanges(attempt)
            if entities.fetch(key, self._model) is not None:
                raise EntityExists(f"{name!r} already exists")
            ref = entities.put(key, value)
            return Changed(entities.head, ref)

        return self._committer.commit(change, operation=f"create {name}").result

    def get(self, name: str) -> Loaded[M]:
        """Return the entity as it is stored now. Raises EntityNotFound, ObjectMissing."""
        key = IndexKey.of(name)
        ref = self._current_ref(key)
        if ref is None:
            raise EntityNotFound(f"there is no entity {name!r}")
        found = self._store.fetch(ref, self._model)
        if found is None:
            raise missing(key, ref)
        return found

    def update(self, name: str, change: Callable[[M], M]) -> Loaded[M]:
        """Replace an entity by what `change` returns for it, unless it raises. Raises EntityNotFound, ObjectMissing."""
        key = IndexKey.of(name)

        def changed(attempt: CommitAttempt[EntityHead]) -> Changed[EntityHead, Loaded[M]]:
            entities = EntityChanges(attempt)
            done = entities.update(key, change, self._model)
            return Changed(entities.head, done)

        return self._committer.commit(changed, operation=f"update {name}").result

    def remove(self, name: str, *, only_if: Callable[[M], bool] | None = None) -> None:
        """Remove an entity, without `only_if` also one whose object is gone. Raises EntityNotFound, also for one that
        `only_if` does not hold for."""
        key = IndexKey.of(name)

        def change(attempt: CommitAttempt[EntityHead]) -> Changed[EntityHead, None]:
            entities = EntityChanges(attempt)
            if only_if is not None:
                found = entities.fetch(key, self._model)
                if found is not None and not only_if(found.value):
                    raise EntityNotFound(f"there is no entity {name!r} of that state")
            if not entities.remove(key):
                raise EntityNotFound(f"there is no entity {name!r}")
            return Changed(entities.head, None)

        self._committer.commit(change, operation=f"remove {name}")

    def page(self, *, limit: int, token: str | None = None) -> EntityPage[M]:
        """Return entities in the order of names, as of the listing's first page.

        Raises InvalidPageToken, also for a listing whose objects are no longer kept; ObjectMissing.
        """
        listing = Listing()
        after = PageToken.decode(token, listing) if token is not None else None
        head = self._head_at(after)
        if head is None:
            return EntityPage((), None)
        index = Index.load(head.value.index, self._store.fetch_many)
        try:
            page = read_page(index, head.key.id, listing, limit=limit, after=after)
        except CorruptIndexError as error:
            current = self._committer.head()
            if current is not None and current.key == head.key:
                raise
            raise _too_old() from error
        found = self._store.fetch_many(ref for _, ref in page.entries)
        entities: list[tuple[IndexKey, Loaded[M]]] = []
        for (key, ref), one in zip(page.entries, found, strict=True):
            if one is None:
                # Kept by the current head it is lost; otherwise it was swept because this listing is too old.
                raise missing(key, ref) if self._current_ref(key) == ref else _too_old()
            entities.append((key, of_model(one, self._model)))
        return EntityPage(tuple(entities), page.next_token)

    def _current_ref(self, key: IndexKey) -> ObjectRef | None:
        head = self._committer.head()
        return Index.load(head.value.index, self._store.fetch_many).get(key) if head else None

    def _head_at(self, after: PageToken | None) -> Loaded[EntityHead] | None:
        if after is None:
            return self._committer.head()
        found = self._store.fetch(ObjectRef(HEAD_TYPE.name, after.commit_id), EntityHead)
        if found is None:
            raise _too_old()
        return found


def missing(key: IndexKey, ref: ObjectRef) -> ObjectMissing:
    """Return the error for a name whose object is gone."""
    return ObjectMissing(
        f"the object {ref.type}/{ref.id} of {key} is not stored any more; remove the name, or reset the reference to a "
        "complete head"
    )


def _too_old() -> InvalidPageToken:
    return InvalidPageToken("the commit that was listed is no longer kept; start the listing again")


def directory_of(store: CatalogStore, reference: str, model: type[M], **settings: Any) -> Directory[M]:
    """Return a directory on an existing reference; `settings` go to the committer."""
    policy = settings.pop("policy", IndexPolicy())
    committer: Committer[EntityHead] = Committer(store, reference, EntityHead, seal=seal(policy), **settings)
    return Directory(store, committer, model)
