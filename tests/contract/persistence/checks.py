"""The checks of every persistence backend, with the names of the cases in the suite of Polaris where there is one."""

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from delegation.persistence.backends.base import (
    MAX_ID,
    MAX_PARTS,
    PART_BYTES,
    RECENT_HEADS,
    Backend,
    HeadCopy,
    Locator,
    ObjectCopy,
    ObjectKey,
    ReferenceKey,
    Refused,
    Segment,
    StoredObject,
)
from delegation.persistence.errors import ObjectTooLarge
from tests.contract.persistence.backends import all_rows, locator, obj, ref

Check = Callable[[Backend], None]


def huge(bytes_: int, **more: str) -> StoredObject:
    return obj(random.Random(bytes_).randbytes(bytes_), **more)


def reference_lifecycle(backend: Backend) -> None:
    first = ref(1)
    assert backend.read_reference(first.key) is None
    assert backend.create_reference(first) is None
    assert backend.create_reference(ref(9)) == Refused(first)
    second = first.moved_to(2)
    assert backend.replace_reference(second, expected=first) is None
    assert backend.replace_reference(first.moved_to(3), expected=first) == Refused(second)
    assert backend.read_reference(first.key) == second
    backend.delete_reference(first.key)
    backend.delete_reference(first.key)
    assert backend.read_reference(first.key) is None
    assert backend.replace_reference(second.moved_to(4), expected=second) == Refused(None)


def reference_without_initial_pointer(backend: Backend) -> None:
    empty = ref()
    assert backend.create_reference(empty) is None
    stored = backend.read_reference(empty.key)
    assert stored == empty
    assert stored.head is None
    assert backend.replace_reference(empty.moved_to(MAX_ID), expected=stored) is None
    assert backend.read_reference(empty.key).head == MAX_ID


def reference_recent_pointers(backend: Backend) -> None:
    current = ref()
    backend.create_reference(current)
    for head in range(1, RECENT_HEADS + 6):
        moved = current.moved_to(head)
        assert backend.replace_reference(moved, expected=current) is None
        current = moved
    stored = backend.read_reference(current.key)
    assert stored.heads == tuple(range(RECENT_HEADS + 5, 5, -1))
    assert stored.version == RECENT_HEADS + 5


def reference_moved_back_does_not_admit_a_late_swap(backend: Backend) -> None:
    first = ref(1)
    backend.create_reference(first)
    second = first.moved_to(2)
    backend.replace_reference(second, expected=first)
    back = second.moved_to(1)
    backend.replace_reference(back, expected=second)
    assert backend.replace_reference(first.moved_to(3), expected=first) == Refused(back)


def a_fenced_reference_refuses_swaps_prepared_before(backend: Backend) -> None:
    first = ref(1)
    backend.create_reference(first)
    fenced = first.fenced()
    assert backend.replace_reference(fenced, expected=first) is None
    assert fenced.heads == first.heads
    assert backend.replace_reference(first.moved_to(2), expected=first) == Refused(fenced)
    assert backend.replace_reference(fenced.moved_to(2), expected=fenced) is None


def changes_wait_on_a_reference(backend: Backend) -> None:
    first = ref(1)
    assert backend.add_waiting([5], expected=first) == Refused(None)
    backend.create_reference(first)
    assert backend.add_waiting([MAX_ID, 5], expected=first) is None
    assert backend.add_waiting([5, 7], expected=first) is None
    seen = backend.read_reference(first.key)
    assert (seen, seen.waiting) == (first, (5, 7, MAX_ID))
    assert backend.add_waiting([9], expected=seen) is None
    # One that was added after the read stays.
    moved = seen.moved_to(2, done=[5, 7])
    assert backend.replace_reference(moved, expected=seen) is None
    assert backend.read_reference(first.key).waiting == (9, MAX_ID)
    refused = backend.add_waiting([11], expected=seen)
    assert refused == Refused(moved)
    assert refused.stored.waiting == (9, MAX_ID)
    last = backend.read_reference(first.key)
    assert backend.replace_reference(last.moved_to(3, done=last.waiting), expected=last) is None
    assert backend.read_reference(first.key).waiting == ()


def a_withdrawn_change_cannot_be_combined_any_more(backend: Backend) -> None:
    first = ref(1)
    assert backend.withdraw(first.key, 5) == Refused(None)
    backend.create_reference(first)
    backend.add_waiting([5, 6], expected=first)
    seen = backend.read_reference(first.key)
    assert backend.withdraw(first.key, 5) is None
    assert backend.withdraw(first.key, 5) == Refused(first.fenced())
    assert backend.replace_reference(seen.moved_to(2, done=[5]), expected=seen) == Refused(first.fenced())
    assert backend.read_reference(first.key).waiting == (6,)
    assert backend.add_waiting([5], expected=seen) == Refused(first.fenced())


