"""A purge and an expiry keep what tables need that no catalog lists, if their metadata is beside the table's own."""

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest

from delegation.removal.expiry.context import ExpiryResult
from delegation.removal.expiry.run import expire_snapshots
from delegation.removal.purge.requests import PurgeOptions
from delegation.removal.purge.run import purge_table
from delegation.storage.base import ObjectStoreDenied, ObjectStoreUnavailable
from delegation.storage.memory import Faults, Killed
from tests.kit.lakes.lake import PurgedTables, codes, rows
from tests.kit.stories.expiries import ExpiringTables
from tests.kit.stories.tables import StoryTable
from tests.unit.removal.expiry.spark.executors_here import expire_with_executors_here
from tests.unit.removal.purge.planning.executors_here import ENGINES, engines

HERE = "s3://lake/wh/t"
EXPIRIES = {"inline": expire_snapshots, "spark": expire_with_executors_here}


@pytest.fixture
def bench() -> PurgedTables:
    """A table with two snapshots."""
    bench = PurgedTables()
    bench.lake.create("t").append(rows(1, 2))
    bench.lake.table("t").append(rows(3, part="b"))
    bench.uuid("t")
    return bench


def data_of(bench: PurgedTables, name: str) -> list[str]:
    return sorted(one.file.file_path for one in bench.lake.table(name).scan().plan_files())


def at_first_page(ctx: Any, act: Callable[[], object]) -> None:
    """Do something before the first listing."""
    page = ctx.store.page

    def busy(*where: Any, **more: Any) -> Any:
        ctx.store.page = page
        act()
        return page(*where, **more)

    ctx.store.page = busy


def missing(bench: PurgedTables, pointer: str) -> set[str]:
    """Return what a reader of the table with this metadata file lacks, as pyiceberg finds it."""
    bench.lake.pointers["read"] = pointer
    try:
        return bench.lake.needed("read") - set(bench.lake.uris())
    except FileNotFoundError as error:
        return {str(error)}
    finally:
        del bench.lake.pointers["read"]


def commit(bench: PurgedTables, pointer: str, times: int) -> str:
    """Have another catalog commit to the table that it has by this metadata file; return its new one."""
    bench.lake.pointers["theirs"] = pointer
    for number in range(times):
        bench.lake.table("theirs").append(rows(100 + number))
    return bench.lake.pointers.pop("theirs")


def recreated(bench: PurgedTables, how: str = "dropped") -> tuple[str, set[str]]:
    """Have a new table take the location and the files of the former one; return that one's metadata file and files.

    The former one was dropped without purge or unregistered, or is hidden by a soft delete: it is in no list.
    """
    taken = data_of(bench, "t")
    former = bench.lake.pointers.pop("t")
    if how == "elsewhere":
        former = commit(bench, former, 2)
    bench.lake.create("t").append(rows(4))
    bench.lake.table("t").add_files(taken, check_duplicate_files=False)
    bench._uuids.clear()
    bench.uuid("t")
    return former, set(taken)


@pytest.mark.parametrize("how", ["dropped", "elsewhere"])
@engines
def test_a_purge_keeps_the_files_of_a_table_that_was_there_before_and_is_in_no_list(
    bench: PurgedTables, engine: str, how: str
) -> None:
    former, taken = recreated(bench, how)
    mine = bench.lake.needed("t", named=True) - taken
    result = ENGINES[engine](bench.context("t"))
    assert result.status == "PURGED"
    assert missing(bench, former) == set()
    assert not mine & set(bench.lake.uris())
    assert codes(result) == {"FILES_SHARED": len(taken), "FOREIGN_TABLE": 3 if how == "dropped" else 5}
    [found] = [one for one in result.findings if one.code == "FOREIGN_TABLE"]
    assert f"{HERE}/" in found.sample[0]


def test_a_purge_keeps_the_files_of_a_former_table_of_version_1_without_a_uuid(bench: PurgedTables) -> None:
    former, taken = recreated(bench)
    for uri in [uri for uri in bench.lake.uris() if uri.endswith(".metadata.json")]:
        document = json.loads(bench.lake.read(uri)) | {"format-version": 1}
        if document.pop("table-uuid") != bench.uuid("t"):
            bench.lake.write(uri, json.dumps(document).encode())
    assert purge_table(bench.context("t")).status == "PURGED"
    assert {former, *taken} <= set(bench.lake.uris())


@engines
def test_a_purge_keeps_what_a_second_catalog_needs_that_continues_from_the_same_metadata_file(
    bench: PurgedTables, engine: str
) -> None:
    """A table was moved: registered there and committed to, and dropped here with purge by mistake."""
    theirs = commit(bench, bench.lake.pointers["t"], 2)
    result = ENGINES[engine](bench.context("t"))
    assert missing(bench, theirs) == set()
    assert codes(result)["FOREIGN_TABLE"] == 2


