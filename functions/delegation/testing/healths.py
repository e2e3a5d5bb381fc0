import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from delegation.identifiers import TableIdentifier
from delegation.items import SetAside
from delegation.upkeep.errors import HealthChanged
from delegation.upkeep.health.model import (
    LONGEST_PAST,
    LONGEST_PROBLEM,
    MOST_CHANGES,
    MOST_KINDS,
    MOST_MANIFESTS,
    MOST_PAST,
    FreedBytes,
    LastRun,
    ManifestSizes,
    OwnPolicies,
    OwnPolicy,
    PastRun,
    ReadState,
    SnapshotChange,
    TableHealth,
    packed_past,
)
from delegation.upkeep.health.store import HealthStore
from delegation.upkeep.schedule import Amount

NOW: Final = datetime(2026, 11, 22, 12, tzinfo=UTC)
RUN: Final = LastRun(
    "EXPIRY", "task-1", "keep-a-week", NOW, Amount(1, 2, 3), NOW, "SUCCESS", Amount(3, 2, 1), 2, "task-1/1/ab"
)
PAST: Final = PastRun("EXPIRY", "task-1", "gov.keep-a-week", NOW - timedelta(hours=1), NOW, "SUCCESS", 2**62, 2**70, 3)
STATE: Final = ReadState(
    "uuid",
    100,
    {b"12345678": ManifestSizes(1, 2, 3, 4, 5, 6, 7, 8, 9)},
    {-(2**63): SnapshotChange(1, 2, 3)},
    {"snapshots": [[2**63 - 1, None, 5]], "current": 2**63 - 1, "properties": {}, "refs": {"é": {"type": "tag"}}},
)


def table(name: str, *, catalog: str = "cat", namespace: tuple[str, ...] = ("ns",)) -> TableIdentifier:
    return TableIdentifier(catalog, namespace, name)


def health(name: str = "t", **fields: Any) -> TableHealth:
    return TableHealth(table(name), "uuid", f"s3://b/{name}.json", NOW, **fields)


