"""Every catalog that an expiry commits to: Polaris (the stand-in of the local stack), and that of the unit tests."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from delegation.identifiers import TableIdentifier
from delegation.polaris.answers import CommitConflict, NoSuchTable, PolarisForbidden
from delegation.polaris.client import PolarisClient
from delegation.polaris.model import LoadedTable
from delegation.removal.expiry.context import Commits, removal
from delegation.removal.expiry.retention import Expired
from delegation.removal.expiry.snapshots import history
from tests.contract.polaris.world import PolarisView, stand_in
from tests.kit.stories.tables import StandInCatalog, StoryTable, Warehouse, identifier


@dataclass
class Committing:
    """A catalog under test with a table of two snapshots, the older of which only the tag `old` is at."""

    commits: Commits
    name: TableIdentifier
    load: Callable[[], LoadedTable]

    def write(self, *updates: Mapping[str, Any]) -> LoadedTable:
        """Commit as a writer does."""
        return self.commits.commit_table(self.name, [], list(updates))

    def expire(self, table: LoadedTable, **gone: Any) -> LoadedTable:
        commit = removal(table.metadata, Expired(**gone))
        return self.commits.commit_table(self.name, commit.requirements, commit.updates)


def snapshot(table: LoadedTable, snapshot_id: int, **more: Any) -> dict[str, Any]:
    number = int(table.metadata.get("last-sequence-number") or 0) + 1
    return {
        "action": "add-snapshot",
        "snapshot": {
            "snapshot-id": snapshot_id,
            "sequence-number": number,
            "timestamp-ms": int(table.metadata["last-updated-ms"]) + 1,
            "manifest-list": f"{table.location}/metadata/snap-{snapshot_id}.avro",
            "summary": {"operation": "append"},
            "schema-id": 0,
            **more,
        },
    }


def ref(name: str, snapshot_id: int, kind: str) -> dict[str, Any]:
    return {"action": "set-snapshot-ref", "ref-name": name, "snapshot-id": snapshot_id, "type": kind}


def prepared(commits: Commits, name: TableIdentifier, load: Callable[[], LoadedTable]) -> Committing:
    found = Committing(commits, name, load)
    table = found.write(snapshot(load(), 1), ref("main", 1, "branch"))
    found.write(snapshot(table, 2, **{"parent-snapshot-id": 1}), ref("main", 2, "branch"))
    return found


@contextlib.contextmanager
def served() -> Iterator[Committing]:
    """The client of Polaris, and the stand-in behind HTTP."""
    with stand_in() as server, contextlib.closing(PolarisView(server)) as world:
        world.namespace()
        world.create("t")
        name = TableIdentifier(server.warehouse, (world.name,), "t")
        client = client_of(world, "TABLE_WRITE_PROPERTIES", "TABLE_READ_PROPERTIES")
        yield prepared(client, name, lambda: client.load_table(name, vend=False))


def client_of(world: PolarisView, *grants: str) -> PolarisClient:
    on_namespace = {"type": "namespace", "namespace": [world.name]}
    return world.client_with(*({**on_namespace, "privilege": grant} for grant in grants))


@contextlib.contextmanager
def in_memory() -> Iterator[Committing]:
    catalog = StandInCatalog(StoryTable.create(Warehouse()))
    yield prepared(catalog, identifier("t"), catalog.load)


@pytest.fixture(params=[in_memory, served], ids=["memory", "polaris"])
def catalog(request: pytest.FixtureRequest) -> Iterator[Committing]:
    with request.param() as found:
        yield found


def test_a_commit_is_applied_as_a_whole_and_answered_with_the_table_as_of_then(catalog: Committing) -> None:
    before = catalog.load()

    after = catalog.expire(before, snapshot_ids=frozenset({1}))

    assert set(history(after.metadata).snapshots) == {2}
    assert after.metadata["metadata-log"][-1]["metadata-file"] == before.metadata_location
    now = catalog.load()
    assert (now.metadata_location, now.metadata) == (after.metadata_location, after.metadata)


def test_a_ref_that_moved_since_the_load_refuses_the_commit_and_nothing_is_changed(catalog: Committing) -> None:
    before = catalog.load()
    catalog.write(ref("main", 1, "branch"))
    moved = catalog.load()

    with pytest.raises(CommitConflict):
        catalog.expire(before, snapshot_ids=frozenset({1}))

    assert catalog.load().metadata_location == moved.metadata_location


def test_a_tag_that_the_commit_did_not_know_goes_with_its_snapshot(catalog: Committing) -> None:
    """Why an expiry reads the metadata file from before its commit."""
    before = catalog.load()
    catalog.write(ref("new", 1, "tag"))
    tagged = catalog.load()

    after = catalog.expire(before, snapshot_ids=frozenset({1}))

    assert set(history(after.metadata).refs) == {"main"}
    assert after.metadata["metadata-log"][-1]["metadata-file"] == tagged.metadata_location


def test_an_expired_ref_is_asserted_and_removed(catalog: Committing) -> None:
    catalog.write(ref("old", 1, "tag"))
    before = catalog.load()
    gone = {"snapshot_ids": frozenset({1}), "refs": frozenset({"old"})}

    after = catalog.expire(before, **gone)

    assert set(history(after.metadata).refs) == {"main"}
    with pytest.raises(CommitConflict):
        catalog.expire(before, **gone)


def test_another_table_under_the_name_refuses_the_commit(catalog: Committing) -> None:
    before = catalog.load()
    other = {"type": "assert-table-uuid", "uuid": "00000000-0000-4000-8000-00000000ffff"}

    with pytest.raises(CommitConflict):
        catalog.commits.commit_table(catalog.name, [other], [{"action": "remove-snapshots", "snapshot-ids": [1]}])

    assert catalog.load().metadata_location == before.metadata_location


def test_a_table_that_does_not_exist_is_named(catalog: Committing) -> None:
    if isinstance(catalog.commits, StandInCatalog):
        del catalog.commits.table.lake.pointers["t"]
    missing = TableIdentifier(catalog.name.catalog, catalog.name.namespace, "missing")
    with pytest.raises(NoSuchTable):
        catalog.commits.commit_table(missing, [], [{"action": "remove-snapshots", "snapshot-ids": [1]}])


def test_a_principal_that_may_not_commit_is_named_the_privilege() -> None:
    with stand_in() as server, contextlib.closing(PolarisView(server)) as world:
        world.namespace()
        world.create("t")
        client = client_of(world, "TABLE_READ_PROPERTIES")
        name = TableIdentifier(server.warehouse, (world.name,), "t")
        with pytest.raises(PolarisForbidden, match="the principal needs TABLE_WRITE_PROPERTIES"):
            client.commit_table(name, [], [{"action": "set-properties", "updates": {"a": "b"}}])
