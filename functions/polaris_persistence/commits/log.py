"""The commit log, read from a head backwards along the tails."""

from collections.abc import Iterator

from polaris_persistence.commits.commits import CommitObject, H
from polaris_persistence.objects.objects import Loaded, ObjectRef
from polaris_persistence.objects.store import CatalogStore, of_model


def read_log(store: CatalogStore, head: int | None, model: type[H]) -> Iterator[Loaded[H]]:
    """Return the commits from `head` backwards, read one tail at a time, as long as they are stored."""
    type_ = store.types.of(model).name
    batch: tuple[int, ...] = () if head is None else (head,)
    while batch:
        tail: tuple[int, ...] = ()
        for found in store.fetch_many(ObjectRef(type_, id_) for id_ in batch):
            if found is None:
                return
            commit = of_model(found, model)
            yield commit
            tail = commit.value.tail
        batch = tail


def in_log(store: CatalogStore, head: int, commit_id: int, seq: int, model: type[CommitObject]) -> bool | None:
    """Return whether the log of `head` has `commit_id` at number `seq`; None if it does not reach that far back."""
    for commit in read_log(store, head, model):
        if commit.value.seq <= seq:
            return commit.key.id == commit_id
    return None
