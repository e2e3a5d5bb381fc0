"""What becomes of tables that receive commits all the time: work on them ends, and deletes nothing that is live."""

import pytest

from tests.faults.busy.run import EXPLORER
from tests.faults.busy.world import DONE, KINDS, BusiestHistory, play_hours
from tests.kit.explorer import play


@pytest.mark.parametrize("seed", range(1, 25))
def test_what_is_taken_before_a_lot_stays_and_the_work_ends(seed: int) -> None:
    assert play(BusiestHistory, seed).wrong is None


# The seed to begin with: of each kind one that noticed it when these were chosen.
@pytest.mark.parametrize("first", [9, 4])
def test_histories_notice_that_lots_are_not_compared(first: int) -> None:
    assert EXPLORER.first_bad("lots", range(first, 40, len(KINDS))) is not None


@pytest.mark.parametrize("kind", ["purge", *KINDS])
def test_work_on_or_beside_a_table_with_a_commit_every_second_ends(kind: str) -> None:
    """For minutes here; `make busy FILES=10800` for ten hours."""
    found = play_hours(kind, 60)
    assert (found.status in DONE, found.missing) == (True, set())
    assert found.deleted == (59 if kind == "purge" else 60)
    assert found.taken >= found.seconds - 1
