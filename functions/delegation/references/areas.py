"""Areas of storage: canonical directory URIs with a trailing slash, few for each table, that cover its files. An area
is at least a bucket, except EVERYWHERE, which contains all buckets."""

from collections.abc import Iterable
from typing import Final

from delegation.errors import GuardRefused
from delegation.storage.locations import LOCAL, Root, split, uri_of

EVERYWHERE: Final = ""
"""The area of a table whose areas do not fit into an entry: every purge loads and compares it."""
MOST_AREAS: Final = 64
LONGEST_AREA_BYTES: Final = 700
"""Within a DynamoDB sort key of 1,024 bytes, beside the name of the table. The bucket's name counts too."""
LONGEST_BUCKET: Final = 255
"""Amazon S3 user guide, "Bucket naming rules": 63 characters today, 255 in us-east-1 before 2018 and in other servers.

No client of S3 sends a request for a longer name.
"""
LONGEST_KEY_BYTES: Final = 1_024
"""Amazon S3 user guide, "Naming Amazon S3 objects"."""


def areas_of(locations: Iterable[str], outside: Iterable[str], *, most: int = MOST_AREAS) -> tuple[str, ...]:
    """Return the areas of a table with these locations and these canonical paths of files outside them. Locations in
    storage where no purge deletes (another scheme, a refused path) are left out."""
    roots = set()
    for location in locations:
        try:
            roots.add(Root.of(location).uri)
        except GuardRefused:
            continue
    return fold({*roots, *map(directory_of, outside)}, most=most)


def directory_of(path: str) -> str:
    """Return the directory of a canonical path, canonical and with a trailing slash."""
    bucket, key = split(path)
    return uri_of(bucket, key[: key.rfind("/") + 1])


def parent_of(area: str) -> str:
    """Return the area around an area, one slash shorter; a bucket and EVERYWHERE are their own parents. A key may have
    empty components: the parent of `a//` is `a/`."""
    if area == EVERYWHERE:
        return area
    bucket, key = split(area)
    return uri_of(bucket, key[: key.rfind("/", 0, -1) + 1])


def may_exist(area: str) -> bool:
    """Whether an object can be in an area: bucket names and object keys have a longest length."""
    bucket, key = split(area)
    return bucket == LOCAL or (len(bucket) <= LONGEST_BUCKET and len(key.encode()) <= LONGEST_KEY_BYTES)


def fold(areas: Iterable[str], *, most: int = MOST_AREAS) -> tuple[str, ...]:
    """Return at most `most` areas that cover these, without nested ones and those that can hold no object. The deepest
    areas are replaced by their parents first, whole buckets last. More buckets than `most` become EVERYWHERE."""
    left = _outermost(_short(area) for area in set(areas) if may_exist(area))
    if len(left) <= most:
        return tuple(left)
    # The number of areas grows with the depth, so the greatest depth with few enough is found by halving.
    few, many = _BUCKET_SLASHES, max(area.count("/") for area in left)
    if len(best := _cut_to(few, left)) > most:
        return (EVERYWHERE,)
    while many - few > 1:
        depth = (few + many) // 2
        cut = _cut_to(depth, left)
        if len(cut) <= most:
            few, best = depth, cut
        else:
            many = depth
    return tuple(best)


_BUCKET_SLASHES: Final = 3


def _cut_to(depth: int, areas: list[str]) -> list[str]:
    """Return the areas around these with at most `depth` slashes."""
    return _outermost(
        area if area.count("/") <= depth else "/".join(area.split("/", depth)[:depth]) + "/" for area in areas
    )


def _short(area: str) -> str:
    while len(area.encode()) > LONGEST_AREA_BYTES:
        area = parent_of(area)
    return area


def _outermost(areas: Iterable[str]) -> list[str]:
    outermost: list[str] = []
    for area in sorted(set(areas)):
        if not outermost or not area.startswith(outermost[-1]):
            outermost.append(area)
    return outermost


def around(area: str) -> tuple[str, ...]:
    """Return an area and all that contain it, the bucket last."""
    areas = [area]
    while (parent := parent_of(areas[-1])) != areas[-1]:
        areas.append(parent)
    return tuple(areas)


def overlap(area: str, other: str) -> bool:
    """Whether one area lies at or below the other."""
    return area.startswith(other) or other.startswith(area)
