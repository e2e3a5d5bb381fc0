"""Realms, their catalogs, and the purge of a realm (NoSQL persistence proposal, System Managed Entities)."""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeVar

from pydantic import Field, field_serializer, field_validator

from polaris_persistence.backends.base import SYSTEM, Backend, Locator
from polaris_persistence.catalogs.names import NameCache, Spaces
from polaris_persistence.catalogs.removal import StoreRemoval, batched, close
from polaris_persistence.commits.directories import Directory, EntityPage, directory_of
from polaris_persistence.errors import (
    BackendUnavailable,
    CommitUnknown,
    CorruptObject,
    EntityNotFound,
    PersistenceError,
    RealmNotReady,
    ReferenceExists,
    ReferenceNotFound,
)
from polaris_persistence.ids.nodes import NODE_TYPE
from polaris_persistence.index.keys import IndexKey
from polaris_persistence.maintenance.coordination import TASK_TYPE
from polaris_persistence.objects.objects import PersistedModel
from polaris_persistence.objects.store import CatalogStore
from polaris_persistence.objects.types import ObjectType

T = TypeVar("T")

REALMS: Final = "realms"
CATALOGS: Final = "catalogs"
MAIN: Final = "main"
"""The one reference of each catalog of a realm."""
_LOG: Final = logging.getLogger(__name__)
_MOST_REASONS: Final = 10
_OF_THE_SYSTEM: Final = (NODE_TYPE, TASK_TYPE)
"""Updateable types of which no realm has objects."""


class RealmStatus(StrEnum):
    """The status of a realm: catalogs of an ACTIVE one can be used, an INACTIVE one can be purged."""

    ACTIVE = "ACTIVE"
    INACTIVE = "INACTIVE"
    PURGING = "PURGING"


_NEXT: Final[Mapping[RealmStatus, frozenset[RealmStatus]]] = {
    RealmStatus.ACTIVE: frozenset({RealmStatus.INACTIVE}),
    RealmStatus.INACTIVE: frozenset({RealmStatus.ACTIVE, RealmStatus.PURGING}),
    RealmStatus.PURGING: frozenset(),
}


_IN_SPACE: Final = "IN_SPACE_"
"""Prefix of the stored status of a realm with a space."""


class Realm(PersistedModel):
    """A tenant; `status` is a RealmStatus, stored as text so that a later release can add one.

    `space` is the realm's name in its keys, so that a realm created again under its name starts empty. A realm from the
    last release has none and uses its name. The last release would take a realm with a space for an empty one, so the
    stored status is one that it refuses to use.
    """

    status: str = RealmStatus.ACTIVE.value
    space: str = ""
    properties: dict[str, str] = Field(default_factory=dict)

    @field_validator("status", mode="after")
    @classmethod
    def _without_mark(cls, status: str) -> str:
        return status.removeprefix(_IN_SPACE)

    @field_serializer("status")
    def _stored_status(self, status: str) -> str:
        return f"{_IN_SPACE}{status}" if self.space else status


class RealmCatalog(PersistedModel):
    """A catalog of a realm. `space` is its name in its keys, so that a catalog created again under its name starts
    empty; `dropped` is set while its references are being deleted."""

    space: str
    dropped: bool = False
    properties: dict[str, str] = Field(default_factory=dict)


REALM_TYPE: Final = ObjectType("realm", Realm)
CATALOG_TYPE: Final = ObjectType("catalog", RealmCatalog)


@dataclass(frozen=True, slots=True)
class RealmPurge:
    """How many references and objects a purge deleted; `scanned` is why it read both tables as a whole, if it did."""

    references: int
    objects: int
    scanned: tuple[str, ...] = ()


