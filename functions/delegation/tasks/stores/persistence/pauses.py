"""PauseStore on the NoSQL persistence: one entity of the tasks' reference."""

from typing import TYPE_CHECKING, Any, Final

from delegation.tasks.pauses.model import PauseRecord, pauses_item, pauses_of
from delegation.tasks.stores.persistence.entities import translated
from polaris_persistence.commits.commits import Changed, CommitAttempt
from polaris_persistence.commits.entities import EntityChanges, EntityHead
from polaris_persistence.index.keys import IndexKey
from polaris_persistence.objects.objects import PersistedModel
from polaris_persistence.objects.types import ObjectType

if TYPE_CHECKING:
    from delegation.tasks.stores.persistence.store import PersistenceTaskStore

_KEY: Final = IndexKey.of("pauses")


class StoredPauses(PersistedModel):
    item: dict[str, Any]


STORED_PAUSES: Final = ObjectType("delegation-pauses", StoredPauses)


class PersistencePauseStore:
    def __init__(self, tasks: "PersistenceTaskStore") -> None:
        self._store = tasks.catalog_store
        self._committer = tasks.committer
        self._index = tasks.index

    def read(self) -> PauseRecord:
        with translated():
            ref = self._index().get(_KEY)
            found = self._store.fetch(ref, StoredPauses) if ref else None
        return pauses_of(found.value.item if found else None)

    def write(self, record: PauseRecord) -> bool:
        def change(attempt: CommitAttempt[EntityHead]) -> Changed[EntityHead, bool]:
            entities = EntityChanges(attempt)
            found = entities.fetch(_KEY, StoredPauses)
            if pauses_of(found.value.item if found else None).revision != record.revision - 1:
                return Changed(None, False)
            entities.put(_KEY, StoredPauses(item=pauses_item(record)))
            return Changed(entities.head, True)

        with translated():
            return self._committer.commit(change, operation="pauses").result