def a_change_that_nobody_combines_is_withdrawn_at_the_same_version(backend: Backend) -> None:
    first = ref(1)
    backend.create_reference(first)
    backend.add_waiting([5, 6, MAX_ID], expected=first)
    seen = backend.read_reference(first.key)
    assert backend.withdraw(first.key, 5, fenced=False) is None
    refused = backend.withdraw(first.key, 5, fenced=False)
    assert refused == Refused(first)
    assert refused.stored.waiting == (6, MAX_ID)
    # An attempt that began before it is not disturbed, and may settle the withdrawn id too.
    moved = seen.moved_to(2, done=[5, 6])
    assert backend.replace_reference(moved, expected=seen) is None
    stored = backend.read_reference(first.key)
    assert (stored, stored.waiting) == (moved, (MAX_ID,))
    assert backend.withdraw(first.key, MAX_ID, fenced=False) is None
    assert backend.read_reference(first.key).waiting == ()


def a_small_head_is_copied_into_its_reference(backend: Backend) -> None:
    first = ref(1)
    backend.create_reference(first)
    copied = first.moved_to(2, copy=HeadCopy(2, b"head", 77))
    assert backend.replace_reference(copied, expected=first) is None
    stored = backend.read_reference(first.key)
    assert stored.copy == HeadCopy(2, b"head", 77)
    assert backend.replace_reference(stored.fenced(), expected=stored) is None
    assert backend.read_reference(first.key).copy == HeadCopy(2, b"head", 77)
    refused = backend.replace_reference(stored.moved_to(3), expected=stored)
    assert refused.stored.copy == HeadCopy(2, b"head", 77)
    fenced = stored.fenced()
    assert backend.replace_reference(fenced.moved_to(3), expected=fenced) is None
    assert backend.read_reference(first.key).copy is None


def objects_are_copied_into_a_reference(backend: Backend) -> None:
    first = ref(1)
    backend.create_reference(first)
    copies = (ObjectCopy("realm", 7, 77, b"value"), ObjectCopy("a/b", 2**62, 0, b""))
    assert backend.replace_reference(first.moved_to(2, copies=copies), expected=first) is None
    stored = backend.read_reference(first.key)
    assert (stored.copies, stored.copy) == (copies, None)
    assert backend.add_waiting([9], expected=stored) is None
    assert backend.replace_reference(stored.fenced(), expected=stored) is None
    fenced = backend.read_reference(first.key)
    assert (fenced.copies, fenced.waiting) == (copies, (9,))
    assert backend.replace_reference(stored.moved_to(3), expected=stored).stored.copies == copies
    moved = fenced.moved_to(3, done=[9], copy=HeadCopy(3, b"head", 1))
    assert backend.replace_reference(moved, expected=fenced) is None
    found = backend.read_reference(first.key)
    assert (found.copies, found.waiting, found.copy) == ((), (), HeadCopy(3, b"head", 1))


def reference_with_initial_pointer(backend: Backend) -> None:
    assert backend.create_reference(ref(5)) is None
    assert backend.read_reference(ref().key).head == 5


def reference_names(backend: Backend) -> None:
    names = ["main", "a/b", "a%2Fb", "", "ü/✓", " "]
    for number, name in enumerate(names):
        assert backend.create_reference(ref(number + 1, name=name)) is None
    backend.create_reference(ref(99, realm="r/c"))
    assert {one.key.name: one.head for one in backend.references(realm="r")} == {
        name: number + 1 for number, name in enumerate(names)
    }
    assert len(list(backend.references())) == len(names) + 1


def objs(backend: Backend) -> None:
    stored = [obj(f"v{number}".encode()) for number in range(250)] + [obj(b""), obj(realm="", type_="a/b")]
    backend.put_many(stored)
    backend.put_many(stored)
    missing = ObjectKey("r", "c", "thing", MAX_ID)
    wanted = [locator(one) for one in stored] + [Locator(missing)]
    expected = {one.key: one for one in stored}
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
    one, two = obj(b"1"), obj(b"2")
    backend.put_many([one, two, one])
    assert backend.fetch_many([locator(one), locator(one), Locator(one.key, 3)]) == {one.key: one}
    with pytest.raises(ValueError, match="two different objects"):
        backend.put_many([one, replace(one, value=b"other")])
    assert backend.fetch_many([locator(one)]) == {one.key: one}
    backend.delete_many([locator(one), locator(two), locator(one)])
    assert all_rows(backend) == []


