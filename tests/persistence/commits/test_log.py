"""Reading the log of a reference: batches, short tails, and a log of which maintenance deleted the rest."""

from polaris_persistence.commits.commits import TAIL
from polaris_persistence.commits.log import in_log, read_log
from polaris_persistence.objects.objects import ObjectRef
from tests.persistence.builders import (
    Head,
    put,
)
from tests.persistence.commits.commit_world import CommitWorld


def test_commit_logs_and_offsets(world: CommitWorld) -> None:
    ids = [world.committer.commit(put("a", number)).commit_id for number in range(3 * TAIL + 5)]
    store, cold = world.process()
    world.calls()
    assert [one.key.id for one in cold.log()] == ids[::-1]
    assert world.calls() == ["read_reference", *["fetch_many"] * 5]
    middle = ids[TAIL + 3]
    assert [one.key.id for one in read_log(store, middle, Head)] == ids[TAIL + 3 :: -1]
    assert list(read_log(store, None, Head)) == []


def test_commit_log_short_tail(world: CommitWorld) -> None:
    """Heads that name fewer ancestors than usual, as another release may write them."""
    store = world.store
    ids: list[int] = []
    for seq in range(1, 12):
        [ref] = store.write([Head(seq=seq, tail=tuple(ids[::-1][: 1 + seq % 3]))])
        ids.append(ref.id)
    cold = world.process()[0]
    assert [one.key.id for one in read_log(cold, ids[-1], Head)] == ids[::-1]


def test_commit_log_ends_where_maintenance_removed_the_rest(world: CommitWorld) -> None:
    ids = [world.committer.commit(put("a", number)).commit_id or 0 for number in range(10)]
    world.store.delete([ObjectRef("head", id_) for id_ in ids[:4]])
    store, cold = world.process()
    assert [one.key.id for one in cold.log()] == ids[:3:-1]
    assert in_log(store, ids[-1], ids[5], 6, Head) is True
    assert in_log(store, ids[-1], ids[4], 6, Head) is False
    assert in_log(store, ids[-1], ids[1], 2, Head) is None
