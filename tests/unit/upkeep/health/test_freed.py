"""Bounds of what an expiry frees, against the files themselves in random trees of snapshots."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delegation.iceberg.errors import CorruptMetadata
from delegation.upkeep.health.model import FreedBytes, SnapshotChange
from delegation.upkeep.health.reading import freed_bytes
from tests.effort import examples


@dataclass
class Tree:
    """Snapshots by number, with their parents and live files; a file's name is its size."""

    parents: dict[int, int | None] = field(default_factory=dict)
    files: dict[int, frozenset[int]] = field(default_factory=dict)
    changes: dict[int, SnapshotChange] = field(default_factory=dict)

    def commit(self, parent: int | None, added: frozenset[int], removed: frozenset[int]) -> int:
        number = len(self.parents)
        before = frozenset() if parent is None else self.files[parent]
        removed &= before
        self.parents[number] = parent
        self.files[number] = (before - removed) | added
        self.changes[number] = SnapshotChange(sum(added), sum(removed), sum(removed))
        return number

    def freed(self, expired: set[int]) -> int:
        kept = frozenset().union(*(files for one, files in self.files.items() if one not in expired))
        gone = frozenset().union(*(files for one, files in self.files.items() if one in expired))
        return sum(gone - kept)


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    """A tree whose commits add new files, a copy of a dead one's (a cherry-pick), and remove some of the parent's."""
    tree = Tree()
    for number in range(draw(st.integers(1, 12))):
        parent = None if not number else draw(st.integers(max(0, number - 3), number - 1))
        added = frozenset(1 << (3 * number + n) for n in range(draw(st.integers(0, 3))))
        mine = frozenset() if parent is None else tree.files[parent]
        removed = frozenset(one for one in sorted(mine) if draw(st.booleans()))
        tree.commit(parent, added, removed)
    return tree


@settings(max_examples=examples(150), deadline=None)
@given(trees(), st.data())
def test_what_is_freed_is_within_the_bounds_for_whatever_snapshots_expire(tree: Tree, data: st.DataObject) -> None:
    expired = {one for one in tree.parents if data.draw(st.booleans())}
    found = freed_bytes(tree.parents, expired, tree.changes)
    assert found.upper is not None
    assert found.lower <= tree.freed(expired) <= found.upper
    # Less is known of a table whose older snapshots were expired before, and nothing false.
    cut = {one: parent for one, parent in tree.parents.items() if one > 2}
    rest = Tree(cut, {one: files for one, files in tree.files.items() if one in cut}, tree.changes)
    later = freed_bytes(cut, expired & cut.keys(), {one: tree.changes[one] for one in cut})
    assert later.lower <= rest.freed(expired & cut.keys()) <= (later.upper if later.upper is not None else 2**200)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2**30)), min_size=2, max_size=12), st.data())
def test_the_bounds_of_a_line_of_snapshots_are_exact(commits: list[tuple[int, int]], data: st.DataObject) -> None:
    tree, parent = Tree(), None
    for number, (adds, chosen) in enumerate(commits):
        added = frozenset(1 << (3 * number + n) for n in range(adds))
        mine = sorted(frozenset() if parent is None else tree.files[parent])
        parent = tree.commit(parent, added, frozenset(one for at, one in enumerate(mine) if chosen >> at & 1))
    expired = set(range(data.draw(st.integers(0, len(tree.parents) - 1))))
    exact = tree.freed(expired)
    assert freed_bytes(tree.parents, expired, tree.changes) == FreedBytes(exact, exact)


def test_a_snapshot_that_was_not_read_leaves_the_upper_bound_unknown() -> None:
    parents = {1: None, 2: 1, 3: 2}
    changes = {1: SnapshotChange(5), 2: SnapshotChange(0, 4, 4)}
    assert freed_bytes(parents, {1}, changes) == FreedBytes(4, 4)
    assert freed_bytes(parents, {1, 2}, changes) == FreedBytes(4, None)


def test_a_deletion_vector_counts_for_the_upper_bound_alone() -> None:
    assert freed_bytes({1: None, 2: 1}, {1}, {2: SnapshotChange(0, 9, 4)}) == FreedBytes(4, 9)


def test_snapshots_that_are_their_own_ancestors_are_corrupt() -> None:
    with pytest.raises(CorruptMetadata, match="own ancestors"):
        freed_bytes({1: 2, 2: 1, 3: None}, {3}, {})
