"""What takes the files that an expiry leaves when it cannot know whether it lost a ref."""

from collections.abc import Mapping, Sequence
from typing import Any

from delegation.identifiers import TableIdentifier
from delegation.polaris.model import LoadedTable
from delegation.tasks.life.model import Status
from tests.kit.lakes.lake import filled, rows
from tests.kit.worlds.expiring import ExpiringWorld
from tests.kit.worlds.sweeping import SweepingWorld


class UpkeepWorld(ExpiringWorld, SweepingWorld):
    """The service with expiries and removals of orphan files."""


def test_a_removal_of_orphan_files_deletes_what_an_expiry_left_that_could_not_compare_the_refs() -> None:
    world = filled(UpkeepWorld(), "t")
    commit = world.commits.commit_table

    def lose_the_former_file(
        identifier: TableIdentifier, requirements: Sequence[Mapping[str, Any]], updates: Sequence[Mapping[str, Any]]
    ) -> LoadedTable:
        bucket, _, key = world.lake.pointers["t"].removeprefix("s3://").partition("/")
        after = commit(identifier, requirements, updates)
        del world.lake.objects[bucket, key]
        return after

    world.commits.commit_table = lose_the_former_file  # type: ignore[method-assign]
    before = set(world.lake.uris())
    task = world.expire("t")
    assert (task.status, task.error_code) == (Status.FAILURE, "REFS_UNKNOWN")
    planned = world.planned(task)
    assert planned <= set(world.lake.uris())
    receipt = world.receipt(task)
    assert (receipt["status"], receipt["findings"][-1]["count"]) == ("INCOMPLETE", len(planned))
    assert before - set(world.lake.uris()) <= {uri for uri in before if uri.endswith(".metadata.json")}

    # The next expiry has a plan of its own, and deletes none of these.
    world.commits.commit_table = commit  # type: ignore[method-assign]
    world.lake.table("t").append(rows(9))
    assert world.expire("t").status is Status.SUCCESS
    assert planned <= set(world.lake.uris())

    # A removal of orphan files does.
    assert world.ask().status is Status.SUCCESS
    assert planned & set(world.lake.uris()) == set()
    assert world.lake.needed("t") <= set(world.lake.uris())
