"""Bounds of the bytes that an expiry frees, by what each snapshot added and removed; no paths are compared.

A file is freed if an expired snapshot has it and no retained one does. If an expired snapshot has a retained
descendant, each of its files was removed on the way there, by a snapshot whose parent is expired, or is still in the
retained one. Files of the other expired snapshots (`dead`: an abandoned branch, a rolled back or staged commit) were
added by a dead one, or were in a parent that is not dead. So at most what those remove and the dead ones add is freed.
At least what a common ancestor of all retained snapshots removed is freed if its parent is expired, unless the file was
added again. Manifests, which are small, are not counted.
"""

from collections.abc import Collection, Mapping

from delegation.iceberg.errors import CorruptMetadata
from delegation.upkeep.health.model import FreedBytes, SnapshotChange


def freed_bytes(
    parents: Mapping[int, int | None],
    expired: Collection[int],
    changes: Mapping[int, SnapshotChange],
) -> FreedBytes:
    """Return the bounds if `expired` snapshots go; `parents` names each snapshot's parent. A needed snapshot without
    `changes` makes the upper bound unknown. Raises CorruptMetadata for snapshots that are their own ancestors."""
    gone = frozenset(expired) & parents.keys()
    if not gone:
        return FreedBytes()
    below = _retained_below(parents, gone)
    retained = len(parents) - len(gone)
    lower, upper, is_known = 0, 0, True
    for snapshot, parent in parents.items():
        is_dead = below[snapshot] == 0
        if not is_dead and parent not in gone:
            continue
        change = changes.get(snapshot)
        # The files of a dead one's former parent are not known once that is gone.
        if change is None or (is_dead and parent is not None and parent not in parents):
            is_known = False
        if change is None:
            continue
        upper += change.added if is_dead else change.removed
        lower += change.removed_least if not is_dead and below[snapshot] == retained else 0
    return FreedBytes(lower, max(upper, lower) if is_known else None)


def _retained_below(parents: Mapping[int, int | None], gone: Collection[int]) -> dict[int, int]:
    """Return how many retained snapshots are at or below each. Raises CorruptMetadata for a cycle."""
    children = dict.fromkeys(parents, 0)
    for parent in parents.values():
        if parent in children:
            children[parent] += 1
    below = {one: int(one not in gone) for one in parents}
    leaves = [one for one, count in children.items() if not count]
    seen = 0
    while leaves:
        one = leaves.pop()
        seen += 1
        parent = parents[one]
        if parent in children:
            below[parent] += below[one]
            children[parent] -= 1
            if not children[parent]:
                leaves.append(parent)
    if seen != len(parents):
        raise CorruptMetadata("the table's metadata", "parent-snapshot-id", "snapshots are their own ancestors")
    return below
