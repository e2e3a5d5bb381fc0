"""What becomes of tables that receive commits all the time: work on them ends, and deletes nothing that is live."""

import pytest

from tests.faults.busy.world import DONE, KINDS, MUTATIONS, play, play_hours


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(1, 13))
def test_what_is_taken_before_a_lot_stays_and_the_work_ends(kind: str, seed: int) -> None:
    found = play(kind, seed, events=1.0)
    assert found.missing == set()
    assert found.status in DONE


@pytest.mark.parametrize("kind", KINDS)
def test_histories_notice_that_lots_are_not_compared(kind: str) -> None:
    with MUTATIONS["lots"]():
        assert any(play(kind, seed).missing for seed in range(1, 40))


@pytest.mark.parametrize("kind", ["purge", *KINDS])
def test_work_on_or_beside_a_table_with_a_commit_every_second_ends(kind: str) -> None:
    """For minutes here; `make busy FILES=10800` for ten hours."""
    found = play_hours(kind, 60)
    assert (found.status in DONE, found.missing) == (True, set())
    assert found.deleted == (59 if kind == "purge" else 60)
    assert found.taken >= found.seconds - 1