class HealthStoreContract:
    """The contract as tests of one store. A subclass overrides the fixture `store`."""

    @pytest.fixture
    def store(self) -> HealthStore:
        """Return a new, empty store that shares nothing with another test's."""
        raise NotImplementedError(f"{type(self).__name__} needs a fixture `store`")

    def test_a_health_comes_back_whole(self, store: HealthStore) -> None:
        recorded = health(
            snapshots=1,
            refs=2,
            files=3,
            bytes=2**62,
            small_files=4,
            small_bytes=13,
            oversized_files=14,
            oversized_bytes=15,
            delete_files=5,
            deletion_vectors=6,
            manifests=7,
            manifest_bytes=8,
            metadata_bytes=9,
            expirable=10,
            freed=FreedBytes(11, 12),
            rule="r",
            since=NOW,
            review_at=NOW + timedelta(days=1),
            again_at=NOW + timedelta(days=2),
            properties={"history.expire.max-snapshot-age-ms": "7"},
            own=OwnPolicies(NOW, (OwnPolicy("system.snapshot-expiry", ("gov", "a.b"), "keep", 3, '{"enable":true}'),)),
            problem="X: no",
            past=(PAST, replace(PAST, task_type="ORPHANS", ended=NOW - timedelta(days=1), task_id="", snapshots=None)),
            runs={"EXPIRY": RUN, "ORPHANS": replace(RUN, task_type="ORPHANS", ended=None, outcome=None)},
            asides={"health.tables": SetAside("X: no", NOW, 3, NOW + timedelta(hours=1))},
            wanted={"ORPHANS": NOW},
        )
        written = store.put(recorded, STATE)
        assert written == replace(recorded, revision=1)
        assert store.health(recorded.identifier) == written
        assert list(store.healths("cat")) == [written]
        assert store.read_state(recorded.identifier) == STATE

    def test_unknown_values_stay_unknown(self, store: HealthStore) -> None:
        written = store.put(health(freed=FreedBytes(1, None)))
        assert store.health(written.identifier) == written
        assert (written.expirable, written.freed.upper, written.since) == (None, None, None)

    def test_nothing_is_known_of_a_table_that_was_never_read(self, store: HealthStore) -> None:
        assert store.health(table("t")) is None
        assert store.read_state(table("t")) == ReadState()
        assert list(store.healths("cat")) == []

    def test_the_later_of_two_writers_that_read_the_same_health_is_refused(self, store: HealthStore) -> None:
        first = store.put(health())
        second = store.put(replace(first, files=1))
        with pytest.raises(HealthChanged, match=r"cat\.ns\.t"):
            store.put(replace(first, files=2))
        with pytest.raises(HealthChanged):
            store.put(health())
        assert store.health(first.identifier) == second

    def test_a_refused_writer_leaves_what_the_later_one_read(self, store: HealthStore) -> None:
        first = store.put(health(), STATE)
        later = replace(STATE, small=200)
        store.put(replace(first, files=1), later)
        with pytest.raises(HealthChanged):
            store.put(replace(first, files=2), STATE)
        assert store.read_state(first.identifier) == later

    def test_a_removal_removes_what_was_read_too_unless_the_health_was_written_since(self, store: HealthStore) -> None:
        first = store.put(health(), STATE)
        second = store.put(first)
        store.remove(first)
        assert store.health(first.identifier) == second
        store.remove(second)
        store.remove(second)
        assert store.health(first.identifier) is None
        assert store.read_state(first.identifier) == ReadState()
        assert store.put(health()).revision == 1

    def test_tables_of_another_catalog_and_namespaces_with_dots_are_apart(self, store: HealthStore) -> None:
        identifiers = {
            table("t"),
            table("t", catalog="cat2"),
            table("t", namespace=("ns", "a")),
            table("a.t"),
            table("t", namespace=("ns.a",)),
        }
        for identifier in identifiers:
            store.put(replace(health(), identifier=identifier))
        of_catalog = {identifier for identifier in identifiers if identifier.catalog == "cat"}
        assert {stored.identifier for stored in store.healths("cat")} == of_catalog

    def test_a_catalog_of_many_tables_is_read_whole(self, store: HealthStore) -> None:
        for number in range(60):
            store.put(health(f"t{number}", rule="r" * 20_000, problem="p" * LONGEST_PROBLEM))
        assert {read.identifier.name for read in store.healths("cat")} == {f"t{number}" for number in range(60)}

    def test_whatever_a_tables_writer_chose_the_items_have_room(self, store: HealthStore) -> None:
        huge = 2**90
        manifests = {
            n.to_bytes(8): ManifestSizes(huge, huge + n, huge, huge, huge, huge, huge + n, huge, huge - n)
            for n in range(MOST_MANIFESTS + 9)
        }
        changes = {n * 2**40: SnapshotChange(huge, huge - n, huge) for n in range(MOST_CHANGES + 9)}
        runs = {f"K{n}": replace(RUN, task_type=f"K{n}") for n in range(99)}
        recorded = health(bytes=huge, problem="p" * 10**6, runs=runs)
        written = store.put(replace(recorded, metadata_location="l" * 10**6), ReadState("uuid", 1, manifests, changes))
        assert store.health(recorded.identifier) == written
        assert len(written.runs) == MOST_KINDS
        kept = store.read_state(recorded.identifier)
        assert (len(kept.manifests), len(kept.changes)) == (MOST_MANIFESTS, MOST_CHANGES)

    def test_the_past_of_a_table_is_bounded_in_runs_of_each_kind_and_in_bytes(self, store: HealthStore) -> None:
        many = tuple(
            replace(PAST, task_type=task_type, ended=NOW + timedelta(minutes=number))
            for task_type in ("EXPIRY", "ORPHANS")
            for number in range(MOST_PAST + 5)
        )
        written = store.put(health(past=many))
        assert store.health(written.identifier) == written
        for task_type in ("EXPIRY", "ORPHANS"):
            of_type = [run.ended for run in written.past if run.task_type == task_type]
            assert of_type == [NOW + timedelta(minutes=number) for number in range(MOST_PAST + 4, 4, -1)]
        noise = random.Random(5)
        loud = tuple(
            replace(run, policy="".join(chr(noise.randrange(0x4E00, 0x9FFF)) for _ in range(5_000))) for run in many
        )
        kept = store.put(replace(written, past=loud)).past
        assert 0 < len(kept) < 2 * MOST_PAST
        assert len(packed_past(kept)) <= LONGEST_PAST
        assert kept[0].ended == NOW + timedelta(minutes=MOST_PAST + 4)
