"""Storage locations that belong to one owner each, in the same commit as the entity."""

import itertools
import random

import pytest

from polaris_persistence.backends.memory import MemoryBackend
from polaris_persistence.catalogs.locations import claim, place_of, release
from polaris_persistence.commits.committer import Committer
from polaris_persistence.commits.directories import entity_committer
from polaris_persistence.commits.entities import EntityChanges, EntityHead
from polaris_persistence.errors import LocationTaken, PersistenceError
from polaris_persistence.index.keys import IndexKey
from tests.kit.errors import coded
from tests.persistence.builders import CountingBackend, Entity, store_on
from tests.persistence.worlds import ENTITY_TYPES, entity_change

IDS = itertools.count(1)


def process_on(backend: MemoryBackend) -> Committer[EntityHead]:
    return entity_committer(store_on(backend, types=ENTITY_TYPES, ids=IDS.__next__), "main")


@pytest.fixture
def backend() -> CountingBackend:
    backend = CountingBackend()
    store_on(backend, types=ENTITY_TYPES, ids=IDS.__next__).create_reference("main")
    return backend


def create(committer: Committer[EntityHead], table: str, location: str) -> None:
    def change(entities: EntityChanges, _attempt: object) -> None:
        claim(entities, location, table)
        entities.put(IndexKey.of("tables", table), Entity(name=table))

    committer.commit(entity_change(change), operation=table)


def drop(committer: Committer[EntityHead], table: str, location: str) -> bool:
    return committer.commit(entity_change(lambda entities, _attempt: release(entities, location, table))).result


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("s3://bucket/a/b", "s3://bucket/a/b"),
        ("s3://bucket/a/b", "s3a://bucket/a/b"),
        ("s3://bucket/a/b", "S3N://Bucket/a/b//"),
        ("s3://bucket/a/b", "s3://bucket/a/b/c/d"),
        ("s3://bucket/a/b", "s3a://bucket/a"),
        ("s3://bucket/a/b", "s3://bucket"),
        ("s3://bucket/a/b", "s3://bucket//"),
        ("s3://bucket/a", "s3://bucket/a//b"),
        ("gs://bucket/a", "gcs://bucket/a/b"),
        ("abfss://c@acc.dfs.core.windows.net/a", "wasbs://c@acc.blob.core.windows.net/a/b"),
        ("file:/tmp/a", "file:///tmp//a/b"),
        ("file:///tmp/x/../a", "file:/tmp/a"),
        ("file:////tmp/a", "file:///tmp/a/b"),
        ("hdfs://namenode:8020/a", "hdfs://NAMENODE:8020/a/b"),
        ("hdfs://namenode:8020/a/b", "hdfs://namenode:8020//a//b/c"),
    ],
)
def test_overlapping_locations_belong_to_one_owner(backend: CountingBackend, one: str, other: str) -> None:
    for first, second in ((one, other), (other, one)):
        committer = process_on(backend)
        create(committer, "t1", first)
        with pytest.raises(LocationTaken, match="'t1'"):
            create(process_on(backend), "t2", second)
        create(process_on(backend), "t1", second)
        assert drop(process_on(backend), "t2", first) is False
        drop(process_on(backend), "t1", second)
        drop(process_on(backend), "t1", first)
        create(process_on(backend), "t2", second)
        drop(process_on(backend), "t2", second)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("s3://bucket/a/b", "s3://bucket/a/bc"),
        ("s3://bucket/a/b", "s3://bucket/A/b"),
        ("s3://bucket/a/b", "s3://bucket/a//b"),
        ("s3://bucket/a", "s3://bucket2/a"),
        ("s3://bucket/a", "gs://bucket/a"),
        ("s3://bucket/a%20b", "s3://bucket/a b"),
        ("abfss://c@acc.dfs.core.windows.net/a", "abfss://d@acc.dfs.core.windows.net/a"),
        ("abfss://c@acc.dfs.core.windows.net/a", "abfss://c@acc.dfs.core.chinacloudapi.cn/a"),
    ],
)
def test_others_do_not_overlap(backend: CountingBackend, one: str, other: str) -> None:
    create(process_on(backend), "t1", one)
    create(process_on(backend), "t2", other)


@pytest.mark.parametrize(
    "location",
    ["", "a/b", "/a/b", "s3:/a", "s3:///a", "s3://b/a/../c", "s3://b/./c", "s3://b/a?x=1", "s3://b/a#f",
     "file:/tmp/a%20b", "abfss://acc.dfs.core.windows.net/a", "abfss://c@localhost/a", "s3://b" + "/a" * 101,
     "s3://b/" + "x" * 9_000, "s3://b/\ud800"],
)  # fmt: skip
def test_what_is_no_location_is_refused(backend: CountingBackend, location: str) -> None:
    with pytest.raises(PersistenceError, check=coded("INVALID_LOCATION")):
        create(process_on(backend), "t1", location)


def test_of_two_at_once_one_wins(backend: CountingBackend) -> None:
    """The claim is in the same compare-and-set as the table."""
    rival = process_on(backend)
    backend.meanwhile["replace_reference"] = [lambda: create(rival, "t1", "s3a://b/x/y")]
    with pytest.raises(LocationTaken):
        create(process_on(backend), "t2", "s3://b/x")
    assert {name for one in rival.log() for name in one.value.operations} == {"t1"}


def test_random_claims_are_those_of_a_model(backend: CountingBackend) -> None:
    """No two owners ever have overlapping locations, and nothing else is refused."""
    draw = random.Random(7)
    claimed: dict[tuple[str, ...], str] = {}
    committer = process_on(backend)
    for _ in range(600):
        segments = [draw.choice("abc") for _ in range(draw.randrange(4))]
        location = f"{draw.choice(['s3', 's3a'])}://b/{'/'.join(segments)}"
        owner, place = draw.choice("pqr"), place_of(location)
        if draw.random() < 0.4:
            assert drop(committer, owner, location) is (claimed.get(place) == owner)
            if claimed.get(place) == owner:
                del claimed[place]
            continue
        taken = any(whose != owner and overlap(place, one) for one, whose in claimed.items())
        try:
            create(committer, owner, location)
        except LocationTaken:
            assert taken
        else:
            assert not taken
            claimed.setdefault(place, owner)


def overlap(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    short = min(len(one), len(other))
    return one[:short] == other[:short]


def test_a_claim_reads_few_rows(backend: CountingBackend) -> None:
    """By their keys: the path's segments are looked up, and the rest of the claims is not read."""
    committer = process_on(backend)
    for number in range(50):
        create(committer, f"t{number}", f"s3://b/warehouse/ns{number % 5}/t{number}")
    fresh = process_on(backend)
    backend.calls.clear()
    create(fresh, "new", "s3://b/warehouse/ns1/new")
    assert backend.calls.count("fetch_many") <= 3
