"""Tables that no catalog lists are recognized by their metadata files, in every spelling and within bounds."""

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from delegation.removal.foreign.metadata import HEAD, ReadBounds, signs
from delegation.removal.foreign.tables import ForeignTable, FoundForeign, OwnTable, find_foreign
from delegation.storage.listing.model import ListedObject
from delegation.storage.locations import ObjectLocation, uri_of
from delegation.storage.memory import MemoryObjectStore

OWN = "00000000-0000-4000-8000-000000000001"
OTHER = "00000000-0000-4000-8000-000000000002"
ROOT = "s3://lake/wh/t/"


@dataclass
class Place:
    """A location whose table has `chain` as its own metadata files, listed as a removal lists it."""

    store: MemoryObjectStore = field(default_factory=lambda: MemoryObjectStore(clock=lambda: 1_000.0))
    chain: list[str] = field(default_factory=list)

    def put(self, key: str, data: bytes = b"x", at: int = 10) -> str:
        self.store.put(ObjectLocation("lake", f"wh/t/{key}"), data)
        self.store.modified["lake", f"wh/t/{key}"] = at
        return f"{ROOT}{key}"

    def metadata(self, key: str, uuid: str | None, *log: str, at: int = 10, **more: Any) -> str:
        return self.put(key, document(uuid, *log, **more), at)

    def own(self, key: str, *log: str) -> str:
        self.chain.append(self.metadata(key, OWN, *log))
        return self.chain[-1]

    def signs(self) -> list[Any]:
        return signs("s3://lake/", "wh/t/", self.store.page("lake", "wh/t/").objects)

    def find(self, **bounds: int) -> FoundForeign:
        self.store.faults.names.clear()
        own = OwnTable(OWN, frozenset(self.chain), frozenset({f"{ROOT}metadata/"}), young_from=900)
        return find_foreign(ROOT, self.signs(), own, self.store, lambda: None, bounds=ReadBounds(**bounds))

    def table(self, **bounds: int) -> ForeignTable:
        [found] = self.find(**bounds).tables
        return found


def document(uuid: str | None, *log: str, **more: Any) -> bytes:
    found = {
        "format-version": 2,
        "table-uuid": uuid,
        "location": "s3://lake/wh/t",
        "last-updated-ms": 1,
        **more,
        "metadata-log": [{"timestamp-ms": 1, "metadata-file": one} for one in log],
    }
    return json.dumps({name: value for name, value in found.items() if value is not None}).encode()


def heads(table: ForeignTable) -> list[str]:
    return sorted(one.path.removeprefix(ROOT) for one in table.heads)


def versions(place: Place, name: str, count: int) -> list[str]:
    """Write so many versions of a table below sub/, each of which names those before; return their paths."""
    log: list[str] = []
    for number in range(1, count + 1):
        log.append(place.metadata(f"sub/metadata/{name.format(number)}.metadata.json", OTHER, *log))
    return log


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        (["data/a.parquet", "metadata/m.avro", "_delta_logs/a", "_delta_log"], []),
        (["metadata/v1.metadata.json", "a/00001-x.gz.metadata.json"], None),
        (["v1.metadata.json.gz", "x/version-hint.text"], None),
        (["x/_delta_log/0.json", "x/_delta_log/v1.metadata.json", ".hoodie/a/b"], ["x/_delta_log/", ".hoodie/"]),
    ],
)
def test_signs_of_tables_are_found_in_a_page_and_nothing_else(keys: list[str], found: list[str] | None) -> None:
    """All of the keys are, where it is None."""
    root = "_delta_log/t/"
    page = [ListedObject(f"{root}{key}", 1, "e", 1) for key in keys]
    paths = [one.path for one in signs(uri_of("b", ""), root, page)]
    assert paths == [f"s3://b/{root}{key}" for key in (keys if found is None else found)]


@pytest.mark.parametrize(
    "name",
    ["v{}.metadata.json", "{:05d}-ab.metadata.json", "{:05d}-ab.gz.metadata.json", "v{}.metadata.json.gz"],
)
def test_the_newest_three_versions_of_another_uuid_are_read_in_every_spelling(name: str) -> None:
    place = Place()
    place.own("metadata/00001-x.metadata.json")
    pack: Callable[[bytes], bytes] = gzip.compress if "gz" in name else bytes
    log: list[str] = []
    for number in range(1, 13):
        log.append(place.put(f"sub/metadata/{name.format(number)}", pack(document(OTHER, *log))))
    found = place.table()
    assert (found.uuid, found.place, found.why) == (OTHER, f"{ROOT}sub/", "")
    assert heads(found) == sorted(f"sub/metadata/{name.format(number)}" for number in (10, 11, 12))
    assert len(found.files) == 12
    # Of the twelve the first six by version are read, and of those that the newest names none.
    assert place.store.faults.names.count("part") == 6