class Realms:
    """The realms of a store, and the catalogs of each.

    `store_of` makes a CatalogStore for the names in keys of a realm and a catalog. The catalog named SYSTEM holds what
    belongs to a realm but to none of its catalogs, such as the list of catalogs. `names` caches the catalogs that
    `open` found; by default none.
    """

    def __init__(
        self,
        backend: Backend,
        store_of: Callable[[str, str], CatalogStore],
        *,
        names: NameCache | None = None,
        **settings: Any,
    ) -> None:
        self._names = names or NameCache()
        self._backend = backend
        self._store_of = store_of
        self._settings = settings
        self._system = store_of(SYSTEM, SYSTEM)
        self._realms: Directory[Realm] = directory_of(self._system, REALMS, Realm, copied=True, **settings)

    def create(self, realm: str, properties: Mapping[str, str]) -> None:
        """Create a realm, active and without catalogs. Raises EntityExists; ValueError for an impossible name."""
        if realm == SYSTEM:
            raise ValueError("a realm needs a name")
        IndexKey.of(realm)
        new = Realm(space=str(self._system.new_id()), properties=dict(properties))
        self._register(
            self._store_of(new.space, SYSTEM), CATALOGS, lambda: self._listed(lambda realms: realms.create(realm, new))
        )
        self._names.clear()

    def get(self, realm: str) -> Realm:
        """Return a realm as it is stored now. Raises EntityNotFound."""
        return self._listed(lambda realms: realms.get(realm)).value

    def page(self, *, limit: int, token: str | None = None) -> EntityPage[Realm]:
        """Return a page of realms in the order of their names. Raises PersistenceError (INVALID_PAGE_TOKEN)."""
        return self._listed(lambda realms: realms.page(limit=limit, token=token))

    def update(self, realm: str, properties: Mapping[str, str]) -> None:
        """Replace a realm's properties. Raises EntityNotFound."""
        self._listed(
            lambda realms: realms.update(realm, lambda old: old.model_copy(update={"properties": dict(properties)}))
        )

    def set_status(self, realm: str, status: RealmStatus) -> None:
        """Change ACTIVE to INACTIVE or back, INACTIVE to PURGING (terminal). Raises EntityNotFound, RealmNotReady."""

        def change(old: Realm) -> Realm:
            if old.status not in _NEXT or status not in _NEXT[RealmStatus(old.status)]:
                raise RealmNotReady(f"realm {realm!r} is {old.status} and cannot become {status}")
            return old.model_copy(update={"status": status.value})

        self._listed(lambda realms: realms.update(realm, change))
        self._names.clear()

    def purge(self, realm: str, *, page: int = 1_000, scan: bool = False) -> RealmPurge:
        """Delete an inactive realm with everything that its references lead to; a repeat after a crash continues.

        Only keys of the realm are read. Unreferenced objects (of dropped catalogs, and of commits that lost or ended
        half-way) are left to maintenance. With `scan` both tables are read as a whole, and every row of the realm is
        deleted. The same happens if the links may not lead to all objects, with the reasons in `scanned` and a warning.
        References are closed first, so that no further commit succeeds. A realm created again meanwhile has another
        space, so a late purge does not touch it. Raises EntityNotFound, also if another process completed the purge;
        RealmNotReady; CommitContended (repeat it).
        """
        found = self.get(realm)
        if found.status != RealmStatus.PURGING:
            self.set_status(realm, RealmStatus.PURGING)
            found = self.get(realm)
        space = in_keys(realm, found)
        reasons = self._unlisted(found)
        if scan:
            reasons.insert(0, "its caller asked for it")
        # After the list is closed no catalog is registered; the list is removed last.
        try:
            catalogs = self._removal(space, SYSTEM, CATALOGS, page)
        except CorruptObject as error:
            catalogs = None
            reasons.append(str(error))
        references, objects = 0, 0
        if catalogs is not None:
            for removal in self._catalog_removals(space, catalogs, page):
                if removal.unproved:
                    # Before the delete of anything from which a repeated purge would find that out again.
                    catalogs.keep_unproved()
                    reasons += removal.unproved
                objects += removal.delete()
                references += 1
            reasons += catalogs.unproved
            if catalogs.unproved:
                catalogs.keep_unproved()
            if not reasons:
                objects += catalogs.delete()
                references += 1
        if reasons:
            _LOG.warning("the purge of realm %r scans both tables: %s", realm, "; ".join(reasons[:_MOST_REASONS]))
            more = self._delete_scanned(space, page)
            references, objects = references + more.references, objects + more.objects
        self._listed(lambda realms: realms.remove(realm, only_if=lambda now: now.space == found.space))
        self._names.clear()
        return RealmPurge(references, objects, tuple(reasons))

    def catalogs(self, realm: str) -> Directory[RealmCatalog]:
        """Return the catalogs of an active realm. Raises EntityNotFound, RealmNotReady."""
        return self._catalogs(self._space(realm))

    def create_catalog(self, realm: str, catalog: str, properties: Mapping[str, str]) -> CatalogStore:
        """Create an empty catalog. Raises EntityExists, EntityNotFound, RealmNotReady; ValueError for too long a
        name."""
        IndexKey.of(catalog)
        space = self._space(realm)
        new = RealmCatalog(space=str(self._system.new_id()), properties=dict(properties))
        store = self._store_of(space, new.space)
        self._register(store, MAIN, lambda: self._catalogs(space).create(catalog, new))
        self._names.clear()
        return store

    def open(self, realm: str, catalog: str) -> CatalogStore:
        """Return the store of a catalog; writes nothing. Raises EntityNotFound, RealmNotReady.

        If the catalog is dropped meanwhile, every commit to the store raises ReferenceNotFound.
        """
        return self._store_of(*self._names.spaces(realm, catalog, lambda: self._look_up(realm, catalog)))

    def _look_up(self, realm: str, catalog: str) -> Spaces:
        space = self._space(realm)
        found = self._catalogs(space).get(catalog).value
        if found.dropped:
            raise EntityNotFound(f"catalog {catalog!r} is being dropped and can no longer be used")
        return Spaces(space, found.space)

    def drop_catalog(self, realm: str, catalog: str) -> None:
        """Delete a catalog; may be repeated. Maintenance sweeps its objects. Raises EntityNotFound, also for a catalog
        that another process dropped and created again meanwhile; RealmNotReady."""
        space = self._space(realm)
        catalogs = self._catalogs(space)
        found = catalogs.get(catalog).value

        def dropped(old: RealmCatalog) -> RealmCatalog:
            if old.space != found.space:
                raise EntityNotFound(
                    f"catalog {catalog!r} was dropped and created again. Read it again before you drop it"
                )
            return old.model_copy(update={"dropped": True})

        catalogs.update(catalog, dropped)
        self._names.clear()
        self._backend.delete_reference(self._store_of(space, found.space).reference_key(MAIN))
        catalogs.remove(catalog, only_if=lambda now: now.space == found.space)

    def _listed(self, use: Callable[[Directory[Realm]], T]) -> T:
        """Use the list of realms, whose reference is created when missing: a check first would cost a round trip."""
        try:
            return use(self._realms)
        except ReferenceNotFound:
            _ensure_reference(self._system, REALMS)
            return use(self._realms)

    def _space(self, realm: str) -> str:
        found = self.get(realm)
        if found.status != RealmStatus.ACTIVE:
            raise RealmNotReady(f"realm {realm!r} is {found.status}, and only an ACTIVE realm can be used")
        return in_keys(realm, found)

    def _catalogs(self, space: str) -> Directory[RealmCatalog]:
        return directory_of(self._store_of(space, SYSTEM), CATALOGS, RealmCatalog, copied=True, **self._settings)

    def _register(self, store: CatalogStore, reference: str, register: Callable[[], object]) -> None:
        """Create a reference, then register what it belongs to: a registered realm or catalog can always be used.

        After a crash in between, or without an answer, an unnamed reference without commits remains.
        """
        store.create_reference(reference)
        try:
            register()
        except CommitUnknown:
            raise
        except PersistenceError:
            with suppress(BackendUnavailable):
                self._backend.delete_reference(store.reference_key(reference))
            raise

    def _removal(self, space: str, catalog: str, name: str, page: int) -> StoreRemoval | None:
        """Close a reference and return what it leads to; None if there is no reference."""
        store = self._store_of(space, catalog)
        closed = close(self._backend, store.reference_key(name))
        return StoreRemoval(store, closed, page=page) if closed is not None else None

    def _catalog_removals(self, space: str, listed: StoreRemoval, page: int) -> Iterator[StoreRemoval]:
        """Return the removals of all catalogs that the list or its log has; none for those that are already removed."""
        store = self._store_of(space, SYSTEM)
        spaces: dict[str, None] = {}
        for some in batched(listed.refs(CATALOG_TYPE.name), page):
            for loaded in store.fetch_readable(some):
                if isinstance(loaded, CorruptObject):
                    listed.unproved.append(str(loaded))
                elif loaded is not None and isinstance(loaded.value, RealmCatalog):
                    spaces[loaded.value.space] = None
        for catalog in spaces:
            try:
                found = self._removal(space, catalog, MAIN, page)
            except CorruptObject as error:
                listed.unproved.append(str(error))
                continue
            if found is not None:
                yield found

    def _unlisted(self, realm: Realm) -> list[str]:
        """Return why a realm may have objects that no reference leads to and that maintenance keeps."""
        updateable = sorted(
            declared.name for declared in self._system.types if declared.mutable and declared not in _OF_THE_SYSTEM
        )
        reasons = [
            f"objects of type {name!r} are updateable, so links may not lead to all of them" for name in updateable
        ]
        if not realm.space:
            reasons.append("an earlier release created the realm without a space")
        return reasons

    def _delete_scanned(self, space: str, page: int) -> RealmPurge:
        """Delete the rows of a realm by reading both tables as a whole."""
        last = self._store_of(space, SYSTEM).reference_key(CATALOGS)
        references, objects = 0, 0
        while True:
            found = [reference.key for reference in self._backend.references(realm=space)]
            # A row whose key is no reference's stays: it belongs to no catalog, and no call names it.
            some = [key for key in found if key != last and key.name]
            if not some:
                break
            for key in some:
                self._backend.delete_reference(key)
            references += len(some)
        while removed := self._delete_objects(space, page):
            objects += removed
        # Last, because a repeated purge learns from it that it has to scan.
        if last in found:
            self._backend.delete_reference(last)
            references += 1
        return RealmPurge(references, objects)

    def _delete_objects(self, realm: str, page: int) -> int:
        removed, after = 0, None
        while True:
            found = self._backend.scan(realm=realm, after=after, limit=page)
            if found.rows:
                self._backend.delete_many(Locator(row.key, row.parts) for row in found.rows)
            removed += len({row.key for row in found.rows})
            after = found.after
            if after is None:
                return removed


def in_keys(name: str, realm: Realm) -> str:
    return realm.space or name


def space_of(store_of: Callable[[str, str], CatalogStore], realm: str) -> str:
    """Return the name of a realm in its keys; the text itself if no realm has this name, because it may be a space.

    After a disaster the list of realms may be unreadable: then only spaces can be used.
    """
    if realm == SYSTEM:
        return realm
    try:
        return in_keys(realm, directory_of(store_of(SYSTEM, SYSTEM), REALMS, Realm).get(realm).value)
    except (EntityNotFound, ReferenceNotFound, CorruptObject):
        return realm


def _ensure_reference(store: CatalogStore, name: str) -> None:
    if store.backend.read_reference(store.reference_key(name)) is None:
        try:
            store.create_reference(name)
        except ReferenceExists:
            return  # another process created it meanwhile
