"""Random histories in which no purge may delete a file that a live table needs; `make histories` plays 5,000.

A short run plays a dozen of 200: each takes a fifth of a second.
"""

import pytest

from tests.effort import THOROUGH
from tests.faults.histories.history import History
from tests.faults.histories.run import first_bad

_TOGETHER = 25 if THOROUGH else 12
SEEDS = 8 * _TOGETHER if THOROUGH else _TOGETHER


@pytest.mark.parametrize("first", range(1, SEEDS, _TOGETHER))
def test_no_purge_deletes_what_a_live_table_needs_nor_leaves_what_none_needs(first: int) -> None:
    purges = 0
    for seed in range(first, first + _TOGETHER):
        verdict = History(seed).play()
        assert verdict.is_good, verdict
        purges += verdict.succeeded
    assert purges >= _TOGETHER


@pytest.mark.parametrize(("mutation", "first"), [("later", 1), ("visits", 12), ("displaced", 485), ("unlisted", 110)])
def test_histories_notice_that_a_safeguard_is_missing(mutation: str, first: int) -> None:
    assert first_bad(mutation, range(first, first + _TOGETHER)) is not None
