"""What every persistence backend promises about references; some cases have the names of those of Polaris' suite."""

from typing import Final

from polaris_persistence.backends.base import (
    MAX_ID,
    RECENT_HEADS,
    Backend,
    HeadCopy,
    ObjectCopy,
    Refused,
)
from polaris_persistence.testing.rows import Check, ref, shown, stored_reference


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
    stored = stored_reference(backend, empty.key)
    assert stored == empty
    assert stored.head is None
    assert backend.replace_reference(empty.moved_to(MAX_ID), expected=stored) is None
    assert stored_reference(backend, empty.key).head == MAX_ID


def reference_recent_pointers(backend: Backend) -> None:
    current = ref()
    backend.create_reference(current)
    for head in range(1, RECENT_HEADS + 6):
        moved = current.moved_to(head)
        assert backend.replace_reference(moved, expected=current) is None
        current = moved
    stored = stored_reference(backend, current.key)
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
    seen = stored_reference(backend, first.key)
    assert (seen, seen.waiting) == (first, (5, 7, MAX_ID))
    assert backend.add_waiting([9], expected=seen) is None
    # An id that was added after the read stays.
    moved = seen.moved_to(2, done=[5, 7])
    assert backend.replace_reference(moved, expected=seen) is None
    assert stored_reference(backend, first.key).waiting == (9, MAX_ID)
    refused = backend.add_waiting([11], expected=seen)
    assert refused == Refused(moved)
    assert shown(refused).waiting == (9, MAX_ID)
    last = stored_reference(backend, first.key)
    assert backend.replace_reference(last.moved_to(3, done=last.waiting), expected=last) is None
    assert stored_reference(backend, first.key).waiting == ()


def a_withdrawn_change_cannot_be_combined_any_more(backend: Backend) -> None:
    first = ref(1)
    assert backend.withdraw(first.key, 5) == Refused(None)
    backend.create_reference(first)
    backend.add_waiting([5, 6], expected=first)
    seen = stored_reference(backend, first.key)
    assert backend.withdraw(first.key, 5) is None
    assert backend.withdraw(first.key, 5) == Refused(first.fenced())
    assert backend.replace_reference(seen.moved_to(2, done=[5]), expected=seen) == Refused(first.fenced())
    assert stored_reference(backend, first.key).waiting == (6,)
    assert backend.add_waiting([5], expected=seen) == Refused(first.fenced())


def a_change_that_nobody_combines_is_withdrawn_at_the_same_version(backend: Backend) -> None:
    first = ref(1)
    backend.create_reference(first)
    backend.add_waiting([5, 6, MAX_ID], expected=first)
    seen = stored_reference(backend, first.key)
    assert backend.withdraw(first.key, 5, fenced=False) is None
    refused = backend.withdraw(first.key, 5, fenced=False)
    assert refused == Refused(first)
    assert shown(refused).waiting == (6, MAX_ID)
    # An attempt that started before the withdrawal is not disturbed, and may settle the withdrawn id too.
    moved = seen.moved_to(2, done=[5, 6])
    assert backend.replace_reference(moved, expected=seen) is None
    stored = stored_reference(backend, first.key)
    assert (stored, stored.waiting) == (moved, (MAX_ID,))
    assert backend.withdraw(first.key, MAX_ID, fenced=False) is None
    assert stored_reference(backend, first.key).waiting == ()


def a_small_head_is_copied_into_its_reference(backend: Backend) -> None:
    first = ref(1)
    backend.create_reference(first)
    copied = first.moved_to(2, copy=HeadCopy(2, b"head", 77))
    assert backend.replace_reference(copied, expected=first) is None
    stored = stored_reference(backend, first.key)
    assert stored.copy == HeadCopy(2, b"head", 77)
    assert backend.replace_reference(stored.fenced(), expected=stored) is None
    assert stored_reference(backend, first.key).copy == HeadCopy(2, b"head", 77)
    refused = backend.replace_reference(stored.moved_to(3), expected=stored)
    assert shown(refused).copy == HeadCopy(2, b"head", 77)
    fenced = stored.fenced()
    assert backend.replace_reference(fenced.moved_to(3), expected=fenced) is None
    assert stored_reference(backend, first.key).copy is None


def objects_are_copied_into_a_reference(backend: Backend) -> None:
    first = ref(1)
    backend.create_reference(first)
    copies = (ObjectCopy("realm", 7, 77, b"value"), ObjectCopy("a/b", 2**62, 0, b""))
    assert backend.replace_reference(first.moved_to(2, copies=copies), expected=first) is None
    stored = stored_reference(backend, first.key)
    assert (stored.copies, stored.copy) == (copies, None)
    assert backend.add_waiting([9], expected=stored) is None
    assert backend.replace_reference(stored.fenced(), expected=stored) is None
    fenced = stored_reference(backend, first.key)
    assert (fenced.copies, fenced.waiting) == (copies, (9,))
    assert shown(backend.replace_reference(stored.moved_to(3), expected=stored)).copies == copies
    moved = fenced.moved_to(3, done=[9], copy=HeadCopy(3, b"head", 1))
    assert backend.replace_reference(moved, expected=fenced) is None
    found = stored_reference(backend, first.key)
    assert (found.copies, found.waiting, found.copy) == ((), (), HeadCopy(3, b"head", 1))


def reference_with_initial_pointer(backend: Backend) -> None:
    assert backend.create_reference(ref(5)) is None
    assert stored_reference(backend, ref().key).head == 5


def reference_names(backend: Backend) -> None:
    names = ["main", "a/b", "a%2Fb", "", "ü/✓", " "]
    for number, name in enumerate(names):
        assert backend.create_reference(ref(number + 1, name=name)) is None
    backend.create_reference(ref(99, realm="r/c"))
    assert {reference.key.name: reference.head for reference in backend.references(realm="r")} == {
        name: number + 1 for number, name in enumerate(names)
    }
    assert len(list(backend.references())) == len(names) + 1


CHECKS: Final[tuple[Check, ...]] = (
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
)
