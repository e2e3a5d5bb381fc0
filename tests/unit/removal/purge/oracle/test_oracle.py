"""For tables that Spark and Iceberg wrote, a purge deletes exactly the files that only this table reaches.

Iceberg listed the reachable files when the fixtures were written (`make fixtures`).
"""

import dataclasses

import pytest

from delegation.removal.chunks import Phase
from delegation.removal.neighbourhood import no_neighbours
from delegation.removal.purge.errors import CredentialsDoNotCover, FilesShared, PathsOutsideTable
from delegation.removal.purge.run import purge_table
from tests.unit.removal.purge.oracle.oracle import Purge, check_exact, tables

LIVE = tables(live=True)
ALL = tables()
MOVED = [one for one in LIVE if Purge(*one).uncovered()]
LOST = [("moved", "forgetful"), ("imported", "borrower")]


@pytest.mark.parametrize(("scenario", "table"), LIVE)
def test_a_purge_through_a_catalog_is_exact(scenario: str, table: str) -> None:
    purge = Purge(scenario, table)
    result = purge_table(purge.by_catalog())
    assert (result.status, result.files_deleted) == ("PURGED", len(purge.expected()))
    check_exact(purge)


@pytest.mark.parametrize(("scenario", "table"), ALL)
def test_a_purge_without_a_catalog_is_exact(scenario: str, table: str) -> None:
    purge = Purge(scenario, table)
    assert purge.directly()().status == "PURGED"
    check_exact(purge)


@pytest.mark.parametrize(("scenario", "table"), MOVED)
def test_credentials_for_the_current_locations_only(scenario: str, table: str) -> None:
    purge = Purge(scenario, table)
    uncovered = purge.uncovered()
    with pytest.raises(CredentialsDoNotCover):
        purge_table(purge.by_catalog(prefixes=None))
    assert purge.deleted() == set()
    purge.bench.plans.objects.clear()
    purge_table(purge.by_catalog(prefixes=None, uncovered="keep"))
    kinds = purge.table.kinds
    maps = {*kinds["manifest"], *kinds["manifest-list"]}
    reachable = (purge.expected() - uncovered) & purge.before
    if maps & uncovered:
        # The files that only they name are unknown and remain, and so do they, for a later purge.
        assert purge.deleted() <= reachable
        assert purge.planned(Phase.KEPT) >= maps & uncovered
    else:
        assert purge.deleted() == reachable
        assert purge.planned(Phase.KEPT) == uncovered | purge.kept()
    assert purge.table.metadata_location not in purge.left()


@pytest.mark.parametrize(("scenario", "table"), LOST)
def test_files_outside_every_location_of_the_table(scenario: str, table: str) -> None:
    purge = Purge(scenario, table)
    with pytest.raises(PathsOutsideTable):
        purge.directly(outside="refuse")()
    assert purge.deleted() == set()
    purge = Purge(scenario, table)
    purge.directly(outside="delete")()
    assert purge.deleted() == purge.table.reached() & purge.before


def test_files_outside_that_a_live_table_reaches_are_kept_with_outside_delete() -> None:
    purge = Purge("imported", "borrower")
    purge_table(purge.by_catalog(outside="delete"))
    check_exact(purge)


def test_a_plan_with_files_outside_is_refused_once_a_live_table_reaches_them() -> None:
    purge = Purge("imported", "borrower")
    alone = dataclasses.replace(purge.by_catalog(outside="delete", dry_run=True), neighbours=no_neighbours)
    purge_table(alone)
    with pytest.raises(FilesShared):
        purge_table(purge.by_catalog(outside="delete"))
    assert purge.deleted() == set()


@pytest.mark.parametrize(("first", "second"), [("copy", "original"), ("original", "copy"), ("twin", "other_twin")])
def test_a_clone_is_purged_and_then_its_original(first: str, second: str) -> None:
    purge = Purge("clone", first)
    purge_table(purge.by_catalog())
    del purge.bench.lake.pointers[first]
    rest = Purge("clone", second)
    rest.bench.lake.objects = purge.bench.lake.objects
    rest.bench.lake.pointers = purge.bench.lake.pointers
    rest.bench.plans = purge.bench.plans
    purge_table(rest.by_catalog())
    both = purge.table.reached() | rest.table.reached()
    assert purge.before - rest.left() == both & purge.before


def test_a_clone_is_refused_with_shared_refuse() -> None:
    purge = Purge("clone", "copy")
    with pytest.raises(FilesShared):
        purge_table(purge.by_catalog(shared="refuse"))
    assert purge.deleted() == set()
