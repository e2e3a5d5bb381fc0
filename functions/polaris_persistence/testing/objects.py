"""What every persistence backend promises about objects; some cases have the names of those of Polaris' suite."""

import time
from dataclasses import replace
from typing import Final

import pytest

from polaris_persistence.backends.base import (
    MAX_ID,
    MAX_PARTS,
    PART_BYTES,
    Backend,
    Locator,
    ObjectKey,
    Refused,
    Segment,
    StoredObject,
)
from polaris_persistence.errors import ObjectTooLarge
from polaris_persistence.testing.rows import Check, all_rows, huge, locator, obj


def objs(backend: Backend) -> None:
    stored = [obj(f"v{number}".encode()) for number in range(250)] + [obj(b""), obj(realm="", type_="a/b")]
    backend.put_many(stored)
    backend.put_many(stored)
    missing = ObjectKey("r", "c", "thing", MAX_ID)
    wanted = [locator(item) for item in stored] + [Locator(missing)]
    expected = {item.key: item for item in stored}
    assert backend.fetch_many(wanted) == expected
    assert backend.fetch_many(wanted, consistent=False) == expected


def derived_objects_share_an_id(backend: Backend) -> None:
    table = obj(b"table", type_="table")
    contents = StoredObject(replace(table.key, type="contents"), b"contents", 5)
    other = StoredObject(replace(table.key, catalog="c2"), b"other", 6)
    backend.put_many([table, contents, other])
    assert backend.fetch_many([locator(table)]) == {table.key: table}
    assert backend.fetch_many([locator(contents)]) == {contents.key: contents}


def empty_batches(backend: Backend) -> None:
    backend.put_many([])
    backend.delete_many([])
    assert backend.fetch_many([]) == {}
    assert all_rows(backend) == []


def duplicates_in_a_batch(backend: Backend) -> None:
    first, second = obj(b"1"), obj(b"2")
    backend.put_many([first, second, first])
    assert backend.fetch_many([locator(first), locator(first), Locator(first.key, 3)]) == {first.key: first}
    with pytest.raises(ValueError, match="two different objects"):
        backend.put_many([first, replace(first, value=b"other")])
    assert backend.fetch_many([locator(first)]) == {first.key: first}
    backend.delete_many([locator(first), locator(second), locator(first)])
    assert all_rows(backend) == []


def huge_object(backend: Backend) -> None:
    sizes = [PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, 3 * PART_BYTES + 17]
    stored = [huge(size) for size in sizes]
    backend.put_many(stored)
    for item in stored:
        assert backend.fetch_many([locator(item)]) == {item.key: item}
    assert [locator(item).parts for item in stored] == [1, 1, 2, 4]
    with pytest.raises(ObjectTooLarge):
        backend.put_many([obj(bytes(PART_BYTES * MAX_PARTS + 1))])


def fetch_many_huge_objects_with_wrong_part_hints(backend: Backend) -> None:
    stored = [huge(PART_BYTES * parts - 5) for parts in (1, 2, 3)] + [obj(b"small")]
    backend.put_many(stored)
    for hint in (1, 2, 3, 7, 10**9):
        for consistent in (True, False):
            found = backend.fetch_many([Locator(item.key, hint) for item in stored], consistent=consistent)
            assert found == {item.key: item for item in stored}


def more_than_one_answer_holds(backend: Backend) -> None:
    stored = [huge(PART_BYTES * 4 - number) for number in range(14)]
    assert sum(len(item.value) for item in stored) > 16 * 2**20
    backend.put_many(stored)
    assert backend.fetch_many([locator(item) for item in stored]) == {item.key: item for item in stored}


def conditional_objects(backend: Backend) -> None:
    first = obj(b"1", token="t1")
    second, third = replace(first, value=b"2", token="t2"), replace(first, value=b"3", token="t3")
    assert backend.update(second, expected="t1") == Refused(None)
    assert backend.delete(first.key, expected="t1") == Refused(None)
    assert backend.insert(first) is None
    assert backend.insert(second) == Refused(first)
    assert backend.update(second, expected="t1") is None
    assert backend.update(third, expected="t1") == Refused(second)
    assert backend.delete(first.key, expected="t1") == Refused(second)
    assert backend.fetch_many([locator(first)]) == {first.key: second}
    assert backend.delete(first.key, expected="t2") is None
    assert backend.fetch_many([locator(first)]) == {}