def test_a_commit_that_was_lost_protects_nothing(bench: PurgedTables) -> None:
    commit(bench, bench.lake.pointers["t"], 1)
    lost = {uri for uri in bench.lake.uris() if uri not in bench.lake.needed("t", named=True)}
    result = purge_table(bench.context("t"))
    assert (result.status, codes(result)) == ("PURGED", {})
    assert set(bench.lake.uris()) == lost


def test_a_clone_that_the_catalog_lists_is_a_neighbour_and_no_finding(bench: PurgedTables) -> None:
    bench.lake.pointers["clone"] = commit(bench, bench.lake.pointers["t"], 3)
    result = purge_table(bench.beside("clone", prefixes=("s3://lake/",)))
    assert "FOREIGN_TABLE" not in codes(result)
    assert missing(bench, bench.lake.pointers["clone"]) == set()


def test_a_lost_commit_of_a_listed_table_at_the_same_place_is_no_finding(bench: PurgedTables) -> None:
    bench.lake.create("other", location=HERE).append(rows(3))
    before = bench.lake.pointers["other"]
    bench.lake.table("other").append(rows(4))
    lost = bench.lake.needed("other")
    bench.lake.pointers["other"] = before
    result = purge_table(bench.beside("other"))
    assert "FOREIGN_TABLE" not in codes(result)
    assert missing(bench, before) == set()
    assert lost <= set(bench.lake.uris())


@pytest.mark.parametrize("commits", [1, 2, 5])
def test_commits_between_the_load_and_the_listing_are_no_other_table(commits: int) -> None:
    """Nor are hundreds of former metadata files that no log names any more, but those of older logs do."""
    bench = PurgedTables()
    properties: Any = {"write.metadata.previous-versions-max": "2"}
    bench.lake.create("t", **properties)
    for number in range(7):
        bench.lake.table("t").append(rows(number))
    ctx = bench.context("t")
    at_first_page(ctx, lambda: [bench.lake.table("t").append(rows(50 + number)) for number in range(commits)])
    result = purge_table(ctx)
    assert (result.status, codes(result)) == ("PURGED", {})
    assert set(bench.lake.uris()) == set()


class Refusing:
    """A store whose listings fail."""

    def __init__(self, store: Any, error: Exception) -> None:
        self._store, self._error = store, error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def page(self, *_where: Any, **_more: Any) -> Any:
        raise self._error


class Elsewhere(Refusing):
    """A store whose credentials cover one bucket."""

    def __init__(self, store: Any) -> None:
        super().__init__(store, ObjectStoreDenied("no"))

    def read(self, location: Any, **more: Any) -> bytes:
        if location.bucket != "lake":
            raise self._error
        return bytes(self._store.read(location, **more))

    def page(self, *where: Any, **more: Any) -> Any:
        return self._store.page(*where, **more)


def test_credentials_that_may_not_list_are_a_finding_and_no_refusal(bench: PurgedTables) -> None:
    ctx = bench.context("t")
    result = purge_table(dataclasses.replace(ctx, store=Refusing(ctx.store, ObjectStoreDenied("no"))))
    assert (result.status, set(bench.lake.uris())) == ("PURGED", set())
    sample = f"{HERE}/metadata/ cannot be listed (STORAGE_ACCESS_DENIED)"
    assert [(one.code, one.count, one.sample) for one in result.findings] == [("FOREIGN_NOT_KNOWN", 1, (sample,))]


def test_a_store_that_does_not_answer_ends_the_attempt(bench: PurgedTables) -> None:
    ctx = bench.context("t")
    with pytest.raises(ObjectStoreUnavailable):
        purge_table(dataclasses.replace(ctx, store=Refusing(ctx.store, ObjectStoreUnavailable("down"))))
    assert purge_table(bench.context("t")).status == "PURGED"


def test_more_objects_than_are_listed_are_a_finding(bench: PurgedTables) -> None:
    former, _ = recreated(bench)
    for number in range(11_000):
        bench.lake.objects["lake", f"wh/t/metadata/zz{number:05d}.avro"] = b""
    result = purge_table(bench.context("t"))
    assert result.status == "PURGED"
    assert codes(result)["FOREIGN_NOT_KNOWN"] == 1
    # What the first pages have is kept all the same.
    assert missing(bench, former) == set()


