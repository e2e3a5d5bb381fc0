from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from delegation.identifiers import TableIdentifier
from delegation.references.blocking import (
    DIGEST_BYTES,
    LONGEST_REASON,
    Blocking,
    Exemption,
    HeldPurge,
    LocatedTable,
    Subject,
)
from delegation.references.errors import PassLost
from delegation.references.model import EVERYWHERE, CatalogPass, LostRefs, TableEntry
from delegation.references.store import ReferenceStore, blocking_of, freed

NOW: Final = datetime(2026, 11, 22, 12, tzinfo=UTC)
WIDE: Final = Blocking(Subject("cat"), "POLARIS_FORBIDDEN: no", NOW)
NARROW: Final = Blocking(Subject("cat", ("ns",)), "POLARIS_FORBIDDEN: no", None)
TABLE: Final = Blocking(Subject("cat", ("ns",), "t"), "CORRUPT_MANIFEST: x", NOW, "uuid", "s3://b/t.json")


def entry(
    name: str, *areas: str, catalog: str = "cat", namespace: tuple[str, ...] = ("ns",), **fields: Any
) -> TableEntry:
    return TableEntry(TableIdentifier(catalog, namespace, name), "uuid", f"s3://b/{name}.json", areas, **fields)


def names(tables: frozenset[TableIdentifier]) -> set[str]:
    return {table.name for table in tables}


def put(store: ReferenceStore, entry: TableEntry) -> None:
    stored = store.get(entry.identifier)
    store.put(replace(entry, revision=0 if stored is None else stored.revision))


