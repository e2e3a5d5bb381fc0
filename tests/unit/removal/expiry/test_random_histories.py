"""Whatever the history of a table: after an expiry all that is reachable exists, and all that was planned is gone."""

import json
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegation.removal.expiry.retention import Retention
from tests.kit.stories.expiries import ExpiringTables
from tests.kit.stories.tables import DELETES, MINUTE, StoryTable

_STEPS = 12


def written(world: ExpiringTables, choose: random.Random, name: str = "t") -> StoryTable:
    """Return a table with a random history: branches, tags, rollbacks, staged writes, files that come back."""
    properties = {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "4"}
    table = StoryTable.create(world.lake, name, version=choose.choice([1, 2, 2, 3]), **choose.choice([{}, properties]))
    table.append(2)
    for _ in range(choose.randint(2, _STEPS)):
        choose.choice(_ACTS)(table, choose)
    return table


def _append(table: StoryTable, choose: random.Random) -> None:
    table.append(choose.randint(1, 3), ref=choose.choice([*_branches(table), None]))


def _delete_files(table: StoryTable, choose: random.Random) -> None:
    branch = choose.choice(_branches(table))
    if live := table.live(table.refs[branch]):
        table.delete(*choose.sample(live, choose.randint(1, len(live))), ref=branch)


def _add_deletes(table: StoryTable, choose: random.Random) -> None:
    if table.document["format-version"] > 1:
        table.append(content=DELETES, ref=choose.choice(_branches(table)))


def _rewrite(table: StoryTable, choose: random.Random) -> None:
    table.rewrite_manifests(choose.choice(_branches(table)))


def _bring_back(table: StoryTable, choose: random.Random) -> None:
    """Add a file again that an older snapshot had (add_files)."""
    once = table.live(choose.choice(table.ids))
    if fresh := sorted(set(once) - set(table.live())):
        table.append(paths=[choose.choice(fresh)])


def _tag(table: StoryTable, choose: random.Random) -> None:
    table.tag(f"tag{table.lake.next()}", choose.choice(table.ids), **choose.choice([{}, {"max-ref-age-ms": MINUTE}]))


def _branch(table: StoryTable, choose: random.Random) -> None:
    kept = choose.choice([{}, {"min-snapshots-to-keep": 2}, {"max-snapshot-age-ms": 3 * MINUTE}])
    table.branch(f"branch{table.lake.next()}", choose.choice(table.ids), **kept)


def _drop_ref(table: StoryTable, choose: random.Random) -> None:
    if others := sorted(table.refs.keys() - {"main"}):
        table.drop_ref(choose.choice(others))


def _rollback(table: StoryTable, choose: random.Random) -> None:
    table.rollback(choose.choice(table.ids))


def _statistics(table: StoryTable, choose: random.Random) -> None:
    table.statistics(choose.choice(table.ids))


def _metadata_only_expiry(table: StoryTable, choose: random.Random) -> None:
    loose = sorted(set(table.ids) - set(table.refs.values()))
    if loose:
        table.remove_snapshots(choose.choice(loose))


_ACTS: list[Callable[[StoryTable, random.Random], None]] = [
    _append, _append, _append, _delete_files, _delete_files, _add_deletes, _rewrite, _bring_back, _tag, _branch,
    _drop_ref, _rollback, _statistics, _metadata_only_expiry,
]  # fmt: skip


def _branches(table: StoryTable) -> list[str]:
    refs = table.document.get("refs") or {}
    return sorted(name for name, ref in refs.items() if ref["type"] == "branch")


def _retention(choose: random.Random, table: StoryTable) -> Retention:
    since = table.lake.now_ms - choose.randint(-1, _STEPS) * MINUTE
    age = choose.choice([None, MINUTE, 5 * MINUTE])
    return Retention(older_than_ms=since, retain_last=choose.choice([None, 1, 2, 4]), max_ref_age_ms=age)


def check(seed: int) -> None:
    """Write a table and expire some of it."""
    choose, world = random.Random(seed), ExpiringTables()
    table = written(world, choose)
    retention = _retention(choose, table)
    before, document = world.lake.uris(), table.document
    known = before - {uri for uri in before if uri.endswith(".metadata.json")}
    formerly = former_statistics(world, document)

    result = world.expire(table, retention)

    removed = set(result.snapshot_ids)
    assert set(table.ids) == {one["snapshot-id"] for one in document["snapshots"]} - removed
    assert world.lake.readable() == {"t": set()}
    needed = world.lake.read_by(document, set(table.ids))
    expected = own_files(world, document, removed) - needed
    expected |= {path for snapshot, path in formerly if snapshot in removed} - needed
    assert known - world.lake.uris() == expected & known
    if removed:
        assert world.planned() - world.lake.uris() == world.planned()


def former_statistics(world: ExpiringTables, document: dict) -> set[tuple[int, str]]:  # type: ignore[type-arg]
    """Return the statistics that former metadata files name, with their snapshots: the table may have replaced them."""
    found, seen, logs = set(), set(), [document.get("metadata-log", ())]
    while logs:
        for path in {one["metadata-file"] for one in logs.pop()} - seen:
            seen.add(path)
            bucket, _, key = path.removeprefix("s3://").partition("/")
            former = json.loads(world.lake.objects.get((bucket, key), b"{}"))
            logs.append(former.get("metadata-log", ()))
            for each in (*former.get("statistics", ()), *former.get("partition-statistics", ())):
                found.add((each["snapshot-id"], each["statistics-path"]))
    return found


def own_files(world: ExpiringTables, document: dict, removed: set[int]) -> set[str]:  # type: ignore[type-arg]
    """Return what removed snapshots name, without entries of manifests that other snapshots have, too."""
    kept = {
        manifest
        for one in document["snapshots"]
        if one["snapshot-id"] not in removed
        for manifest in world.lake.lists[one["manifest-list"]]
    }
    found = world.lake.read_by(document, removed)
    for one in document["snapshots"]:
        if one["snapshot-id"] in removed:
            for manifest in set(world.lake.lists[one["manifest-list"]]) - kept:
                found |= {entry.path for entry in world.lake.manifests[manifest]}
    return found


@given(st.integers(min_value=0, max_value=2**32))
def test_after_an_expiry_all_that_is_reachable_exists_and_all_that_was_planned_is_gone(seed: int) -> None:
    check(seed)


@pytest.mark.parametrize("seed", range(10))
def test_the_same_holds_beside_a_table_that_took_files(seed: int) -> None:
    choose, world = random.Random(seed), ExpiringTables()
    table = written(world, choose)
    for each in range(2):
        other = StoryTable.create(world.lake, f"other{each}")
        other.append(paths=choose.sample(sorted(world.lake.live_anywhere()), 2))

    world.expire(table, _retention(choose, table))

    assert {name: missing for name, missing in world.lake.readable().items() if missing} == {}
