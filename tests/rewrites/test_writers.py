"""Live writers beside a rewrite: theirs always wins, no row is lost or comes back, and the group is planned again."""

from dataclasses import replace

import pytest

from delegation.rewrites.context import DataFilesRewrite
from delegation.rewrites.errors import RewriteError
from tests.rewrites.held import Held
from tests.rewrites.world import PlainAttempt, RewriteWorld

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(1800),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
REWRITE = DataFilesRewrite(options={"min-input-files": "2", "partial-progress.max-commits": "1"})
WRITERS = {
    "append": "INSERT INTO {table} VALUES (100, 'eu', 1)",
    "delete": "DELETE FROM {table} WHERE id IN (3, 4)",
    "upsert": "MERGE INTO {table} t USING (SELECT 5 AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET amount = 77",
}


@pytest.mark.parametrize(
    ("kind", "version"),
    [
        # Iceberg itself commits again after an append; after a delete its action is called again.
        pytest.param(kind, version, marks=() if (kind, version) in {("append", 2), ("delete", 3)} else pytest.mark.long)
        for kind in WRITERS
        for version in (2, 3)
    ],
)
def test_a_writer_commits_while_a_rewrite_does(world: RewriteWorld, kind: str, version: int) -> None:
    name = f"{kind}{version}"
    table = world.filled(name, version)
    rows: list[object] = []
    lineage: dict[object, object] = {}

    def write() -> None:
        world.sql(WRITERS[kind].format(table=table))
        rows.extend(world.rows(table))
        lineage.update(world.lineage(table) if version == 3 else {})

    held = Held(write)
    result = world.run(name, PlainAttempt(), REWRITE, wire=held)
    assert held.statuses[0] == 409
    assert 200 in held.statuses
    assert world.rows(table) == rows
    if version == 3:
        assert world.lineage(table) == lineage
    assert (result.status, result.put_off) == ("REWRITTEN", ())
    assert world.files(table)[0] <= 3


@pytest.mark.long
def test_the_branch_is_deleted_while_a_rewrite_commits(world: RewriteWorld) -> None:
    table = world.filled("gone")
    rows = world.rows(table)
    world.sql(f"ALTER TABLE {table} CREATE BRANCH audit")

    def drop() -> None:
        world.sql(f"ALTER TABLE {table} DROP BRANCH audit")

    with pytest.raises(RewriteError) as ended:
        world.run("gone", PlainAttempt(), replace(REWRITE, branch="audit"), wire=Held(drop))
    assert ended.value.code == "BRANCH_NOT_FOUND"
    assert (world.rows(table), list(world.metadata("gone")["refs"])) == (rows, ["main"])