def test_versions_that_writers_wrote_at_once_are_one_of_the_newest_three() -> None:
    place = Place()
    base = [place.metadata(f"sub/metadata/0000{number}-x.metadata.json", OTHER) for number in (1, 2)]
    for writer in "abcd":
        place.metadata(f"sub/metadata/00003-{writer}.metadata.json", OTHER, *base)
    found = place.table()
    assert len(heads(found)) == 6
    assert {one.path for one in found.heads} >= set(base)


def test_a_second_chain_of_a_foreign_table_is_read_too() -> None:
    """It was registered again at its second version, and both registrations moved on."""
    place = Place()
    log = versions(place, "0000{}-a", 9)
    place.metadata("sub/metadata/00003-b.metadata.json", OTHER, *log[:2])
    assert heads(place.table()) == [f"sub/metadata/0000{one}.metadata.json" for one in ("3-b", "7-a", "8-a", "9-a")]


def test_a_version_hint_names_a_version_that_is_read_and_stays() -> None:
    place = Place()
    versions(place, "v{}", 7)
    hint = place.put("sub/metadata/version-hint.text", b"2\n")
    found = place.table()
    assert heads(found) == [f"sub/metadata/v{number}.metadata.json" for number in (2, 5, 6, 7)]
    assert hint in {one.path for one in found.files}


def test_a_dropped_table_whose_place_was_used_again_is_another_table_in_the_same_folder() -> None:
    place = Place()
    old = place.metadata("metadata/00001-old.metadata.json", OTHER)
    place.own("metadata/00000-x.metadata.json")
    found = place.table()
    assert (found.uuid, found.place) == (OTHER, ROOT)
    assert [one.path for one in found.heads] == [old]


@pytest.mark.parametrize("root", ["_delta_log", ".hoodie"])
def test_a_root_of_another_format_stays_whole_and_the_own_root_is_named(root: str) -> None:
    place = Place()
    place.own("metadata/00001-x.metadata.json")
    place.put(f"sub/{root}/00000.json")
    found = place.table()
    assert (found.place, found.uuid) == (f"{ROOT}sub/", place.table().uuid)
    assert found.why.startswith("it is a table of ")
    place.put(f"{root}/00000.json")
    assert place.find().uniform in ("Delta Lake", "Apache Hudi")


@pytest.mark.parametrize("data", [b"", b"x", b"{}", b"[]", b'{"table-uuid": 3}', b"\x1f\x8bx", document(None)])
def test_an_unreadable_metadata_file_keeps_the_folder_above_or_itself_in_the_own_folder(data: bytes) -> None:
    place = Place()
    place.put("sub/metadata/00001-x.metadata.json", data)
    found = place.table()
    assert (found.place, found.heads) == (f"{ROOT}sub/", ())
    assert "cannot be read" in found.why
    here = Place()
    mine = here.put("metadata/00001-x.metadata.json", data)
    here.put("metadata/00002-young.metadata.json", data, at=950)
    assert here.find() == FoundForeign(unreadable=(mine,))


def test_a_file_of_another_uuid_that_cannot_be_read_keeps_all_at_its_place() -> None:
    place = Place()
    place.put("sub/metadata/00001-x.metadata.json", document(OTHER)[:-1] + b', "x": ' + b"[" * HEAD)
    found = place.table()
    assert (found.uuid, found.place) == (OTHER, f"{ROOT}sub/")
    assert "cannot be read" in found.why


def test_lost_commits_and_commits_in_flight_are_no_finding() -> None:
    """A busy table: at each version several writers lost, and thousands of such files cost one request each."""
    place, log = Place(), list[str]()
    for number in range(1, 30):
        for writer in "ab":
            place.metadata(f"metadata/{number:05d}-{writer}.metadata.json", OWN, *log, at=990 if number > 27 else 10)
        log.append(place.own(f"metadata/{number:05d}-x.metadata.json", *log))
    assert place.find(files=0, size=0, heads=60) == FoundForeign()
    assert place.store.faults.names.count("part") == 58
    assert "read" not in place.store.faults.names
    assert place.find(heads=40) == FoundForeign(), "more than are read"