def huge_object(backend: Backend) -> None:
    sizes = [PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, 3 * PART_BYTES + 17]
    stored = [huge(size) for size in sizes]
    backend.put_many(stored)
    for one in stored:
        assert backend.fetch_many([locator(one)]) == {one.key: one}
    assert [locator(one).parts for one in stored] == [1, 1, 2, 4]
    with pytest.raises(ObjectTooLarge):
        backend.put_many([obj(bytes(PART_BYTES * MAX_PARTS + 1))])


def fetch_many_huge_objects_with_wrong_part_hints(backend: Backend) -> None:
    stored = [huge(PART_BYTES * parts - 5) for parts in (1, 2, 3)] + [obj(b"small")]
    backend.put_many(stored)
    for hint in (1, 2, 3, 7, 10**9):
        for consistent in (True, False):
            found = backend.fetch_many([Locator(one.key, hint) for one in stored], consistent=consistent)
            assert found == {one.key: one for one in stored}


def more_than_one_answer_holds(backend: Backend) -> None:
    stored = [huge(PART_BYTES * 4 - number) for number in range(14)]
    assert sum(len(one.value) for one in stored) > 16 * 2**20
    backend.put_many(stored)
    assert backend.fetch_many([locator(one) for one in stored]) == {one.key: one for one in stored}


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
        one.key: (locator(one).parts, one.created_at, one.token) for one in stored
    }
    assert {row.key for row in all_rows(backend, realm="r")} == {one.key for one in stored if one.key.realm == "r"}
    assert all_rows(backend, realm="absent") == []
    assert {row.key for row in backend.scan(limit=1_000).rows} == {one.key for one in stored}


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
    backend.delete_many([locator(one) for one in doomed])
    backend.delete_many([locator(one) for one in doomed])
    assert {row.key for row in all_rows(backend)} == {one.key for one in kept}
    assert backend.fetch_many([locator(one) for one in doomed + kept]) == {one.key: one for one in kept}


def one_creator_wins(backend: Backend) -> None:
    assert _winners(16, lambda number: backend.create_reference(ref(number + 1)) is None) == 1


def one_insert_wins(backend: Backend) -> None:
    first = obj(b"v")
    assert _winners(16, lambda number: backend.insert(replace(first, token=f"t{number}")) is None) == 1


def one_deleter_wins(backend: Backend) -> None:
    first = obj(b"v", token="t")
    backend.insert(first)
    assert _winners(16, lambda _: backend.delete(first.key, expected="t") is None) == 1


def no_lost_update(backend: Backend) -> None:
    """Counters raised by compare-and-set in 8 threads end at the number of acknowledged writes."""
    counter, pointer = obj(b"0", token="t0"), ref()
    backend.insert(counter)
    backend.create_reference(pointer)
    key: ReferenceKey = pointer.key

    def count(thread: int) -> None:
        for turn in range(10):
            while True:
                stored = backend.fetch_many([locator(counter)])[counter.key]
                new = replace(stored, value=str(int(stored.value) + 1).encode(), token=f"{thread}.{turn}")
                if backend.update(new, expected=stored.token) is None:
                    break
            while True:
                current = backend.read_reference(key)
                if backend.replace_reference(current.moved_to(thread + 1), expected=current) is None:
                    break

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(count, range(8)))
    assert backend.fetch_many([locator(counter)])[counter.key].value == b"80"
    assert backend.read_reference(key).version == 80


def _winners(count: int, attempt: Callable[[int], bool]) -> int:
    start = threading.Barrier(count)

    def run(number: int) -> bool:
        start.wait()
        return attempt(number)

    with ThreadPoolExecutor(count) as pool:
        return sum(pool.map(run, range(count)))


SEQUENTIAL: list[Check] = [
    reference_lifecycle,
    reference_without_initial_pointer,
    reference_recent_pointers,
    reference_moved_back_does_not_admit_a_late_swap,
    a_fenced_reference_refuses_swaps_prepared_before,
    changes_wait_on_a_reference,
    a_withdrawn_change_cannot_be_combined_any_more,
    a_change_that_nobody_combines_is_withdrawn_at_the_same_version,
    a_small_head_is_copied_into_its_reference,
    objects_are_copied_into_a_reference,
    reference_with_initial_pointer,
    reference_names,
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
]
CONCURRENT: list[Check] = [one_creator_wins, one_insert_wins, one_deleter_wins, no_lost_update]
