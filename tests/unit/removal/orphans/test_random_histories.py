"""Writers, clones, expiries, purges and sweeps in any order over one catalog: no file that a table names is deleted.

`make orphans-histories` plays 5,000.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.faults.orphans.history import History
from tests.faults.orphans.run import EXPLORER


@settings(max_examples=12)
@given(st.integers(min_value=0, max_value=2**32))
def test_no_history_costs_a_table_a_file(seed: int) -> None:
    EXPLORER.total([seed])


def test_sweeps_of_random_histories_delete_something() -> None:
    assert any(EXPLORER.total([seed])["swept"] for seed in range(60))


@pytest.mark.parametrize("seed", [3, 17, 101])
def test_what_nobody_needs_is_gone_after_a_last_sweep(seed: int) -> None:
    """Liveness: with no clone and nothing in flight, a sweep leaves only what is named, hidden or young."""
    history = History(seed)
    for _ in range(History.steps):
        history.act()
    world = history.world
    world.passes.before = lambda: None
    world.passes.late = 0
    history.finish_all()
    world.places.clear()
    history.viewed.clear()
    for name in {"clone", "hidden"} & world.lake.pointers.keys():
        del world.lake.pointers[name]
    world.lake.pass_days(10)
    world.sweep(history.tables[0])
    # Of a table that the catalog does not list the newest versions stay.
    versions = {one for one in history.reach_elsewhere() & world.lake.uris() if one.endswith(".metadata.json")}
    theirs = set().union(
        *map(world.reach, versions), (f"{one.rpartition('/')[0]}/version-hint.text" for one in versions)
    )
    names = {one.replace("s3a:", "s3:").replace("%20", " ") for one in world.live() | theirs}
    below = {one for one in world.lake.uris() if one.startswith("s3://lake/wh/t/")}
    unneeded = below - names
    former = {one for one in unneeded if one.endswith(".metadata.json")}
    assert unneeded - former == set()
