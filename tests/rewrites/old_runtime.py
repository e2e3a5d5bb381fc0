"""What a runtime does to the row ids of a v3 table when it rewrites manifests, in a process with that runtime's jar."""

import json
import sys

from delegation.rewrites.context import ManifestsRewrite
from tests.rewrites.world import rewrite_world


def main(version: str) -> None:
    with rewrite_world(version) as world:
        table = world.filled("v3", 3, rows=8, files=2)
        world.sql(f"INSERT INTO {table} VALUES (100, 'eu', 1)")
        before = world.lineage(table)
        performed = world.rewrite("v3", ManifestsRewrite())
        loaded = world.spark._jvm.org.apache.iceberg.IcebergBuild.version()
        found = {"version": loaded, "done": performed.groups_done, "is_kept": world.lineage(table) == before}
        sys.stdout.write(f"{json.dumps(found)}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
