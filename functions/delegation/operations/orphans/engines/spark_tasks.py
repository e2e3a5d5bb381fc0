"""The function that executors run for a removal of orphan files: delete chunks, each object as it was listed."""

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from delegation.identifiers import TableIdentifier
from delegation.operations.orphans.context import random_id
from delegation.operations.orphans.deleting import ConditionalStore, delete_chunks
from delegation.storage.deleter import DeletePolicy, Deleter
from delegation.worksets.engines.inline import Tally, Work
from delegation.worksets.engines.resources import ExecutorResources
from delegation.worksets.engines.spark_tasks import DeleteChunks, plans_of, store_of


class DeleteOrphans(DeleteChunks):
    """Maps numbers of shares to one result per chunk of one plan, by what is deleted as it was listed."""

    __slots__ = ()

    def deleted(
        self, plans: Any, works: Iterable[Work], checkpoint: Callable[[], None]
    ) -> Iterator[tuple[Work, Tally]]:
        """See DeleteChunks.deleted."""
        store = _store(self.resources, self.identifier)
        (plan_id,) = self.plans
        store.begin(plan_id)
        return delete_chunks(plans, works, store, _deleter(self.resources, self.identifier, self.policy), checkpoint)


# One of each per process, as in worksets.engines.spark_tasks.
@functools.cache
def _store(resources: ExecutorResources, identifier: TableIdentifier) -> ConditionalStore:
    return ConditionalStore(store_of(resources, identifier), plans_of(resources), random_id)


@functools.cache
def _deleter(resources: ExecutorResources, identifier: TableIdentifier, policy: DeletePolicy) -> Deleter:
    return Deleter(_store(resources, identifier), policy)  # type: ignore[arg-type]
