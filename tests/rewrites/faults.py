"""Which known faults a runtime shows, in a process with that runtime's jar."""

import json
import sys

from delegation.rewrites.context import DataFilesRewrite, ManifestsRewrite
from delegation.rewrites.runtimes import LEFT_DELETES, LOST_ROW_IDS, STALLED_BY_UPDATES
from tests.rewrites.held import Held
from tests.rewrites.world import RewriteWorld, rewrite_world


def loses_row_ids(world: RewriteWorld) -> bool:
    table = world.filled("manifests", 3, rows=8, files=2)
    world.sql(f"INSERT INTO {table} VALUES (100, 'eu', 1)")
    before = world.lineage(table)
    assert world.rewrite("manifests", ManifestsRewrite()).groups_done == 1
    return world.lineage(table) != before


def is_put_off(world: RewriteWorld, *updated: int) -> bool:
    """Return whether a rewrite of one partition is put off if rows of one file of the other are updated meanwhile."""
    name = f"updates{len(updated)}"
    table = world.filled(name, 3, rows=8, files=2)

    def update() -> None:
        for key in updated:
            world.sql(f"UPDATE {table} SET amount = 77 WHERE id = {key}")

    rewrite = DataFilesRewrite(where="region = 'eu'", options={"min-input-files": "2"})
    performed = world.rewrite(name, rewrite, wire=Held(update))
    assert performed.groups == 1
    assert {row[0]: row[2] for row in world.rows(table)} == {key: 77 if key in updated else key for key in range(8)}
    return performed.groups_done == 0


def is_stalled_by_updates(world: RewriteWorld) -> bool:
    assert not is_put_off(world, 1)
    return is_put_off(world, 1, 3)


def leaves_deletes(world: RewriteWorld) -> bool:
    """Return whether a position delete outlives its file; an older file of the partition is not rewritten."""
    table = world.filled("deletes", 2, rows=8, files=2)
    world.sql(f"DELETE FROM {table} WHERE id = 0")
    rows, (files, deletes) = world.rows(table), world.files(table)
    assert deletes == 1
    options = {"delete-file-threshold": "1", "min-file-size-bytes": "1"}
    assert world.rewrite("deletes", DataFilesRewrite(options=options)).groups_done == 1
    assert world.rows(table) == rows
    files_left, deletes_left = world.files(table)
    assert files_left == files
    return deletes_left > 0


SHOWN = ((LOST_ROW_IDS, loses_row_ids), (STALLED_BY_UPDATES, is_stalled_by_updates), (LEFT_DELETES, leaves_deletes))


def main(version: str) -> None:
    with rewrite_world(version) as world:
        faults = [fault.fixed_by for fault, is_shown in SHOWN if is_shown(world)]
        loaded = world.spark._jvm.org.apache.iceberg.IcebergBuild.version()
        sys.stdout.write(f"{json.dumps({'version': loaded, 'faults': faults})}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
