"""No operation deletes anything at a location of others (`delegation.foreign-locations`), however it is spelled."""

import dataclasses
from typing import Any, TypeVar

import pytest

from delegation.errors import GuardRefused
from delegation.iceberg.paths import TableFile
from delegation.removal.orphans.details import ApprovalLimits
from delegation.removal.orphans.run import remove_orphan_files
from delegation.removal.purge.context import PurgeContext, PurgeResult
from delegation.removal.purge.direct import DirectPurge, DirectRun
from delegation.removal.purge.requests import PurgeOptions
from delegation.removal.purge.run import purge_table
from delegation.removal.requests import FOREIGN_LOCATIONS, foreign_locations
from delegation.storage.deleter import Deleter
from delegation.storage.locations import FOREIGN_LOCATION, ForeignLocations
from delegation.storage.memory import Faults, Killed, MemoryObjectStore
from delegation.tasks.life.policy import InvalidProperty
from delegation.wiring.types import policies_of
from tests.kit.errors import coded
from tests.kit.lakes.lake import FAST, PurgedTables, codes, filled
from tests.kit.stories import expiries, orphans
from tests.kit.stories.expiries import ExpiringTables
from tests.kit.stories.orphans import SweptTables
from tests.kit.stories.tables import StoryTable
from tests.unit.removal.orphans.quarantine.world import Lagoon
from tests.unit.removal.purge.oracle.oracle import MemoryResources
from tests.unit.removal.purge.planning.executors_here import ENGINES, engines

W = TypeVar("W", bound=SweptTables)
THEIRS = "s3://lake/wh/t/data/part=a/"
OTHERS = ForeignLocations.of(["s3a://lake/wh/t/data/part=a/"])


def keeping(settings: Any, foreign: ForeignLocations = OTHERS) -> Any:
    """Return the settings of an operation in a deployment that has the setting."""
    return dataclasses.replace(settings, delete=dataclasses.replace(settings.delete, foreign=foreign))


def kept_by(result: Any) -> list[tuple[int, tuple[str, ...]]]:
    return [(one.count, one.sample) for one in result.findings if one.code == FOREIGN_LOCATION]


# What the setting names


@pytest.mark.parametrize("text", ["s3://lake/wh/t", "", "s3://lake/a/,", "gs://lake/a/", "s3://lake/a?/", "lake/a/"])
def test_a_setting_that_names_no_place_is_refused(text: str) -> None:
    with pytest.raises(InvalidProperty, match="foreign-locations"):
        policies_of({FOREIGN_LOCATIONS: text})


@pytest.mark.parametrize(
    "text", ["s3://lake/a/b/", "S3A://lake/a/b/", "s3n://lake//a/./b/", "s3://lake/a%2Fb/", "s3://x/, s3a://lake/a/b/"]
)
@pytest.mark.parametrize(
    "path", ["s3://lake/a/b/c", "s3://lake/a/b/", "s3://lake//a///b/c", "s3://lake/a/./b/c", "s3://lake/a%2Fb%2Fc"]
)
def test_every_spelling_of_a_path_there_is_foreign(text: str, path: str) -> None:
    found = foreign_locations({FOREIGN_LOCATIONS: text})
    assert found.contain(path)
    assert not any(map(found.contain, ["s3://lake/a/bc", "s3://lake/a/c/b", "s3://lake2/a/b/c", "s3://lake/a%20b/c"]))


def test_without_the_setting_nothing_is_foreign() -> None:
    assert not foreign_locations({}).contain(f"{THEIRS}x")
    assert foreign_locations({FOREIGN_LOCATIONS: "none"}) == ForeignLocations()


# Purges


def purge_of(bench: PurgedTables, foreign: ForeignLocations = OTHERS, **more: Any) -> PurgeContext:
    ctx = bench.context("t", **more)
    return dataclasses.replace(ctx, settings=keeping(ctx.settings, foreign))


@pytest.fixture
def bench() -> PurgedTables:
    return PurgedTables.of(filled(PurgedTables(), "t").lake)


@engines
def test_a_purge_keeps_what_is_there_and_names_it(bench: PurgedTables, engine: str) -> None:
    theirs = bench.lake.below(THEIRS)
    result = ENGINES[engine](purge_of(bench))
    assert (result.status, set(bench.lake.uris())) == ("PURGED", theirs)
    assert kept_by(result) == [(len(theirs), tuple(sorted(theirs)))]
    [found] = [one for one in bench.receipt(result)["findings"] if one["code"] == FOREIGN_LOCATION]
    assert found["count"] == len(theirs)


def test_a_purge_of_a_table_whose_metadata_file_is_there_is_refused(bench: PurgedTables) -> None:
    refused = bench.refused(purge_of(bench, ForeignLocations.of(["s3://lake/wh/"])))
    assert refused.code == FOREIGN_LOCATION
    assert "drop it without purge" in str(refused)


def test_a_purge_with_directory_markers_keeps_those_that_are_there(bench: PurgedTables) -> None:
    for path in (THEIRS, f"{THEIRS}_$folder$", "s3://lake/wh/t/data/part=a_$folder$"):
        bench.lake.write(path, b"")
    theirs = bench.lake.below(THEIRS)
    purge_table(purge_of(bench, options=PurgeOptions(remove_directory_markers=True)))
    assert bench.lake.below(THEIRS) == theirs


