"""The catalog's state in the NoSQL persistence: each step is one commit to the catalog's reference."""

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from infra.local.catalog.entities import CatalogEntry, CatalogNamespace, CatalogView
from infra.local.catalog.errors import bad_request, unavailable
from infra.local.catalog.policies import LocalPolicy, PolicyAttachment
from infra.local.catalog.state import Key, Records, T
from polaris_persistence.backends.base import Backend
from polaris_persistence.catalogs.process import OWN_TYPES, PersistenceProcess
from polaris_persistence.catalogs.realms import MAIN
from polaris_persistence.commits.commits import Changed, CommitAttempt
from polaris_persistence.commits.directories import entity_committer
from polaris_persistence.commits.entities import EntityChanges, EntityHead
from polaris_persistence.errors import (
    CommitOutcomeUnknown,
    CommitUnknown,
    EntityExists,
    ObjectTooLarge,
    PersistenceError,
    ValueNotStorable,
)
from polaris_persistence.index.keys import IndexKey
from polaris_persistence.objects.objects import M, PersistedModel
from polaris_persistence.objects.types import ObjectType, ObjectTypes

TYPES: Final = ObjectTypes(
    [
        *OWN_TYPES,
        ObjectType("local-namespace", CatalogNamespace),
        ObjectType("local-table", CatalogEntry),
        ObjectType("local-view", CatalogView),
        ObjectType("local-policy", LocalPolicy),
        ObjectType("local-attachment", PolicyAttachment),
    ]
)


class PersistedState:
    """The state of a catalog of a realm, both made where they do not exist; other processes may use it, too.

    A step of which nobody knows whether it was applied raises CommitUnknown or CommitOutcomeUnknown; any other failure
    is a RestError, and nothing was changed.
    """

    def __init__(self, backend: Backend, *, realm: str, catalog: str) -> None:
        self._process = PersistenceProcess(backend, types=TYPES)
        realms = self._process.realms()
        with suppress(EntityExists):
            realms.create(realm, {})
        with suppress(EntityExists):
            realms.create_catalog(realm, catalog, {})
        self._committer = entity_committer(realms.open(realm, catalog), MAIN)

    def atomically(self, step: Callable[[Records], T], *, operation: str) -> T:
        def change(attempt: CommitAttempt[EntityHead]) -> Changed[EntityHead, T]:
            entities = EntityChanges(attempt)
            result = step(_EntityRecords(entities))
            return Changed(entities.head, result)

        try:
            return self._committer.commit(change, operation=operation).result
        except (CommitUnknown, CommitOutcomeUnknown):
            raise
        except (ValueNotStorable, ObjectTooLarge) as error:
            raise bad_request(str(error)) from error
        except PersistenceError as error:
            raise unavailable(str(error)) from error

    def close(self) -> None:
        self._process.close()


class _EntityRecords:
    def __init__(self, entities: EntityChanges) -> None:
        self._entities = entities

    def get(self, key: Key, model: type[M]) -> M | None:
        entity = self._entities.fetch(IndexKey.of(*key), model)
        return None if entity is None else entity.value

    def keys(self, prefix: Key) -> list[Key]:
        return [key.elements() for key, _ in self._entities.items(IndexKey.of(*prefix))]

    def put(self, key: Key, value: PersistedModel) -> None:
        self._entities.put(IndexKey.of(*key), value)

    def remove(self, key: Key) -> None:
        self._entities.remove(IndexKey.of(*key))

    def new_id(self) -> int:
        return self._entities.attempt.new_id