class ReferenceStoreContract:
    """The contract as tests of one store. A subclass overrides the fixture `store`."""

    @pytest.fixture
    def store(self) -> ReferenceStore:
        """Return a new, empty store that shares nothing with another test's."""
        raise NotImplementedError(f"{type(self).__name__} needs a fixture `store`")

    def test_an_entry_comes_back_whole(self, store: ReferenceStore) -> None:
        table_entry = entry(
            "t", "s3://b/t/", "s3://c/", etag='"e"', seen=frozenset({b"12345678", b"abcdefgh"}), problem="X: no"
        )
        put(store, table_entry)
        assert store.get(table_entry.identifier) == replace(table_entry, revision=1)
        assert list(store.entries("cat")) == [replace(table_entry, seen=frozenset(), revision=1)]
        assert store.get(TableIdentifier("cat", ("ns",), "other")) is None

    def test_what_a_pass_left_of_a_name_comes_back(self, store: ReferenceStore) -> None:
        table_entry = entry("t", "s3://b/t/", displaced=frozenset({"uuid-2", "uuid-3"}), absent=True, cloned=True)
        put(store, table_entry)
        assert store.get(table_entry.identifier) == replace(table_entry, revision=1)
        assert list(store.entries("cat")) == [replace(table_entry, revision=1)]

    def test_the_clones_of_a_table_are_found_in_their_catalog(self, store: ReferenceStore) -> None:
        for name, table_uuid in (("t", "one"), ("clone", "one"), ("other", "two")):
            put(store, replace(entry(name, "s3://b/t/"), table_uuid=table_uuid))
        assert names(store.clones("cat", "one")) == {"t", "clone"}
        assert store.clones("cat", "three") == store.clones("other", "one") == frozenset()

    def test_a_table_is_found_at_below_and_above_an_area(self, store: ReferenceStore) -> None:
        put(store, entry("at", "s3://b/wh/ns/t/"))
        put(store, entry("below", "s3://b/wh/ns/t/data/x/"))
        put(store, entry("above", "s3://b/wh/"))
        put(store, entry("bucket", "s3://b/"))
        put(store, entry("beside", "s3://b/wh/ns/t2/"))
        put(store, entry("elsewhere", "s3://c/wh/ns/t/"))
        assert names(store.overlapping("cat", ["s3://b/wh/ns/t/"])) == {"at", "below", "above", "bucket"}
        assert names(store.overlapping("cat", ["s3://b/wh/ns/t2/", "s3://c/"])) == {
            "beside",
            "above",
            "bucket",
            "elsewhere",
        }
        assert store.overlapping("other", ["s3://b/"]) == frozenset()

    def test_a_replaced_entry_is_no_longer_found_by_its_former_areas(self, store: ReferenceStore) -> None:
        put(store, entry("t", "s3://b/one/", "s3://b/two/"))
        put(store, entry("t", "s3://b/two/", "s3://b/three/"))
        assert store.overlapping("cat", ["s3://b/one/"]) == frozenset()
        assert names(store.overlapping("cat", ["s3://b/two/"])) == {"t"}
        assert names(store.overlapping("cat", ["s3://b/three/"])) == {"t"}

    def test_a_removed_table_is_not_found(self, store: ReferenceStore) -> None:
        table_entry = entry("t", "s3://b/t/", problem="X: no")
        put(store, table_entry)
        stored = store.get(table_entry.identifier)
        store.remove(table_entry)
        assert store.get(table_entry.identifier) == stored
        assert stored is not None
        store.remove(stored)
        store.remove(stored)
        assert store.get(table_entry.identifier) is None
        assert store.overlapping("cat", ["s3://b/"]) == frozenset()
        assert list(store.unreadable("cat")) == []

    def test_tables_with_a_problem_are_listed_until_they_have_none(self, store: ReferenceStore) -> None:
        put(store, entry("good", "s3://b/g/"))
        put(store, entry("bad", "s3://b/t/", problem="POLARIS_FORBIDDEN: no"))
        assert [(table_entry.identifier.name, table_entry.problem) for table_entry in store.unreadable("cat")] == [
            ("bad", "POLARIS_FORBIDDEN: no")
        ]
        put(store, entry("bad", "s3://b/t/"))
        assert list(store.unreadable("cat")) == []

    def test_an_entry_is_replaced_only_as_it_was_read(self, store: ReferenceStore) -> None:
        put(store, entry("t", "s3://b/one/"))
        stale = replace(entry("t", "s3://b/stale/"), revision=0)
        with pytest.raises(PassLost, match="t"):
            store.put(stale)
        kept = store.get(stale.identifier)
        assert kept is not None
        assert kept.areas == ("s3://b/one/",)
        assert names(store.overlapping("cat", ["s3://b/one/"])) == {"t"}

    def test_names_that_look_alike_are_different_tables(self, store: ReferenceStore) -> None:
        put(store, entry("c", "s3://b/1/", namespace=("a", "b")))
        put(store, entry("c", "s3://b/2/", namespace=("a.b",)))
        put(store, entry("c", "s3://b/3/", namespace=("a", "b"), catalog="other"))
        assert len(list(store.entries("cat"))) == 2
        assert {table.namespace for table in store.overlapping("cat", ["s3://b/"])} == {("a", "b"), ("a.b",)}

    def test_more_areas_than_one_call_writes(self, store: ReferenceStore) -> None:
        areas = tuple(sorted(f"s3://b/{number}/" for number in range(64)))
        put(store, entry("t", *areas))
        assert all(names(store.overlapping("cat", [area])) == {"t"} for area in areas)
        put(store, entry("t", "s3://b/x/"))
        assert not any(store.overlapping("cat", [area]) for area in areas)

    def test_a_pass_is_replaced_only_as_it_was_read(self, store: ReferenceStore) -> None:
        empty = store.pass_of("cat")
        assert empty == CatalogPass("cat")
        full = CatalogPass(
            "cat",
            complete_as_of=NOW,
            tables=7,
            owner="me",
            owned_until=NOW + timedelta(minutes=1),
            began_at=NOW,
            position=("ns", "", "t"),
            checked=3,
            number=8,
            complete=7,
            completed_at=NOW,
            again_to=("ns", "", "z"),
            again=True,
            strayed=True,
            moved_again=True,
            uncounted=2,
            problem="X: no",
            problem_since=NOW,
        )
        written = store.write_pass(empty, full)
        assert store.pass_of("cat") == written == replace(full, revision=1)
        with pytest.raises(PassLost, match="cat"):
            store.write_pass(empty, replace(full, owner="you"))
        assert store.write_pass(written, CatalogPass("cat", complete_as_of=NOW)).revision == 2
        assert store.pass_of("other") == CatalogPass("other")

    def test_lost_refs_are_one_for_each_metadata_file_and_stay_until_they_are_removed(
        self, store: ReferenceStore
    ) -> None:
        lost = LostRefs(
            identifier=TableIdentifier("cat", ("a", "b"), "t"),
            table_uuid="00000000-0000-4000-8000-000000000001",
            metadata_file="s3://b/t/metadata/1.metadata.json",
            copy="lost-refs/x.metadata.json",
            refs={"a tag": 2**63 - 1, "b.c": -5},
            count=2,
            task_id="task",
            at=NOW,
            until=NOW + timedelta(days=90),
        )
        other = replace(lost, metadata_file="s3://b/t/metadata/2.metadata.json", areas=("s3://b/t/", ""))
        for refs in (lost, other, replace(lost, until=NOW + timedelta(days=91))):
            store.put_lost_refs(refs)
        assert sorted(store.lost_refs("cat"), key=lambda refs: refs.metadata_file) == [
            replace(lost, until=NOW + timedelta(days=91)),
            other,
        ]
        assert store.lost_refs("other") == []
        store.remove_lost_refs(lost)
        store.remove_lost_refs(lost)
        assert store.lost_refs("cat") == [other]

    def test_a_location_with_an_empty_component_is_found_from_every_level_around_it(
        self, store: ReferenceStore
    ) -> None:
        put(store, entry("doubled", "s3://lake/wh//t/"))
        put(store, entry("level", "s3://lake/wh/"))
        put(store, entry("slash", "s3://lake//"))
        for asked in ("s3://lake/", "s3://lake/wh/", "s3://lake/wh//", "s3://lake/wh//t/", "s3://lake/wh//t/data/"):
            assert {"doubled", "level"} <= names(store.overlapping("cat", [asked])), asked
        assert names(store.overlapping("cat", ["s3://lake///x/"])) == {"slash"}

    def test_an_entry_that_is_everywhere_is_found_by_every_question(self, store: ReferenceStore) -> None:
        put(store, entry("wide", EVERYWHERE))
        put(store, entry("near", "s3://b/t/"))
        assert names(store.overlapping("cat", ["s3://b/t/"])) == {"wide", "near"}
        assert names(store.overlapping("cat", [])) == {"wide"}
        put(store, entry("wide", "s3://c/"))
        assert names(store.overlapping("cat", ["s3://b/t/"])) == {"near"}

    def test_a_question_for_a_place_that_no_bucket_can_have_finds_what_is_everywhere(
        self, store: ReferenceStore
    ) -> None:
        put(store, entry("wide", EVERYWHERE))
        asked = [f"s3://{'b' * 3000}/t/", f"s3://b/{'k' * 3000}/"]
        assert names(store.overlapping("cat", asked)) == {"wide"}

    def test_what_cannot_be_listed_is_recorded_until_it_is_forgotten(self, store: ReferenceStore) -> None:
        for unlisted in (WIDE, NARROW, WIDE):
            store.put_unlisted(unlisted)
        store.put_unlisted(Blocking(Subject("other"), "X: no", NOW))
        assert set(store.unlisted("cat")) == {WIDE, NARROW}
        store.remove_unlisted(WIDE.subject)
        store.remove_unlisted(WIDE.subject)
        assert store.unlisted("cat") == [NARROW]

    def test_an_exemption_comes_back_whole_and_replaces_an_earlier_one(self, store: ReferenceStore) -> None:
        first = Exemption.of(TABLE, why="x" * 2_000, by="me", now=NOW)
        assert len(first.why) == LONGEST_REASON
        second = Exemption.of(TABLE, why="known", by="you", now=NOW + timedelta(days=1))
        of_list = Exemption.of(NARROW, why="known", by="you", now=NOW)
        for exemption in (first, second, of_list):
            store.put_exemption(exemption)
        assert set(store.exemptions("cat")) == {second, of_list}
        assert second.covers(TABLE, NOW)
        assert not second.covers(TABLE, second.until)
        assert not second.covers(replace(TABLE, metadata_location="s3://b/later.json"), NOW)
        assert not second.covers(replace(TABLE, table_uuid="another"), NOW)
        store.remove_exemption(second.subject)
        assert store.exemptions("cat") == [of_list]

    def test_an_exemption_of_files_outlives_commits_while_no_other_file_is_unreadable(
        self, store: ReferenceStore
    ) -> None:
        first, second = b"1" * DIGEST_BYTES, b"2" * DIGEST_BYTES
        problem: dict[str, Any] = {"problem": "X: no", "problem_location": "s3://b/t2.json", "problem_since": NOW}
        put(store, entry("t", "s3://b/t/", **problem, unread=frozenset({first, second})))
        (blocking,) = blocking_of(store, "cat")
        store.put_exemption(Exemption.of(blocking, why="known", by="me", now=NOW))
        (exemption,) = store.exemptions("cat")
        later = replace(blocking, metadata_location="s3://b/later.json")
        assert exemption.covers(later, NOW)
        assert exemption.covers(replace(later, unread=frozenset({second})), NOW)
        assert not exemption.covers(replace(blocking, unread=frozenset({first, second, b"3" * DIGEST_BYTES})), NOW)
        assert not exemption.covers(replace(blocking, unread=None), NOW)
        assert not exemption.covers(replace(later, table_uuid="another"), NOW)
        assert not exemption.covers(later, exemption.until)

    def test_held_purges_are_freed_when_nothing_blocks_them_any_more(self, store: ReferenceStore) -> None:
        problem: dict[str, Any] = {"problem": "X: no", "problem_location": "s3://b/t2.json", "problem_since": NOW}
        put(store, entry("t", "s3://b/t/", **problem, unanswered=(7, 8, 9)))
        store.put_unlisted(NARROW)
        of_table, of_list = HeldPurge("one", TABLE.subject), HeldPurge("two", NARROW.subject)
        for purge in (of_table, of_list, of_table):
            store.put_held(purge)
        assert set(store.held("cat")) == {of_table, of_list}
        assert freed(store, "cat", NOW) == []
        (blocking,) = [blocker for blocker in blocking_of(store, "cat") if blocker.subject.name]
        assert not blocking.narrow
        store.put_exemption(Exemption.of(blocking, why="known", by="me", now=NOW))
        assert freed(store, "cat", NOW) == [of_table]
        assert freed(store, "cat", NOW + timedelta(days=30)) == []
        store.remove_unlisted(NARROW.subject)
        assert set(freed(store, "cat", NOW)) == {of_table, of_list}
        store.remove_held(of_table)
        assert store.held("cat") == [of_list]

    def test_a_problem_at_the_metadata_that_was_read_to_its_end_concerns_only_what_overlaps(
        self, store: ReferenceStore
    ) -> None:
        put(store, entry("t", "s3://b/t/", problem="X: no", problem_location="s3://b/t.json", problem_since=NOW))
        (unreadable,) = store.unreadable("cat")
        assert unreadable.is_complete
        assert unreadable.problem_since == NOW
        put(store, entry("t", "s3://b/t/", problem="X: no"))
        (unreadable,) = store.unreadable("cat")
        assert not unreadable.is_complete

    def test_tables_of_other_formats_are_recorded_with_their_area(self, store: ReferenceStore) -> None:
        first, second = LocatedTable(TABLE.subject, "s3://b/one/"), LocatedTable(TABLE.subject, "s3://b/two/")
        other = LocatedTable(Subject("cat", ("ns",), "u"), "s3://b/u/")
        for table in (first, second, other):
            store.put_located(table)
        assert set(store.located("cat")) == {second, other}
        store.remove_located(second)
        store.remove_located(second)
        assert store.located("cat") == [other]
