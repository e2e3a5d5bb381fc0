"""Random histories in which no purge may delete a file that a live table needs; `make histories` plays 5,000.

A short run plays five of 200: each takes a fifth of a second.
"""

import pytest

from tests.effort import THOROUGH
from tests.faults.histories.run import EXPLORER

_TOGETHER = 25 if THOROUGH else 5
SEEDS = 8 * _TOGETHER if THOROUGH else _TOGETHER


@pytest.mark.parametrize("first", range(1, SEEDS, _TOGETHER))
def test_no_purge_deletes_what_a_live_table_needs_nor_leaves_what_none_needs(first: int) -> None:
    assert EXPLORER.total(range(first, first + _TOGETHER))["succeeded"] >= _TOGETHER


@pytest.mark.parametrize(("mutation", "first"), [("later", 3), ("visits", 19), ("displaced", 493), ("unlisted", 118)])
def test_histories_notice_that_a_safeguard_is_missing(mutation: str, first: int) -> None:
    """From the seed `first` on, which noticed it when it was chosen."""
    assert EXPLORER.first_bad(mutation, range(first, first + _TOGETHER)) is not None
