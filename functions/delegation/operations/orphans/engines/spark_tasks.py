"""The functions that executors run for a removal of orphan files: list parts, and delete objects as they were listed.

`worksets.engines.spark_tasks` describes what all such functions have in common.
"""

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from delegation.errors import DelegationError, RunStopped
from delegation.identifiers import TableIdentifier
from delegation.operations.orphans.context import random_id
from delegation.operations.orphans.deleting import ConditionalStore, delete_chunks
from delegation.operations.orphans.planning.parts import ListedProgress, PartLister, PartsListing
from delegation.storage.deleter import DeletePolicy, Deleter
from delegation.worksets.collection import collect_seldom
from delegation.worksets.engines.inline import Tally, Work
from delegation.worksets.engines.resources import ExecutorResources
from delegation.worksets.engines.shuffle import unpack
from delegation.worksets.engines.spark_tasks import (
    DeleteChunks,
    Result,
    checkpoint_of,
    encode_error,
    plans_of,
    store_of,
    try_of_task,
)


@dataclass(frozen=True, slots=True)
class ListOnExecutors:
    """Maps numbers of `shares` (packed parts, each as it is so far) to one result per part, which says how far it is.

    A part is listed up to `most_pages` at a time.
    """

    resources: ExecutorResources
    identifier: TableIdentifier
    how: PartsListing
    most_pages: int
    shares: tuple[bytes, ...]
    task_id: str
    attempt: int

    def __call__(self, numbers: Iterable[int]) -> Iterator[Result]:
        collect_seldom()
        try:
            lister = PartLister(
                self.how,
                store_of(self.resources, self.identifier),
                plans_of(self.resources),
                checkpoint_of(self.resources, self.task_id, self.attempt),
                name=f"{try_of_task()}-",
            )
            for number in numbers:
                begun = [ListedProgress.model_validate_json(one) for one in unpack(self.shares[number])]
                for found in lister.run(begun, self.most_pages):
                    yield {"listed": found.model_dump_json()}
        except (DelegationError, RunStopped) as error:
            yield {"error": encode_error(error)}


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