@pytest.mark.parametrize("damage", ["metadata", "manifest-list", "elsewhere"])
def test_what_cannot_be_read_of_such_a_table_is_a_finding_and_no_refusal(bench: PurgedTables, damage: str) -> None:
    former, taken = recreated(bench)
    data = bench.lake.read(former)
    document = json.loads(data)
    if damage == "metadata":
        bench.lake.write(former, data.replace(b'"snapshots"', b'"snapsh'))
    elif damage == "manifest-list":
        for one in document["snapshots"]:
            bench.lake.write(one["manifest-list"], b"torn")
    else:
        document["snapshots"][-1]["manifest-list"] = "s3://elsewhere/denied.avro"
        bench.lake.write(former, json.dumps(document).encode())
    ctx = bench.context("t")
    result = purge_table(dataclasses.replace(ctx, store=Elsewhere(ctx.store)))
    assert result.status == "PURGED"
    assert codes(result)["FOREIGN_NOT_KNOWN"] >= 1
    # What can be read of it stays.
    assert damage == "manifest-list" or taken & set(bench.lake.uris())


@pytest.mark.parametrize("resumed", [True, False])
def test_a_plan_from_before_the_table_was_unregistered_is_compared_before_the_first_delete(
    bench: PurgedTables, resumed: bool
) -> None:
    """What it needs was a neighbour's of no plan, and is one's of no list."""
    taken = data_of(bench, "t")
    if resumed:
        names = Faults()
        purge_table(PurgedTables.of(bench.lake).context("t", faults=names))
        with pytest.raises(Killed):
            purge_table(bench.context("t", faults=Faults(kill_at=names.names.index("begin") + 1)))
        options = PurgeOptions()
    else:
        options = PurgeOptions(execute_plan=bench.dry_run())
    bench.lake.create("other", location=HERE).add_files(taken, check_duplicate_files=False)
    former = bench.lake.pointers.pop("other")
    assert bench.refused(bench.context("t", options=options)).code == "FILES_SHARED"
    assert missing(bench, former) == set()


# Expiries


def expired_beside(run: Callable[[Any], ExpiryResult], *, denied: bool = False) -> tuple[ExpiryResult, set[str], int]:
    """Expire a table that took files of one that was at its location before.

    Returns what the former one lacks as well, and how many of the table's own two data files went.
    """
    world = ExpiringTables()
    former = StoryTable.create(world.lake)
    former.append(2)
    needed = world.lake.read_by(former.document)
    taken = former.live()
    del world.lake.pointers["t"]
    table = StoryTable.create(world.lake)
    mine = table.data(2)
    table.append(paths=[*taken, *mine])
    table.delete(*taken, *mine)
    ctx = world.context(table)
    if denied:
        ctx = dataclasses.replace(ctx, store=Refusing(ctx.store, ObjectStoreDenied("no")))
    result = run(ctx)
    assert result.status == "EXPIRED"
    return result, needed - world.lake.uris(), len(set(mine) - world.lake.uris())


@pytest.mark.parametrize("engine", EXPIRIES)
@pytest.mark.parametrize("denied", [False, True])
def test_an_expiry_keeps_the_files_of_a_table_that_was_there_before_or_states_that_it_may_not_list(
    engine: str, denied: bool
) -> None:
    result, lacking, gone = expired_beside(EXPIRIES[engine], denied=denied)
    assert gone == 2
    if denied:
        assert codes(result) == {"FOREIGN_NOT_KNOWN": 1}
    else:
        assert (lacking, codes(result)) == (set(), {"FILES_SHARED": 2, "FOREIGN_TABLE": 2})


def test_an_expiry_keeps_what_a_second_catalog_needs_that_continues_from_the_same_metadata_file() -> None:
    world = ExpiringTables()
    table = StoryTable.create(world.lake)
    table.append(2)
    world.lake.pointers["theirs"] = table.pointer
    theirs = StoryTable(world.lake, "theirs")
    theirs.append()
    theirs.append()
    needed = world.lake.read_by(theirs.document)
    del world.lake.pointers["theirs"]
    table.delete(*table.live())
    table.append()
    result = world.expire(table)
    assert (result.status, needed - world.lake.uris()) == ("EXPIRED", set())
    assert codes(result)["FOREIGN_TABLE"] == 2


@pytest.mark.parametrize("commits", [1, 3])
def test_commits_while_a_table_expires_are_no_other_table(commits: int) -> None:
    world = ExpiringTables()
    table = StoryTable.create(world.lake)
    table.append(2)
    table.delete(*table.live())
    ctx = world.context(table)
    at_first_page(ctx, lambda: [table.append() for _ in range(commits)])
    result = expire_snapshots(ctx)
    assert (result.status, codes(result)) == ("EXPIRED", {})
