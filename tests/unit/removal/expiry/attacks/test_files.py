"""Attacks by what names a file: shared, spelled otherwise, of two types, written anew under its former name."""

from typing import Any

import pytest

from delegation.removal.expiry.run import expire_snapshots
from delegation.storage.locations import parse
from polaris_common.errors import DelegationError
from tests.kit.stories.expiries import ExpiringTables
from tests.kit.stories.tables import ADDED, DELETED, DELETES, Entry, StoryTable


@pytest.fixture
def world() -> ExpiringTables:
    return ExpiringTables()


def test_deletion_vectors_of_expired_and_retained_snapshots_in_one_puffin_file(world: ExpiringTables) -> None:
    table = StoryTable.create(world.lake, version=3)
    table.append(3)
    puffin = world.lake.put(f"{table.folder}/data/shared.puffin")
    alone = world.lake.put(f"{table.folder}/data/alone.puffin")
    data = table.manifests_of(table.refs["main"])
    before = world.lake.manifest(table.folder, [Entry(ADDED, puffin, DELETES), Entry(ADDED, alone, DELETES)])
    table.snapshot([*data, before])
    # The next snapshot replaces one vector; another vector of the same file stays, with the same path.
    after = world.lake.manifest(
        table.folder, [Entry(DELETED, puffin, DELETES), Entry(DELETED, alone, DELETES), Entry(ADDED, puffin, DELETES)]
    )
    table.snapshot([*data, after])

    world.expire(table)

    assert puffin in world.lake.uris()
    assert alone not in world.lake.uris()
    assert world.lake.readable() == {"t": set()}


@pytest.mark.parametrize("kind", ["statistics", "partition_statistics"])
def test_a_statistics_file_that_snapshots_share(world: ExpiringTables, kind: str) -> None:
    table = StoryTable.create(world.lake)
    first, second = table.append(), table.append()
    own, shared = getattr(table, kind)(first), getattr(table, kind)(second)
    third = table.append()
    getattr(table, kind)(third, shared)

    world.expire(table)

    assert own not in world.lake.uris()
    assert shared in world.lake.uris()
    assert world.lake.readable() == {"t": set()}


def test_statistics_of_an_expired_snapshot_that_are_a_file_which_the_table_needs(world: ExpiringTables) -> None:
    table = StoryTable.create(world.lake)
    first = table.append()
    table.append()
    needed = table.refs["main"]
    of_it = world.lake.read_by(table.document, [needed])
    for kind in ("statistics", "partition_statistics"):
        for path in (min(of_it), table.live()[-1], table.manifests_of(needed)[-1], table.pointer):
            getattr(table, kind)(first, path)
            ExpiringTables(lake=world.lake).expire(table, dry_run=True)
    world.expire(table)
    assert world.lake.readable() == {"t": set()}


@pytest.mark.parametrize("spelling", ["s3a://", "s3n://", "S3://"])
def test_a_file_that_the_table_names_by_another_scheme_stays(world: ExpiringTables, spelling: str) -> None:
    table = StoryTable.create(world.lake)
    first = table.append(2)
    one, other = table.live()
    table.delete(one)
    renamed = [path.replace("s3://", spelling) for path in (one, other)]
    table.snapshot([world.lake.manifest(table.folder, [Entry(ADDED, path) for path in renamed])])

    world.expire(table)

    assert first not in table.ids
    assert {one, other} <= world.lake.uris()


def test_a_file_that_another_table_names_by_another_scheme_stays(world: ExpiringTables) -> None:
    table = StoryTable.create(world.lake)
    table.append()
    [path] = table.live()
    table.delete(path)
    other = StoryTable.create(world.lake, "other")
    other.append(paths=[path.replace("s3://", "s3a://")])

    world.expire(table)

    assert path in world.lake.uris()


@pytest.mark.parametrize("other", ["data/%78.parquet", "Data/x.parquet", "data/x.parquet.crc"])
def test_similar_names_are_other_objects(world: ExpiringTables, other: str) -> None:
    """S3 and Iceberg's readers decode and fold nothing here."""
    table = StoryTable.create(world.lake)
    gone, stays = (world.lake.put(f"{table.folder}/{name}") for name in ("data/x.parquet", other))
    table.append(paths=[gone, stays])
    table.snapshot([world.lake.manifest(table.folder, [Entry(ADDED, stays)])])

    world.expire(table)

    assert (gone in world.lake.uris(), stays in world.lake.uris()) == (False, True)


