"""The health of tables that Spark wrote, against their files; what was read once is not read again."""

import random
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from delegation.storage.base import ObjectStoreUnavailable
from delegation.upkeep.execution.expiries import can_be_decided
from delegation.upkeep.health.model import ReadState, review_at
from delegation.upkeep.health.reading import TARGET_SIZE, ExpiryByRule, HealthLimits, read_health
from tests.unit.upkeep.health.tables import CountingStore, WrittenTable, every

NOW = datetime(2026, 11, 23, tzinfo=UTC)
TABLES = dict(every())


def rule(*ids: int) -> ExpiryByRule:
    return ExpiryByRule("1", lambda _document, _now: frozenset(ids))


def read(table: WrittenTable, store: CountingStore, known=None, state=None, expiry=None):
    return read_health(table.loaded(), store.fetcher(), known, state or ReadState(), rule=expiry, now=NOW)


@pytest.mark.parametrize("name", TABLES)
def test_the_numbers_are_those_of_the_files(name: str) -> None:
    table = TABLES[name]
    health, _ = read(table, CountingStore(table.content))
    document = table.document
    assert health.problem is None
    assert health.snapshots == len(document.get("snapshots") or ())
    current = [
        one for one in document.get("snapshots") or () if one["snapshot-id"] == document.get("current-snapshot-id")
    ]
    files = list(table.live(current[0]).values()) if current else []
    data = [size for content, size, _ in files if content == 0]
    vectors = [one for one in files if one[0] and one[2].upper() == "PUFFIN"]
    deletes = [size for content, size, form in files if content and form.upper() != "PUFFIN"]
    assert (health.files, health.bytes) == (len(data), sum(data) + sum(deletes))
    assert (health.small_files, health.small_bytes) == (len(data), sum(data))
    assert (health.oversized_files, health.oversized_bytes) == (0, 0)
    assert health.delete_files == len(deletes)
    # Several vectors share a path.
    assert health.deletion_vectors >= len(vectors)
    assert (health.deletion_vectors > 0) == bool(vectors)


