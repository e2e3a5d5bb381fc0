"""Named entities of one model: changes of one entity each, and listings of one commit."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic

from polaris_persistence.commits.commits import Changed, CommitAttempt
from polaris_persistence.commits.committer import Committer
from polaris_persistence.commits.entities import HEAD_TYPE, EntityChanges, EntityHead, missing, seal
from polaris_persistence.commits.feed import names_of
from polaris_persistence.commits.recorded import RECORDED, record
from polaris_persistence.commits.waiting import ChangeKind
from polaris_persistence.errors import (
    CorruptIndexError,
    CorruptObject,
    EntityExists,
    EntityNotFound,
    PersistenceError,
    invalid_page_token,
)
from polaris_persistence.index.index import Index
from polaris_persistence.index.keys import IndexKey
from polaris_persistence.index.paging import IndexPage, Listing, PageToken, read_page
from polaris_persistence.index.spill import IndexPolicy
from polaris_persistence.objects.objects import Loaded, M, ObjectRef
from polaris_persistence.objects.store import CatalogStore, of_model


@dataclass(frozen=True, slots=True)
class EntityPage(Generic[M]):
    """Some entities in the order of their names, the errors of unreadable ones, and the next page's token."""

    entities: tuple[tuple[IndexKey, Loaded[M]], ...]
    next_token: str | None
    damaged: tuple[tuple[IndexKey, PersistenceError], ...] = ()


@dataclass(frozen=True, slots=True)
class NamePage:
    """Some names in order, and the token of the next page."""

    names: tuple[str, ...]
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
        """Replace an entity by what `change` returns, unless that raises. Raises EntityNotFound, ObjectMissing."""
        key = IndexKey.of(name)

        def changed(attempt: CommitAttempt[EntityHead]) -> Changed[EntityHead, Loaded[M]]:
            entities = EntityChanges(attempt)
            done = entities.update(key, change, self._model)
            return Changed(entities.head, done)

        return self._committer.commit(changed, operation=f"update {name}").result

    def remove(self, name: str, *, only_if: Callable[[M], bool] | None = None) -> None:
        """Remove an entity; without `only_if` also one whose object is gone. Raises EntityNotFound, also for an entity
        that `only_if` refuses."""
        key = IndexKey.of(name)

        def change(attempt: CommitAttempt[EntityHead]) -> Changed[EntityHead, None]:
            entities = EntityChanges(attempt)
            if only_if is not None:
                found = entities.fetch(key, self._model)
                if found is not None and not only_if(found.value):
                    raise EntityNotFound(f"there is no entity {name!r} that meets the condition `only_if`")
            if not entities.remove(key):
                raise EntityNotFound(f"there is no entity {name!r}")
            return Changed(entities.head, None)

        self._committer.commit(change, operation=f"remove {name}")

    def names(self, *, limit: int, token: str | None = None, prefix: str = "") -> NamePage:
        """Return names that start with a prefix, in order, as of the listing's first page; no entity is read.

        Raises PersistenceError (INVALID_PAGE_TOKEN), also for a listing whose objects are no longer kept, or with
        another prefix.
        """
        found = self._page(_beginning_with(prefix), limit, token)
        return NamePage(tuple(key.elements()[0] for key, _ in found.entries), found.next_token)

    def page(self, *, limit: int, token: str | None = None, prefix: str = "") -> EntityPage[M]:
        """Return entities whose names start with a prefix, in the order of names, as of the listing's first page.

        Raises PersistenceError (INVALID_PAGE_TOKEN), also for a listing whose objects are no longer kept, or with
        another prefix.
        """
        page = self._page(_beginning_with(prefix), limit, token)
        found = self._store.fetch_readable(ref for _, ref in page.entries)
        entities: list[tuple[IndexKey, Loaded[M]]] = []
        damaged: list[tuple[IndexKey, PersistenceError]] = []
        for (key, ref), loaded in zip(page.entries, found, strict=True):
            if loaded is None:
                # If the current head names it, it is lost; otherwise it was swept because this listing is too old.
                if self._current_ref(key) != ref:
                    raise _too_old()
                damaged.append((key, missing(key, ref)))
            elif isinstance(loaded, CorruptObject):
                damaged.append((key, loaded))
            else:
                entities.append((key, of_model(loaded, self._model)))
        return EntityPage(tuple(entities), page.next_token, tuple(damaged))

    def _page(self, listing: Listing, limit: int, token: str | None) -> IndexPage:
        after = PageToken.decode(token, listing) if token is not None else None
        head = self._head_at(after)
        if head is None:
            return IndexPage((), None)
        index = Index.load(head.value.index, self._store.fetch_many)
        try:
            return read_page(index, head.key.id, listing, limit=limit, after=after)
        except CorruptIndexError as error:
            current = self._committer.head()
            if current is not None and current.key == head.key:
                raise
            raise _too_old() from error

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


def _beginning_with(prefix: str) -> Listing:
    """Return the listing of the keys of one element that start with a text."""
    if not prefix:
        return Listing()
    start = IndexKey.of(prefix)
    # UTF-8 has no byte above F4.
    return Listing(start=start, end=IndexKey(start + b"\xff"))


def _too_old() -> PersistenceError:
    return invalid_page_token("the commit that was listed is no longer kept. Start the listing again")


def entity_committer(
    store: CatalogStore,
    reference: str,
    *,
    policy: IndexPolicy = IndexPolicy(),  # noqa: B008 - frozen
    kinds: Iterable[ChangeKind[EntityHead]] = (),
    feed: bool = False,
    **settings: Any,
) -> Committer[EntityHead]:
    """Return the committer of a reference whose heads have an index; `settings` go to it.

    With `feed` each commit notes the names that it changed (`commits.feed`), for one more row; all processes must do
    so. Other processes can combine its changes of `kinds`, and functions that use only `EntityChanges`.
    """
    if feed:
        settings["beside"] = names_of
    return Committer(
        store, reference, EntityHead, seal=seal(policy), kinds=[RECORDED, *kinds], record=record, **settings
    )


def directory_of(store: CatalogStore, reference: str, model: type[M], **settings: Any) -> Directory[M]:
    """Return a directory on an existing reference; `settings` go to the committer."""
    return Directory(store, entity_committer(store, reference, **settings), model)