def conditional_objects_fit_one_row(backend: Backend) -> None:
    first = obj(b"1", token="t1")
    backend.insert(first)
    large = replace(first, value=bytes(PART_BYTES + 1), token="t2")
    with pytest.raises(ObjectTooLarge):
        backend.update(large, expected="t1")
    with pytest.raises(ObjectTooLarge):
        backend.insert(huge(PART_BYTES + 1, token="t"))
    largest = replace(first, value=bytes(PART_BYTES), token="t2")
    assert backend.update(largest, expected="t1") is None
    assert backend.fetch_many([locator(first)]) == {first.key: largest}


def condition_on_an_immutable_object_is_refused(backend: Backend) -> None:
    small, large = obj(b"1"), huge(PART_BYTES * 2)
    backend.put_many([small, large])
    for stored in (small, large):
        rival = replace(stored, value=b"x", token="t")
        assert backend.insert(rival) == Refused(stored)
        assert backend.update(rival, expected="t") == Refused(stored)
        assert backend.delete(stored.key, expected="t") == Refused(stored)
    assert backend.fetch_many([locator(small), locator(large)]) == {small.key: small, large.key: large}


def backend_scan(backend: Backend) -> None:
    stored = [obj() for _ in range(30)] + [obj(token="t"), huge(PART_BYTES * 2), obj(realm="r2"), obj(realm="r/c")]
    backend.put_many(stored)
    rows = all_rows(backend)
    assert {row.key: (row.parts, row.created_at, row.token) for row in rows} == {
        item.key: (locator(item).parts, item.created_at, item.token) for item in stored
    }
    assert {row.key for row in all_rows(backend, realm="r")} == {item.key for item in stored if item.key.realm == "r"}
    assert all_rows(backend, realm="absent") == []
    assert {row.key for row in backend.scan(limit=1_000).rows} == {item.key for item in stored}


def segments_are_disjoint_and_complete(backend: Backend) -> None:
    stored = [obj() for _ in range(60)] + [huge(PART_BYTES * 2)]
    backend.put_many(stored)
    for count in (1, 2, 5):
        found: list[set[ObjectKey]] = []
        for number in range(count):
            rows, after = set(), None
            while True:
                page = backend.scan(after=after, limit=7, segment=Segment(number, count))
                rows |= {row.key for row in page.rows}
                after = page.after
                if after is None:
                    break
            found.append(rows)
        assert sum(map(len, found)) == len(set().union(*found)) == len(stored)


def the_store_has_a_clock_of_its_own(backend: Backend) -> None:
    day = 86_400 * 10**6
    now = backend.time()
    assert abs(now - time.time_ns() // 1_000) < day
    estimated = backend.estimated_time()
    assert estimated is not None
    assert abs(estimated - now) < day


def backend_bulk_deletions(backend: Backend) -> None:
    doomed = [obj() for _ in range(60)] + [huge(PART_BYTES * 3)]
    kept = [obj(), huge(PART_BYTES * 2)]
    backend.put_many(doomed + kept)
    backend.delete_many([locator(item) for item in doomed])
    backend.delete_many([locator(item) for item in doomed])
    assert {row.key for row in all_rows(backend)} == {item.key for item in kept}
    assert backend.fetch_many([locator(item) for item in doomed + kept]) == {item.key: item for item in kept}


CHECKS: Final[tuple[Check, ...]] = (
    objs,
    derived_objects_share_an_id,
    empty_batches,
    duplicates_in_a_batch,
    huge_object,
    fetch_many_huge_objects_with_wrong_part_hints,
    more_than_one_answer_holds,
    conditional_objects,
    conditional_objects_fit_one_row,
    condition_on_an_immutable_object_is_refused,
    backend_scan,
    segments_are_disjoint_and_complete,
    the_store_has_a_clock_of_its_own,
    backend_bulk_deletions,
)