@pytest.mark.parametrize("target", ["1", "100000000000000000000", "x", "-1", "1000"])
def test_files_are_small_or_oversized_by_the_tables_target(target: str) -> None:
    """Small below three quarters, oversized above 1.8 times the target; a target that is no number is the default."""
    table = TABLES["branches-branches"] if "branches-branches" in TABLES else next(iter(TABLES.values()))
    store = CountingStore(table.content)
    before, state = read(table, store)
    loaded = table.loaded()
    changed = {**loaded.metadata, "properties": {**loaded.metadata.get("properties", {}), TARGET_SIZE: target}}
    health, _ = read_health(replace(loaded, metadata=changed), store.fetcher(), before, state, rule=None, now=NOW)
    [current] = [one for one in changed["snapshots"] if one["snapshot-id"] == changed["current-snapshot-id"]]
    sizes = [size for content, size, _ in table.live(current).values() if content == 0]
    size = int(target) if target in ("1", "1000") else 512 * 1024 * 1024
    small = [one for one in sizes if one < size * 3 // 4]
    large = [one for one in sizes if one > size * 9 // 5]
    assert sizes
    assert (health.small_files, health.small_bytes) == (len(small), sum(small))
    assert (health.oversized_files, health.oversized_bytes) == (len(large), sum(large))


@pytest.mark.parametrize("name", TABLES)
def test_what_an_expiry_frees_is_within_the_bounds_for_any_snapshots(name: str) -> None:
    table = TABLES[name]
    snapshots = table.document.get("snapshots") or []
    live = {one["snapshot-id"]: table.live(one) for one in snapshots}
    chance = random.Random(30)
    _, state = read(table, CountingStore(table.content))
    for _ in range(8 if len(live) > 1 else 0):
        expired = {one for one in live if chance.random() < 0.5}
        kept = {path for one, files in live.items() if one not in expired for path in files}
        gone = {path: size for one in expired for path, (_, size, _) in live[one].items() if path not in kept}
        health, _ = read(table, CountingStore(table.content), None, state, rule(*expired))
        assert health.expirable == len(expired)
        assert health.freed.lower <= sum(gone.values())
        assert health.freed.upper is None or sum(gone.values()) <= health.freed.upper
        assert (health.since is None) == (not expired)


@pytest.mark.parametrize("name", [name for name, one in TABLES.items() if list(one.before())])
def test_a_table_that_changed_is_read_as_far_as_what_is_new(name: str) -> None:
    """Each state after the other, as passes find them: the numbers are those of one look."""
    table = TABLES[name]
    store = CountingStore(table.content)
    health, state = None, ReadState()
    for one in (*table.before(), table):
        health, state = read(one, store, health, state.bounded())
    fresh, whole = read(table, CountingStore(table.content))
    if any(one.document["table-uuid"] != table.document["table-uuid"] for one in table.before()):
        pytest.skip("the log has another table's metadata")
    assert health.problem is None
    assert health.bounded() == fresh
    assert state.manifests == whole.manifests
    lists = {
        snapshot["manifest-list"] for snapshot in table.document.get("snapshots") or () if "manifest-list" in snapshot
    }
    again = {uri for uri, count in store.reads.items() if count > 1}
    # A list is read again only where the current snapshot is one that was read before: after a rollback, or after a
    # commit that changed no data.
    assert not [uri for uri in again if uri not in lists and "snap-" not in uri]


def test_an_unchanged_table_reads_one_list_and_no_manifest() -> None:
    table = TABLES["branches-branches"] if "branches-branches" in TABLES else next(iter(TABLES.values()))
    health, state = read(table, CountingStore(table.content))
    store = CountingStore(table.content)
    again, _ = read(table, store, health, state)
    assert again == health
    assert sum(store.reads.values()) == 1


def test_a_manifest_that_is_lost_is_the_tables_problem_and_its_numbers_stay() -> None:
    table = next(one for one in TABLES.values() if list(one.before()))
    health, state = read(table, CountingStore(table.content))
    lists = {uri: data for uri, data in table.content.items() if "snap-" in uri or not uri.endswith(".avro")}
    broken, _ = read(table, CountingStore(lists), health, ReadState())
    assert broken.problem.startswith("MANIFEST_MISSING: ")
    assert (broken.files, broken.bytes) == (health.files, health.bytes)
    healed, _ = read(table, CountingStore(table.content), broken, state)
    assert healed == health


def test_a_store_that_does_not_answer_changes_nothing() -> None:
    table = next(iter(TABLES.values()))

    def fail() -> None:
        raise ObjectStoreUnavailable("slow down")

    with pytest.raises(ObjectStoreUnavailable):
        read(table, CountingStore(table.content, each=fail))


def test_a_table_made_again_under_its_name_keeps_nothing_of_the_former_one() -> None:
    one, other = list({table.document["table-uuid"]: table for table in TABLES.values()}.values())[:2]
    health, state = read(
        one, CountingStore(one.content), expiry=rule(*(s["snapshot-id"] for s in one.document["snapshots"][:1]))
    )
    after, changed = read(other, CountingStore(other.content), health, state)
    fresh, whole = read(other, CountingStore(other.content))
    assert (after, changed) == (fresh, whole)


def test_a_state_beyond_its_bounds_keeps_the_largest_manifests_and_newest_snapshots(monkeypatch) -> None:
    table = max(TABLES.values(), key=lambda one: len(one.document.get("snapshots") or ()))
    health, state = read(table, CountingStore(table.content))
    monkeypatch.setattr("delegation.upkeep.health.model.MOST_MANIFESTS", 1)
    monkeypatch.setattr("delegation.upkeep.health.model.MOST_CHANGES", 2)
    small = state.bounded()
    assert len(small.manifests) == 1
    assert list(small.changes) == list(state.changes)[-2:]
    assert max(one.files for one in state.manifests.values()) == next(iter(small.manifests.values())).files
    assert read(table, CountingStore(table.content), health, small)[0] == health


def test_a_table_with_more_manifests_than_one_read_takes_has_that_problem(monkeypatch) -> None:
    table = max(TABLES.values(), key=lambda one: len(one.document.get("snapshots") or ()))
    monkeypatch.setattr("delegation.upkeep.health.reading.MOST_READ", 1)
    store, limits = CountingStore(table.content), HealthLimits(most=1)
    health, state = read_health(table.loaded(), store.fetcher(), None, ReadState(), rule=None, now=NOW, limits=limits)
    assert health.problem.startswith("HEALTH_TABLE_TOO_LARGE: ")
    assert health.review_at is not None
    # What expires is known all the same.
    assert can_be_decided(health)
    assert (health.rule, health.snapshots) == ("", len(state.history["snapshots"]))


def test_the_review_of_a_quiet_table_is_when_its_first_snapshot_expires() -> None:
    due = NOW + timedelta(days=3, minutes=7)

    def expirable(_document: Mapping[str, Any], now: datetime) -> frozenset[int]:
        return frozenset({1}) if now >= due else frozenset()

    found = review_at({}, expirable, NOW, has_expirable=False)
    assert due <= found < due + timedelta(minutes=10)
    assert review_at({}, expirable, due, has_expirable=True) == due + timedelta(days=1)
    assert review_at({}, lambda _document, _now: frozenset(), NOW, has_expirable=False) == NOW + timedelta(days=30)