@pytest.mark.parametrize(
    ("uuid", "more"),
    [(OWN, {}), (None, {"format-version": 1}), (None, {"format-version": 1, "properties": {"x": "y" * 2 * HEAD}})],
    ids=["own uuid", "version 1 without a uuid", "large"],
)
def test_a_fork_is_what_another_file_beside_the_log_names(uuid: str | None, more: dict[str, Any]) -> None:
    """Files of version 1 without a uuid are unreadable elsewhere."""
    place = Place()
    first = place.own("metadata/00001-x.metadata.json")
    place.own("metadata/00002-x.metadata.json", first)
    lost = place.metadata("metadata/00002-lost.metadata.json", uuid, first, **more)
    fork = place.metadata("metadata/00002-fork.metadata.json", uuid, first, **more)
    assert place.find() == FoundForeign()
    tip = place.metadata("metadata/00003-fork.metadata.json", uuid, first, fork.replace("s3:", "s3a:"), **more)
    found = place.table()
    assert (found.uuid, found.place) == (OWN, ROOT)
    assert {one.path for one in found.heads} == {fork, tip}
    assert lost not in {one.path for one in found.files}
    if uuid is None:
        place.metadata("sub/metadata/v1.metadata.json", None, **more)
        assert [one.why for one in place.find().tables if one.place == f"{ROOT}sub/"] != [""]


def test_a_single_version_that_a_commit_by_path_made_is_a_fork() -> None:
    """HadoopTables writes `v3` only once, and its readers take the highest number."""
    place = Place()
    log = [place.own("metadata/v1.metadata.json")]
    log.append(place.own("metadata/v2.metadata.json", *log))
    place.own("metadata/00003-x.metadata.json", *log)
    place.metadata("metadata/00003-lost.metadata.json", OWN, *log)
    place.metadata("metadata/v0.metadata.json", OWN)
    assert place.find() == FoundForeign()
    tip = place.metadata("metadata/v3.metadata.json", OWN, *log)
    assert [one.path for one in place.table().heads] == [tip]


@pytest.mark.parametrize("order", ["iceberg", "other", "gzip"])
def test_the_log_of_a_large_file_is_found_whatever_wrote_it(order: str) -> None:
    place = Place()
    fork = place.metadata("metadata/00002-fork.metadata.json", OWN)
    text = json.loads(document(OWN, fork, properties={"x": "y" * 2 * HEAD}))
    if order == "other":
        text = {"table-uuid": OWN, "metadata-log": text.pop("metadata-log"), **text}
    data = json.dumps(text).encode()
    place.put("metadata/00003-fork.metadata.json", gzip.compress(data) if order == "gzip" else data)
    assert len(place.table().heads) == 2
    assert place.store.faults.names.count("read") == (order == "other")


def test_a_uuid_is_that_of_the_table_and_no_property() -> None:
    place = Place()
    text = {"properties": {"table-uuid": OWN, "x": "y" * 2 * HEAD}, **json.loads(document(OTHER))}
    place.put("sub/metadata/00001-x.metadata.json", json.dumps(text).encode())
    assert place.table().uuid != OWN


@pytest.mark.parametrize("bounds", [{"files": 3}, {"size": 1_000}, {"heads": 5}])
def test_beyond_the_bounds_the_folder_above_stays(bounds: dict[str, int]) -> None:
    place = Place()
    for number in range(1, 30):
        place.metadata(f"sub/metadata/{number:05d}-x.metadata.json", OTHER)
    found = place.find(**bounds)
    assert [one.place for one in found.tables if one.why] == [f"{ROOT}sub/"]
    assert place.store.faults.names.count("part") < 30


def test_files_that_are_gone_by_then_are_no_tables() -> None:
    place = Place()
    place.metadata("sub/metadata/00001-x.metadata.json", OTHER)
    seen = place.signs()
    place.store.objects.clear()
    own = OwnTable(OWN, frozenset(), frozenset(), young_from=900)
    assert find_foreign(ROOT, seen, own, place.store, lambda: None) == FoundForeign(gone=True)
