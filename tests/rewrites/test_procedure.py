"""A rewrite beside Iceberg's procedure on the same table: the same rows at every snapshot, the same row ids, and no
more files."""

import os
import random
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from delegation.rewrites.decide import decide_compaction, decide_manifests
from delegation.rewrites.terms import CompactionTerms, ManifestTerms, Strategy
from tests.effort import sampled
from tests.rewrites.world import PlainAttempt, RewriteWorld
from tests.rewrites.written_tables import WrittenTable, rows_of_snapshots, written_table

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(1200),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
TABLES = int(os.environ.get("TABLES", "30"))
"""TABLES=60 compares sixty."""
SHORT = (7, 20)


@dataclass(frozen=True)
class Compared:
    """What was compared of a table."""

    snapshots: int
    rows: int
    files_before: int
    files: int
    files_of_procedure: int
    row_ids: int
    is_rewritten: bool


def terms_of(seed: int, branch: str) -> CompactionTerms:
    chosen = random.Random(f"terms {seed}")
    strategy = chosen.choice([Strategy.BIN_PACK] * 3 + [Strategy.SORT, Strategy.Z_ORDER])
    return CompactionTerms(
        strategy=strategy,
        sort_order="id DESC NULLS LAST" if strategy is Strategy.SORT else None,
        z_order_columns=("id", "at") if strategy is Strategy.Z_ORDER else (),
        min_input_files=chosen.choice([2, 2, 5]),
        delete_file_threshold=chosen.choice([None, 1, 2]),
        filter=chosen.choice([None, None, None, "id < 30"]),
        branch=branch,
        cold_after=timedelta(0),
    )


def call_of(table: WrittenTable, terms: CompactionTerms) -> str:
    """Return the call of Iceberg's procedure with the options of a compaction."""
    orders = {
        Strategy.BIN_PACK: "strategy => 'binpack'",
        Strategy.SORT: f"strategy => 'sort', sort_order => '{terms.sort_order}'",
        Strategy.Z_ORDER: f"strategy => 'sort', sort_order => 'zorder({', '.join(terms.z_order_columns)})'",
    }
    options = ", ".join(f"'{name}', '{value}'" for name, value in terms.action_options().items())
    where = "" if terms.filter is None else f", where => '{terms.filter}'"
    return (
        f"CALL lake.system.rewrite_data_files(table => 'sales.{table.name}', {orders[terms.strategy]}, "
        f"options => map({options}){where}, branch => '{terms.branch}')"
    )


def head(world: RewriteWorld, table: WrittenTable, branch: str) -> dict[str, Any]:
    metadata = world.metadata(table.name)
    at = metadata["refs"][branch]["snapshot-id"]
    return next(snapshot for snapshot in metadata["snapshots"] if snapshot["snapshot-id"] == at)


def rows_of(world: RewriteWorld, table: WrittenTable, branch: str) -> list[str]:
    return sorted(row[0] for row in world.sql(f"SELECT to_json(struct(*)) FROM {table.table}.branch_{branch}"))


def lineage(world: RewriteWorld, table: WrittenTable, branch: str) -> dict[Any, Any]:
    """Return the row ids and sequence numbers; rows of before an upgrade to version 3 have none until a commit."""
    if table.version < 3:
        return {}
    rows = world.sql(f"SELECT id, _row_id, _last_updated_sequence_number FROM {table.table} VERSION AS OF '{branch}'")
    return {row[0]: (row[1], row[2]) for row in rows if row[1] is not None}


def count(snapshot: dict[str, Any]) -> int:
    return int(snapshot["summary"]["total-data-files"])


def compare(world: RewriteWorld, seed: int) -> Compared:
    """Rewrite the table of a seed with the procedure, take that back, and rewrite it as a task does."""
    table = written_table(world, seed)
    chosen = random.Random(f"branch {seed}")
    of_manifests = seed % 4 == 3
    branch = chosen.choice(["main", *table.branches]) if not of_manifests else "main"
    before = rows_of_snapshots(world, table)
    start, row_ids = head(world, table, branch), lineage(world, table, branch)
    # A ref is read with the table's schema, a snapshot with its own.
    rows = rows_of(world, table, branch)
    terms = terms_of(seed, branch)

    if of_manifests:
        world.sql(f"CALL lake.system.rewrite_manifests('sales.{table.name}')")
    else:
        world.sql(call_of(table, terms))
    of_procedure, rows_of_procedure = head(world, table, branch), rows_of(world, table, branch)
    if branch == "main":
        world.sql(f"CALL lake.system.set_current_snapshot('sales.{table.name}', {start['snapshot-id']}L)")
    else:
        world.sql(f"ALTER TABLE {table.table} REPLACE BRANCH {branch} AS OF VERSION {start['snapshot-id']}")
    assert head(world, table, branch)["snapshot-id"] == start["snapshot-id"]

    ctx = world.context(table.name, PlainAttempt())
    loaded = ctx.load_table()
    if of_manifests:
        rewrites: tuple[Any, ...] = decide_manifests(ctx, loaded, ManifestTerms()).rewrites
    else:
        decision = decide_compaction(ctx, loaded, terms)
        rewrites = () if decision.rewrite is None else (decision.rewrite,)
    if rewrites:
        result = world.run(table.name, PlainAttempt(), *rewrites)
        assert (result.status, result.put_off) == ("REWRITTEN", ()), (table.steps, rewrites)
    now = head(world, table, branch)
    after = rows_of_snapshots(world, table)
    assert {number: after[number] for number in before} == before
    assert rows_of(world, table, branch) == rows_of_procedure == rows
    if row_ids:
        kept = lineage(world, table, branch)
        assert {key: kept[key] for key in row_ids} == row_ids
    return Compared(
        snapshots=len(after),
        rows=sum(map(len, after.values())),
        files_before=count(start),
        files=count(now),
        files_of_procedure=count(of_procedure),
        row_ids=len(row_ids),
        is_rewritten=bool(rewrites),
    )


@pytest.mark.parametrize("seed", sampled(range(TABLES), lambda seed: seed in SHORT))
def test_rows_and_row_ids_stay_and_no_more_files_are_left_than_by_the_procedure(world: RewriteWorld, seed: int) -> None:
    compared = compare(world, seed)
    assert compared.files <= compared.files_of_procedure
    assert compared.snapshots > 1