@pytest.mark.parametrize(("call", "number"), [("begin", 0), ("delete", 1), ("steps", 0), ("steps", 1), ("delete", -2)])
def test_a_purge_that_was_planned_before_the_setting_is_planned_again(
    bench: PurgedTables, call: str, number: int
) -> None:
    names = Faults()
    purge_table(PurgedTables.of(bench.lake).context("t", faults=names))
    at = [n for n, name in enumerate(names.names, 1) if name.startswith(call)][number]
    with pytest.raises(Killed):
        purge_table(bench.context("t", faults=Faults(kill_at=at)))
    left = bench.lake.below(THEIRS)
    result = purge_table(purge_of(bench))
    assert (result.status, set(bench.lake.uris())) == ("PURGED", left)


def test_an_approved_plan_from_before_the_setting_deletes_nothing(bench: PurgedTables) -> None:
    refused = bench.refused(purge_of(bench, options=PurgeOptions(execute_plan=bench.dry_run())))
    assert refused.code == "PLAN_NOT_ALLOWED"
    assert "foreign-locations" in str(refused)


def test_a_purge_by_its_metadata_file_keeps_what_is_there(bench: PurgedTables) -> None:
    theirs = bench.lake.below(THEIRS)
    store = MemoryObjectStore()
    store.objects = bench.lake.objects
    purge = DirectPurge(bench.lake.pointers["t"], foreign=OTHERS)
    result: PurgeResult = DirectRun(purge, MemoryResources(files=store, kept=bench.plans))()
    assert (set(bench.lake.uris()), kept_by(result)[0][0]) == (theirs, len(theirs))


def test_whatever_a_plan_states_no_delete_of_what_is_there_is_sent() -> None:
    """The last line, for a process whose setting is newer than all that decided before."""
    paths = [f"{THEIRS}{name}" for name in "abc"] + ["s3://lake/wh/t/data/mine", "s3://lake//wh/t/data/part=a/d"]
    store = MemoryObjectStore({("lake", path.removeprefix("s3://lake/")): b"x" for path in paths})
    with Deleter(store, dataclasses.replace(FAST, foreign=OTHERS)) as deleter:
        outcome = deleter.delete([TableFile(path, 0, 1) for path in sorted(paths)], lambda: None)
    assert (outcome.files, {one.code for one in outcome.failures}) == (1, {FOREIGN_LOCATION})
    assert len(store.objects) == 4


# Expiries


def expiring() -> tuple[ExpiringTables, StoryTable, set[str]]:
    """Return a table with an old snapshot of which two files are at a foreign location, and these."""
    world = ExpiringTables()
    table = StoryTable.create(world.lake)
    theirs = {world.lake.put(path) for path in ("s3://lake/wh/t/data/theirs/a", "s3://lake/wh/t/data//theirs/b")}
    mine = table.data(2)
    table.append(paths=[*theirs, *mine])
    table.delete(*theirs, *mine)
    return world, table, theirs


EXPIRING = keeping(expiries.SMALL, ForeignLocations.of(["s3a://lake/wh/t/data/theirs/"]))


@pytest.mark.parametrize("planned_before", [False, True])
def test_an_expiry_keeps_what_is_there_and_names_it(planned_before: bool) -> None:
    world, table, theirs = expiring()
    plan = world.expire(table, dry_run=True).plan_ids[0] if planned_before else None
    result = world.expire(table, execute_plan=plan, settings=EXPIRING)
    assert (result.status, theirs <= world.lake.uris()) == ("EXPIRED", True)
    assert kept_by(result) == [(2, tuple(sorted(theirs)))]
    assert planned_before or not [path for path in world.lake.uris() - theirs if "/data/" in path]


# Removals of orphan files

IN_DATA = ForeignLocations.of(["s3n://lake/wh/t/data/theirs/"])
ORPHANS = {"s3://lake/wh/t/data/theirs/a", "s3://lake/wh/t/data/theirs/b", "s3://lake/wh/t/data//theirs/c"}
MINE = "s3://lake/wh/t/data/mine"
SWEEPING = keeping(orphans.SMALL, IN_DATA)


def littered(world: W) -> tuple[W, Any]:
    table = world.table()
    for path in {*ORPHANS, MINE}:
        world.orphan(path)
    world.lake.pass_days(4)
    return world, table


def test_a_removal_keeps_what_is_there_and_names_it() -> None:
    world, table = littered(SweptTables())
    result = world.sweep(table, settings=SWEEPING)
    assert (result.status, result.files_deleted) == ("SWEPT", 1)
    assert world.lake.uris() & {*ORPHANS, MINE} == ORPHANS
    [(count, sample)] = kept_by(result)
    assert (count, set(sample)) == (3, ORPHANS)


def test_a_plan_that_waited_while_the_setting_came_is_reduced() -> None:
    world, table = littered(SweptTables())
    plan = world.sweep(table, limits=ApprovalLimits()).plan_ids[-1]
    result = world.sweep(table, execute_plan=plan, settings=SWEEPING)
    assert (result.status, result.files_deleted) == ("SWEPT", 1)
    assert world.lake.uris() >= ORPHANS


def test_a_place_that_belongs_to_others_is_not_searched() -> None:
    world, table = littered(SweptTables())
    ctx = world.context(table, settings=keeping(orphans.SMALL, ForeignLocations.of(["s3a://lake/wh/"])))
    with pytest.raises(GuardRefused, check=coded(FOREIGN_LOCATION)):
        remove_orphan_files(ctx)
    assert not world.head.read()


def test_what_is_there_is_not_tagged_and_loses_its_tag() -> None:
    world, table = littered(Lagoon())
    assert world.sweep(table).files_quarantined == 4
    assert world.tagged() == {*ORPHANS, MINE}
    result = world.sweep(table, settings=SWEEPING)
    assert world.tagged() == {MINE}
    assert codes(result) == {FOREIGN_LOCATION: 3, "QUARANTINE_RELEASED": 3}
