"""The tables of a purge."""

import pytest

from tests.kit.lakes.lake import PurgedTables, filled


@pytest.fixture
def bench() -> PurgedTables:
    """The table `t`, whose uuid is known whatever becomes of its metadata."""
    bench = filled(PurgedTables(), "t")
    bench.uuid("t")
    return bench
