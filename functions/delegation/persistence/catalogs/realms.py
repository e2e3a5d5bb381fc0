"""Realms, their catalogs, and the purge of a realm (NoSQL persistence proposal, System Managed Entities)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from pydantic import Field

from delegation.persistence.backends.base import SYSTEM, Backend, Locator
from delegation.persistence.commits.entities import Directory, EntityPage, directory_of
from delegation.persistence.errors import EntityNotFound, RealmNotReady, ReferenceExists
from delegation.persistence.objects.objects import PersistedModel
from delegation.persistence.objects.store import CatalogStore
from delegation.persistence.objects.types import ObjectType

REALMS: Final = "realms"
CATALOGS: Final = "catalogs"
MAIN: Final = "main"


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


class Realm(PersistedModel):
    """A tenant; `status` is a RealmStatus, stored as text so that a later release can add one."""

    status: str = RealmStatus.ACTIVE.value
    properties: dict[str, str] = Field(default_factory=dict)


class RealmCatalog(PersistedModel):
    """A catalog of a realm. `space` is the catalog in its keys, so that a catalog of the same name starts empty;
    `dropped` is set while its references are being deleted."""

    space: str
    dropped: bool = False
    properties: dict[str, str] = Field(default_factory=dict)


REALM_TYPE: Final = ObjectType("realm", Realm)
CATALOG_TYPE: Final = ObjectType("catalog", RealmCatalog)


@dataclass(frozen=True, slots=True)
class RealmPurge:
    """How many references and objects a purge deleted."""

    references: int
    objects: int


class Realms:
    """The realms of a store, and the catalogs of each.

    `store_of` makes a CatalogStore for (realm, catalog). The catalog named SYSTEM holds what belongs to a realm but to
    none of its catalogs, such as the list of catalogs.
    """

    def __init__(self, backend: Backend, store_of: Callable[[str, str], CatalogStore], **settings: Any) -> None:
        self._backend = backend
        self._store_of = store_of
        self._settings = settings
        self._system = store_of(SYSTEM, SYSTEM)
        _ensure_reference(self._system, REALMS)
        self._realms: Directory[Realm] = directory_of(self._system, REALMS, Realm, **settings)

    def create(self, realm: str, properties: Mapping[str, str]) -> None:
        """Create a realm, active and without catalogs. Raises EntityExists; ValueError for the empty name."""
        if realm == SYSTEM:
            raise ValueError("a realm needs a name")
        self._realms.create(realm, Realm(properties=dict(properties)))
        _ensure_reference(self._store_of(realm, SYSTEM), CATALOGS)

    def get(self, realm: str) -> Realm:
        """Return a realm as it is stored now. Raises EntityNotFound."""
        return self._realms.get(realm).value

    def page(self, *, limit: int, token: str | None = None) -> EntityPage[Realm]:
        """Return a page of realms in the order of their names. Raises InvalidPageToken."""
        return self._realms.page(limit=limit, token=token)

    def update(self, realm: str, properties: Mapping[str, str]) -> None:
        """Replace a realm's properties. Raises EntityNotFound."""
        self._realms.update(realm, lambda old: old.model_copy(update={"properties": dict(properties)}))

    def set_status(self, realm: str, status: RealmStatus) -> None:
        """Change ACTIVE to INACTIVE or back, INACTIVE to PURGING (terminal). Raises EntityNotFound, RealmNotReady."""

        def change(old: Realm) -> Realm:
            if old.status not in _NEXT or status not in _NEXT[RealmStatus(old.status)]:
                raise RealmNotReady(f"realm {realm!r} is {old.status} and cannot become {status}")
            return old.model_copy(update={"status": status.value})

        self._realms.update(realm, change)

    def purge(self, realm: str, *, page: int = 1_000) -> RealmPurge:
        """Delete an inactive realm with everything in it; repeated after a crash, it continues.

        References are deleted first, so that no commit succeeds any more. Objects that running commits still write are
        found by a further scan, and by maintenance. Raises EntityNotFound, RealmNotReady.
        """
        if self.get(realm).status != RealmStatus.PURGING:
            self.set_status(realm, RealmStatus.PURGING)
        references = list(self._backend.references(realm=realm))
        for one in references:
            self._backend.delete_reference(one.key)
        objects = 0
        while removed := self._delete_objects(realm, page):
            objects += removed
        self._realms.remove(realm)
        return RealmPurge(len(references), objects)

    def catalogs(self, realm: str) -> Directory[RealmCatalog]:
        """Return the catalogs of an active realm. Raises EntityNotFound, RealmNotReady."""
        status = self.get(realm).status
        if status != RealmStatus.ACTIVE:
            raise RealmNotReady(f"realm {realm!r} is {status}")
        store = self._store_of(realm, SYSTEM)
        # Again, because a process may have ended between the two steps of creating the realm.
        _ensure_reference(store, CATALOGS)
        return directory_of(store, CATALOGS, RealmCatalog, **self._settings)

    def create_catalog(self, realm: str, catalog: str, properties: Mapping[str, str]) -> CatalogStore:
        """Create an empty catalog. Raises EntityExists; EntityNotFound and RealmNotReady for the realm."""
        space = str(self._system.new_id())
        self.catalogs(realm).create(catalog, RealmCatalog(space=space, properties=dict(properties)))
        return self.open(realm, catalog)

    def open(self, realm: str, catalog: str) -> CatalogStore:
        """Return the store of a catalog, whose reference MAIN exists. Raises EntityNotFound, RealmNotReady."""
        found = self.catalogs(realm).get(catalog).value
        if found.dropped:
            raise EntityNotFound(f"catalog {catalog!r} is being dropped")
        store = self._store_of(realm, found.space)
        _ensure_reference(store, MAIN)
        return store

    def drop_catalog(self, realm: str, catalog: str) -> None:
        """Delete a catalog, repeatably; maintenance sweeps its objects. Raises EntityNotFound, RealmNotReady."""
        catalogs = self.catalogs(realm)
        dropped = catalogs.update(catalog, lambda old: old.model_copy(update={"dropped": True})).value
        for one in list(self._store_of(realm, dropped.space).references()):
            self._backend.delete_reference(one.key)
        catalogs.remove(catalog)

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


def _ensure_reference(store: CatalogStore, name: str) -> None:
    if store.backend.read_reference(store.reference_key(name)) is None:
        try:
            store.create_reference(name)
        except ReferenceExists:
            return  # Another process created it meanwhile.
