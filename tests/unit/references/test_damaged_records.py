"""Damaged records of what blocks or protects: they stop no pass, and what they may protect stays until it is known."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import pytest

from delegation.identifiers import TableIdentifier
from delegation.polaris.answers import PolarisUnexpectedAnswer
from delegation.references.blocking import UNKNOWN_AREA, Blocking, LocatedTable, Subject
from delegation.references.errors import ReferencesError
from delegation.references.model import LostRefs, PassNeeded, TableEntry
from delegation.references.store import ReferenceStore, ReferenceTable
from polaris_common.dynamodb import to_item
from tests.contract.task_tables import moto
from tests.contract.test_reference_store import reference_store
from tests.kit.dynamodb import MemoryDynamoDb
from tests.kit.tasks.builders import HOUR
from tests.unit.references.test_refresh import Scene
from tests.unit.upkeep.health.test_refresh import NOW

BAD: list[Any] = [None, 7, "x", ["x"], [7], {"a": 1}, "2026-11-22T12:00:00"]


@dataclass
class StoredIndex:
    """A reference index in a table, and what damages its records."""

    client: Any
    store: ReferenceStore

    def damage(self, pk: str, name: str, value: Any, sk: str = "") -> None:
        for item in self.client.scan(TableName=self.store._items.table)["Items"]:
            if item["pk"]["S"] == pk and item["sk"]["S"].startswith(sk):
                item.pop(name, None)
                changed = {**item, **({} if value is None else to_item({name: value}))}
                self.client.put_item(TableName=self.store._items.table, Item=changed)

    def count(self, pk: str) -> int:
        return sum(item["pk"]["S"] == pk for item in self.client.scan(TableName=self.store._items.table)["Items"])


@pytest.fixture
def stored(request: pytest.FixtureRequest) -> Iterator[StoredIndex]:
    """An index in memory; in moto for a test that asks for it by an indirect parameter."""
    if getattr(request, "param", "memory") == "moto":
        with moto() as client:
            yield StoredIndex(client, reference_store(client))
    else:
        memory = MemoryDynamoDb("pk", "sk")
        yield StoredIndex(memory, ReferenceStore(ReferenceTable(memory), "references"))


ATTRIBUTES = [
    "namespace", "name", "table_uuid", "areas", "seen", "revision", "problem", "absent", "problem_since", "unanswered",
    "displaced",
]  # fmt: skip


@pytest.mark.parametrize(
    ("stored", "name", "value"),
    [
        *(("memory", name, value) for name in ATTRIBUTES for value in [*BAD, -1, 0, Decimal("1.5"), 10**30]),
        *(("moto", name, 7) for name in ATTRIBUTES),
    ],
    indirect=["stored"],
    ids=str,
)
def test_a_damaged_entry_stops_no_pass_and_is_found_and_replaced(stored: StoredIndex, name: str, value: Any) -> None:
    scene = Scene(store=stored.store)  # type: ignore[arg-type]
    scene.create(("a", "b", "gone"))
    scene.refresher().ensure("cat", PassNeeded(0))
    stored.damage("catalog:cat", name, value, sk="table:")
    moved = scene.one.create("d")
    del scene.one.pointers["gone"]
    assert {"ns.a", "ns.b"} <= scene.concerned("s3://lake/wh/")
    for number in range(1, 4):
        scene.now += 2 * HOUR
        assert scene.refresher().ensure("cat", PassNeeded(number)).complete == number + 1
        assert {"ns.a", "ns.b", "ns.d"} <= scene.concerned("s3://lake/wh/")
    assert {one.identifier.name for one in stored.store.entries("cat")} == {"a", "b", "d"}
    assert all(one.problem is None and one.table_uuid for one in stored.store.entries("cat"))
    assert scene.concerned(f"{moved.location()}/") == {"ns.d"}


@pytest.mark.parametrize("value", [*BAD, -1, 0, Decimal("1.5"), 10**30], ids=str)
@pytest.mark.parametrize("name", ["revision", "number", "complete", "checked", "completed_at", "position", "owner"])
def test_a_damaged_record_of_the_passes_is_replaced_by_the_next(stored: StoredIndex, name: str, value: Any) -> None:
    scene = Scene(store=stored.store)  # type: ignore[arg-type]
    scene.one.create("a")
    scene.refresher().ensure("cat", PassNeeded(0))
    stored.damage("catalog:cat", name, value, sk="pass")
    scene.now += 2 * HOUR
    scene.refresher().ensure_fresh("cat", HOUR)
    assert stored.store.pass_of("cat").completed_at == scene.now


@pytest.mark.parametrize("value", BAD, ids=str)
@pytest.mark.parametrize("name", ["namespace", "name"])
def test_an_area_whose_name_is_damaged_is_still_that_of_its_table(stored: StoredIndex, name: str, value: Any) -> None:
    scene = Scene(store=stored.store)  # type: ignore[arg-type]
    scene.one.create("a")
    scene.refresher().ensure("cat", PassNeeded(0))
    stored.damage("area:cat:lake", name, value)
    assert scene.concerned("s3://lake/wh/a/") == {"ns.a"}
    stored.damage("catalog:cat", name, value, sk="table:")
    with pytest.raises(ReferencesError, match="names no table"):
        scene.concerned("s3://lake/wh/a/")
    scene.now += 2 * HOUR
    scene.refresher().ensure_fresh("cat", HOUR)  # writes both again
    assert scene.concerned("s3://lake/wh/a/") == {"ns.a"}


def test_a_damaged_revision_begins_again_above_those_of_its_areas(stored: StoredIndex) -> None:
    one = TableEntry(TableIdentifier("cat", ("ns",), "t"), "uuid", "s3://lake/m", ("s3://lake/a/", "s3://lake/b/"))
    for revision in range(3):
        stored.store.put(replace(one, revision=revision))
    stored.damage("catalog:cat", "revision", None, sk="table:")
    [damaged] = stored.store.entries("cat")
    stored.store.put(replace(one, areas=("s3://lake/a/",), revision=damaged.revision))
    assert stored.store.overlapping("cat", ["s3://lake/b/"]) == frozenset()
    assert stored.store.overlapping("cat", ["s3://lake/a/"]) == {one.identifier}


UNLISTED = Blocking(Subject("cat", ("ns", "inner")), "NO: x", NOW, unanswered=(3,))


@pytest.mark.parametrize("value", BAD, ids=str)
@pytest.mark.parametrize("name", ["namespace", "name", "problem", "since", "unanswered"])
def test_a_damaged_record_of_what_cannot_be_listed_blocks_or_says_the_same(
    stored: StoredIndex, name: str, value: Any
) -> None:
    stored.store.put_unlisted(UNLISTED)
    stored.damage("unlisted:cat", name, value)
    [found] = stored.store.unlisted("cat")
    assert not found.is_doubted or found.subject == UNLISTED.subject


@pytest.mark.parametrize("name", ["namespace", "problem", "since"])
@pytest.mark.parametrize("is_listed", [True, False])
def test_the_next_pass_stores_or_removes_it(stored: StoredIndex, name: str, is_listed: bool) -> None:
    scene = Scene(store=stored.store)  # type: ignore[arg-type]
    scene.one.create("a")
    scene.listing.unlisted.add(("ns", "inner"))
    scene.refresher().ensure("cat", PassNeeded(0))
    [before] = stored.store.unlisted("cat")
    stored.damage("unlisted:cat", name, 7)
    [damaged] = stored.store.unlisted("cat")
    assert not damaged.is_doubted
    if is_listed:
        scene.listing.unlisted.clear()
    assert scene.refresher().ensure("cat", PassNeeded(1)).complete == 2
    found = stored.store.unlisted("cat")
    assert [one.subject for one in found] == ([] if is_listed else [before.subject])
    assert stored.count("unlisted:cat") == len(found)


LOCATED = LocatedTable(Subject("cat", ("ns",), "delta"), "s3://lake/delta/")


@pytest.mark.parametrize("value", BAD, ids=str)
@pytest.mark.parametrize("name", ["namespace", "name", "area"])
def test_a_damaged_table_of_another_format_protects_its_area_or_blocks(
    stored: StoredIndex, name: str, value: Any
) -> None:
    stored.store.put_located(LOCATED)
    stored.damage("located:cat", name, value)
    [found] = stored.store.located("cat")
    assert found.area == LOCATED.area or (found.area == UNKNOWN_AREA and found.problem)
    stored.store.remove_located(found)
    assert stored.store.located("cat") == []


LOST = LostRefs(TableIdentifier("cat", ("ns",), "t"), "uuid", "s3://lake/m", "copy", {"b": 1}, 1, "id", NOW, NOW)


@pytest.mark.parametrize("value", BAD, ids=str)
@pytest.mark.parametrize("name", ["namespace", "table_uuid", "metadata_file", "refs", "count", "at", "until", "areas"])
def test_damaged_lost_refs_are_kept_until_they_are_dismissed_and_are_anywhere(
    stored: StoredIndex, name: str, value: Any
) -> None:
    stored.store.put_lost_refs(LOST)
    stored.damage("lost-refs:cat", name, value)
    [found] = stored.store.lost_refs("cat")
    assert found.key == LOST.key
    if found.record is not None:
        assert (found.areas, found.until.year, found.copy) == (None, 9999, f"lost-refs/{LOST.key}.metadata.json")
    stored.store.remove_lost_refs(found)
    assert stored.store.lost_refs("cat") == []


def test_a_record_that_was_stored_again_is_not_removed_as_the_damaged_one(stored: StoredIndex) -> None:
    stored.store.put_located(LOCATED)
    stored.damage("located:cat", "namespace", 7)
    [damaged] = stored.store.located("cat")
    stored.store.put_located(LOCATED)
    stored.store.remove_located(damaged)
    assert stored.store.located("cat") == [LOCATED]


def test_an_entry_without_a_usable_name_holds_its_namespace_and_all_others_are_visited() -> None:
    scene = Scene()
    scene.one.create("t")
    scene.two.create("u")
    tables, namespaces = scene.listing.list_tables, scene.listing.list_namespaces

    def bad_last(listing: Any) -> Any:
        def listed(*given: Any) -> Any:
            yield from listing(*given)
            raise PolarisUnexpectedAnswer("no request can name the table '..'", status=200)

        return listed

    scene.listing.list_tables = bad_last(tables)  # type: ignore[method-assign]
    scene.listing.list_namespaces = bad_last(namespaces)  # type: ignore[method-assign]
    scene.refresher().ensure_fresh("cat", HOUR)
    assert {one.identifier.name for one in scene.store.entries("cat")} == {"t", "u"}
    held = {one.subject.namespace for one in scene.store.unlisted("cat")}
    assert held == {(), ("ns",), ("ns", "inner")}
    scene.listing.list_tables, scene.listing.list_namespaces = tables, namespaces  # type: ignore[method-assign]
    scene.now += 2 * HOUR
    scene.refresher().ensure_fresh("cat", HOUR)
    assert scene.store.unlisted("cat") == []
