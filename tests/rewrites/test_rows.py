"""A rewrite leaves every row of every snapshot as it was, on tables of each version with deletes of each kind."""

import pytest

from delegation.rewrites.commits import own_commits
from delegation.rewrites.context import DataFilesRewrite
from tests.rewrites.world import RewriteWorld

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(1200),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
SMALL = DataFilesRewrite(options={"min-input-files": "2", "delete-file-threshold": "1"})


def _filled(world: RewriteWorld, name: str, version: int) -> str:
    table = world.create(
        name,
        **{"format-version": str(version), "write.delete.mode": "merge-on-read", "write.update.mode": "merge-on-read"},
    )
    for part in range(4):
        values = ", ".join(
            f"({number}, '{'eu' if number % 2 else 'us'}', {number})" for number in range(part * 10, part * 10 + 10)
        )
        world.sql(f"INSERT INTO {table} VALUES {values}")
    if version > 1:
        world.sql(f"DELETE FROM {table} WHERE id IN (3, 14)", f"UPDATE {table} SET amount = 99 WHERE id = 22")
    return table


@pytest.mark.parametrize("version", [*(pytest.param(number, marks=pytest.mark.long) for number in (1, 2)), 3])
def test_bin_pack_keeps_rows_and_folds_deletes(world: RewriteWorld, version: int) -> None:
    table = _filled(world, f"bins{version}", version)
    before, rows = world.every_snapshot(table), world.rows(table)
    lineage = world.lineage(table) if version == 3 else {}
    performed = world.rewrite(f"bins{version}", SMALL)
    assert (performed.groups, performed.groups_done, performed.put_off) == (2, 2, ())
    assert world.files(table) == (2, 0)
    assert world.rows(table) == rows
    assert {number: found for number, found in world.every_snapshot(table).items() if number in before} == before
    if version == 3:
        assert world.lineage(table) == lineage
    own = own_commits(world.metadata(f"bins{version}"), "task-1")
    assert sum(one["added-data-files"] for one in own) == 2
