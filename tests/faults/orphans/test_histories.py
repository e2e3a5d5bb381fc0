"""Random histories of removals notice a missing safeguard."""

import pytest

from tests.faults.orphans.run import EXPLORER

# The seed to begin with: when these were chosen, it noticed the mutation.
FIRST = {"later": 21, "conditions": 14, "others": 4, "unlisted": 3, "relisted": 3, "ages": 52, "history": 2}


def test_each_mutation_is_tried() -> None:
    assert {*FIRST, "none"} == {*EXPLORER.mutations}


@pytest.mark.parametrize("mutation", FIRST)
def test_histories_notice_that_a_safeguard_is_missing(mutation: str) -> None:
    assert EXPLORER.first_bad(mutation, range(FIRST[mutation], 400)) is not None