@pytest.mark.parametrize("other", ["data//x.parquet", "data/./x.parquet", "data/y/../x.parquet", "/data/x.parquet"])
def test_the_object_stays_that_hadoop_reads_for_a_path_which_it_folds(world: ExpiringTables, other: str) -> None:
    """For S3 and S3FileIO it is another object; Hadoop's Path makes it this one."""
    table = StoryTable.create(world.lake)
    folded = world.lake.put(f"{table.folder}/data/x.parquet")
    table.append(paths=[folded])
    table.snapshot([world.lake.manifest(table.folder, [Entry(ADDED, f"{table.folder}/{other}")])])

    world.expire(table)

    assert folded in world.lake.uris()


@pytest.mark.parametrize("mark", ["#", "?"])
def test_the_object_stays_that_iceberg_reads_for_a_path_which_it_cuts_off(world: ExpiringTables, mark: str) -> None:
    """Iceberg's S3URI cuts a path off at # and ?: its S3FileIO reads x for x#1, whatever the expired snapshot names."""
    table = StoryTable.create(world.lake)
    cut = world.lake.put(f"{table.folder}/data/x.parquet")
    table.append(paths=[cut])
    table.snapshot([world.lake.manifest(table.folder, [Entry(ADDED, f"{cut}{mark}1")])])

    world.expire(table)

    assert cut in world.lake.uris()


def test_a_file_that_is_a_manifest_list_of_the_table_and_data_of_an_expired_snapshot(world: ExpiringTables) -> None:
    table = StoryTable.create(world.lake)
    table.append()
    table.append()
    needed = sorted(world.lake.read_by(table.document, [table.refs["main"]]) | {table.pointer})
    table.rollback(table.ids[0])
    table.append(paths=needed)
    table.rollback(table.ids[1])

    world.expire(table)

    assert len(table.ids) == 1
    assert world.lake.readable() == {"t": set()}


def test_files_that_a_writer_names_but_that_are_another_tables(world: ExpiringTables) -> None:
    """Of the other table: what it references now, and what it has not committed yet."""
    other = StoryTable.create(world.lake, "other")
    other.append(2)
    uncommitted = other.data(1)
    table = StoryTable.create(world.lake)
    theirs = [*other.live(), *uncommitted, other.pointer, *other.manifests_of(other.refs["main"])]
    table.append(paths=theirs)
    table.delete(*theirs)
    # Its write path makes the other table's folder a location of this one.
    table.set(**{"write.data.path": f"{other.folder}/data", "write.metadata.path": f"{other.folder}/metadata"})

    world.expire(table, prefixes=("s3://lake/",))

    assert set(theirs) <= world.lake.uris()


def test_a_file_that_is_rewritten_between_two_attempts_stays(world: ExpiringTables) -> None:
    """The first attempt deletes one of two data files; a writer then adds a file under the deleted name."""
    table = StoryTable.create(world.lake)
    table.append(3)
    deleted, refused, _ = table.live()
    table.delete(deleted, refused)
    ctx = world.context(table)
    ctx.store._refuse = lambda _bucket, key, _nth: "InternalError" if refused.endswith(key) else None  # type: ignore[attr-defined]
    with pytest.raises(DelegationError):
        expire_snapshots(ctx)
    assert (deleted in world.lake.uris(), refused in world.lake.uris()) == (False, True)

    world.lake.put(deleted, b"anew")
    table.append(paths=[deleted])

    assert expire_snapshots(world.context(table)).status == "EXPIRED"
    assert deleted in world.lake.uris()
    assert refused not in world.lake.uris()
    assert world.lake.readable() == {"t": set()}


def inline(table: StoryTable, snapshot_id: int) -> None:
    """Write a snapshot as old writers of version 1 did: with its manifests in the metadata and no list."""
    document = table.document
    for one in document["snapshots"]:
        if one["snapshot-id"] == snapshot_id:
            path = one.pop("manifest-list")
            one["manifests"] = list(table.lake.lists[path])
            where = parse(path)
            del table.lake.objects[where.bucket, where.key]
    table._write(document)


def test_manifests_that_snapshots_of_version_1_list_inline(world: ExpiringTables) -> None:
    table = StoryTable.create(world.lake, version=1)
    first = table.append(2)
    gone, stays = table.live()
    second = table.delete(gone)
    table.append()
    manifests: dict[int, Any] = {one: table.manifests_of(one) for one in table.ids}
    data = {one: table.live(one) for one in table.ids}
    for one in list(table.ids):
        inline(table, one)
    last = table.refs["main"]

    world.expire(table)

    assert table.ids == [last]
    assert {*manifests[last], *data[last]} <= world.lake.uris()
    assert stays in data[last]
    assert gone not in world.lake.uris()
    assert not ((set(manifests[first]) | set(manifests[second])) - set(manifests[last])) & world.lake.uris()
