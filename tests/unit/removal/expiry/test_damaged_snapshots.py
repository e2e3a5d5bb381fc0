"""Snapshots whose manifest list or manifest is gone: they expire, and what is not certain stays."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from delegation.iceberg.errors import CorruptManifestError, ManifestMissing
from delegation.polaris.model import LoadedTable
from delegation.removal.errors import NeighbourChanged, NeighbourUnreadable
from delegation.removal.expiry.context import ExpiryContext, ExpiryResult
from delegation.removal.expiry.retention import Retention
from delegation.removal.expiry.run import expire_snapshots
from delegation.storage.locations import parse
from tests.kit.stories.expiries import ExpiringTables
from tests.kit.stories.tables import ADDED, DATA, Entry, StoryTable
from tests.unit.removal.expiry.spark.executors_here import expire_with_executors_here

ENGINES = pytest.mark.parametrize("expire", [expire_snapshots, expire_with_executors_here], ids=["inline", "spark"])
Expire = Callable[[ExpiryContext], ExpiryResult]


@dataclass
class Damaged:
    """A table with two old snapshots that share a manifest, each with one of its own, and a last one with its own."""

    world: ExpiringTables
    table: StoryTable
    first: int
    second: int

    def lose(self, what: str, snapshot_id: int) -> str:
        """Delete the manifest list of a snapshot, or its own manifest, as a rule of the bucket does."""
        found = self.table.manifests_of(snapshot_id)[-1] if what == "manifest" else self.list_of(snapshot_id)
        where = parse(found)
        del self.world.lake.objects[where.bucket, where.key]
        return found

    def list_of(self, snapshot_id: int) -> str:
        return next(
            str(one["manifest-list"]) for one in self.table.document["snapshots"] if one["snapshot-id"] == snapshot_id
        )

    def files_of(self, manifest: str) -> set[str]:
        return {one.path for one in self.world.lake.manifests[manifest]}


@pytest.fixture
def old() -> Damaged:
    world = ExpiringTables()
    table = StoryTable.create(world.lake)
    shared, *own = (
        world.lake.manifest(table.folder, [Entry(ADDED, path, DATA) for path in table.data(2)]) for _ in range(4)
    )
    first = table.snapshot([shared, own[0]])
    second = table.snapshot([shared, own[1]])
    table.snapshot([own[2]])
    return Damaged(world, table, first, second)


@ENGINES
@pytest.mark.parametrize("what", ["list", "manifest"])
def test_a_snapshot_whose_list_or_manifest_is_gone_expires_and_what_that_named_stays(
    old: Damaged, expire: Expire, what: str
) -> None:
    world, table = old.world, old.table
    shared, own = table.manifests_of(old.first)
    unknown = old.files_of(own) | ({own} if what == "list" else set())
    named = world.lake.named_by(table.document, [old.first, old.second])
    gone = old.lose(what, old.first)
    before = world.lake.uris()

    result = expire(world.context(table))

    assert (result.status, len(table.ids)) == ("EXPIRED", 1)
    assert before - world.lake.uris() == named - unknown - {gone}
    assert old.files_of(shared).isdisjoint(world.lake.uris()), "the other snapshot names them"
    assert [(one.code, one.count, one.sample) for one in result.findings] == [("MANIFEST_MISSING", 1, (gone,))]
    receipt = json.loads(world.plans.objects[str(result.receipt)])
    assert [(one["code"], one["sample"]) for one in receipt["findings"]] == [("MANIFEST_MISSING", [gone])]
    assert world.lake.readable() == {"t": set()}


@ENGINES
def test_all_lists_of_expiring_snapshots_may_be_gone(old: Damaged, expire: Expire) -> None:
    lists = {old.lose("list", old.first), old.lose("list", old.second)}
    before = old.world.lake.uris()

    result = expire(old.world.context(old.table))

    assert (result.status, len(old.table.ids)) == ("EXPIRED", 1)
    assert before - old.world.lake.uris() == set(), "no list names anything"
    (finding,) = result.findings
    assert (finding.count, set(finding.sample)) == (2, lists)


def lose_kept_list(old: Damaged) -> None:
    old.lose("list", old.first)
    old.lose("list", old.table.refs["main"])


def lose_kept_manifest(old: Damaged) -> None:
    old.lose("list", old.first)
    old.lose("manifest", old.table.refs["main"])


def lose_tagged_manifest(old: Damaged) -> None:
    """Without the tag the snapshot would expire."""
    old.table.tag("kept", old.first)
    old.lose("manifest", old.first)


def lose_shared_manifest(old: Damaged) -> None:
    """Lose a manifest that the kept snapshot has too."""
    shared = old.table.manifests_of(old.first)[0]
    old.table.snapshot([shared])
    where = parse(shared)
    del old.world.lake.objects[where.bucket, where.key]


def damage_list(old: Damaged) -> None:
    """It may be restored from a version or a copy, and is what names the files."""
    old.world.lake.put(old.list_of(old.first), b"x")


@ENGINES
@pytest.mark.parametrize(
    ("damage", "error"),
    [
        (lose_kept_list, ManifestMissing),
        (lose_kept_manifest, ManifestMissing),
        (lose_tagged_manifest, ManifestMissing),
        (lose_shared_manifest, ManifestMissing),
        (damage_list, CorruptManifestError),
    ],
)
def test_what_a_kept_snapshot_needs_and_what_may_be_restored_stops_all(
    old: Damaged, expire: Expire, damage: Callable[[Damaged], None], error: type[Exception]
) -> None:
    damage(old)
    before, ids = old.world.lake.uris(), old.table.ids
    with pytest.raises(error):
        expire(old.world.context(old.table))
    assert (old.world.lake.uris(), old.world.commits(), old.table.ids) == (before, 0, ids)


@ENGINES
@pytest.mark.parametrize("what", ["list", "manifest"])
def test_a_clone_that_keeps_the_damaged_snapshot_keeps_its_files(old: Damaged, expire: Expire, what: str) -> None:
    """The clone cannot be read to its end, so nothing is deleted, and the expiry waits for it."""
    old.world.lake.pointers["clone"] = old.table.pointer
    old.lose(what, old.first)
    before = old.world.lake.uris()

    with pytest.raises((NeighbourUnreadable, NeighbourChanged)):
        expire(old.world.context(old.table))

    assert before <= old.world.lake.uris()


@ENGINES
def test_a_file_that_is_live_in_the_last_snapshot_stays_whatever_a_missing_manifest_named(
    old: Damaged, expire: Expire
) -> None:
    again = sorted(old.files_of(old.table.manifests_of(old.second)[-1]))
    old.table.append(paths=again)
    old.lose("manifest", old.first)

    assert expire(old.world.context(old.table)).status == "EXPIRED"
    assert set(again) <= old.world.lake.uris()
    assert old.world.lake.readable() == {"t": set()}


@ENGINES
def test_a_snapshot_that_a_writer_takes_back_before_the_commit_stops_all(old: Damaged, expire: Expire) -> None:
    """The plan was made while it was to expire; then a rollback makes it the current one."""
    ctx, gone = old.world.context(old.table), old.lose("manifest", old.first)
    source, before = ctx.tables, old.world.lake.uris()

    class Late:
        def load(self) -> LoadedTable:
            found = source.load()
            if old.world.catalogs[-1].calls == 1:
                old.table.rollback(old.first)
            return found

    with pytest.raises(ManifestMissing) as raised:
        expire(replace(ctx, tables=Late()))

    assert gone in str(raised.value)
    needed = old.world.lake.read_by(old.table.document, [old.first])
    assert needed - {gone} <= old.world.lake.uris() <= before | old.world.lake.uris()


@ENGINES
def test_a_damaged_snapshot_that_the_request_names_expires_and_no_partition_spec_goes(
    old: Damaged, expire: Expire
) -> None:
    """Iceberg counts the specs of a named snapshot as in use, and these are not known."""
    old.table.apply({"action": "add-spec", "spec": {"spec-id": 1, "fields": []}})
    old.lose("list", old.first)
    retention = Retention(older_than_ms=0, snapshot_ids=(old.first,), clean_expired_metadata=True)

    dry = expire(old.world.context(old.table, retention, dry_run=True))
    result = expire(old.world.context(old.table, retention))

    assert [one.code for one in dry.findings] == [one.code for one in result.findings] == ["MANIFEST_MISSING"]
    assert (result.status, result.snapshot_ids, result.spec_ids) == ("EXPIRED", (old.first,), ())
