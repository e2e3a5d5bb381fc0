"""Storage locations with one owner each, claimed in the same commit as the entity that they belong to.

A claim is an index key of the location's path, segment by segment, so that equal, outer and inner locations are found
by their keys (NoSQL persistence proposal, Unique storage locations per table/view).
"""

import posixpath
import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import unquote

from polaris_common.errors import printable
from polaris_persistence.commits.entities import EntityChanges
from polaris_persistence.errors import LocationTaken, invalid_location
from polaris_persistence.index.keys import IndexKey
from polaris_persistence.objects.objects import PersistedModel
from polaris_persistence.objects.types import ObjectType

LOCATIONS: Final = "locations"
"""The first element of the keys of claims; entities beside them need another one."""
MOST_SEGMENTS: Final = 100
"""The most segments of a path; each costs a read of the index."""

_SAME: Final = {
    **dict.fromkeys(("s3", "s3a", "s3n"), "s3"),
    **dict.fromkeys(("abfs", "abfss", "wasb", "wasbs"), "azure"),
    **dict.fromkeys(("gs", "gcs"), "gs"),
}
_OBJECT_STORES: Final = frozenset(_SAME.values())
"""Stores in which a segment may be empty: keys of objects are not paths."""
_AZURE_HOST: Final = re.compile(r"^(?P<account>[^.@]+)\.(?:blob|dfs)\.(?P<domain>.+)$")
_FORM: Final = re.compile(r"^(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?://(?P<authority>[^/?#]*))?(?P<path>/[^?#]*)?$")


class LocationOwner(PersistedModel):
    """Who claimed a location. `owner` is the caller's lasting name of it (a table's UUID, so that a rename changes
    nothing), `location` its text as it was given."""

    owner: str
    location: str


LOCATION_TYPE: Final = ObjectType("location-owner", LocationOwner)


def place_of(location: str) -> tuple[str, ...]:
    """Return what identifies a location: scheme, authority, and the segments of its path.

    Locations that lead to the same objects are equal: with another scheme of the same store, another case of scheme or
    host, slashes at the end, and except in object stores with several slashes in place of one. A segment `.` or `..` is
    refused, because clients interpret it differently; so are a query, a fragment, and a `file:` location with an
    escaped character. Raises PersistenceError (INVALID_LOCATION).
    """
    found = _FORM.match(location)
    if found is None:
        raise invalid_location(
            f"{printable(location, 100)!r} is not a location. A location has the form scheme://authority/path"
        )
    scheme = found["scheme"].lower()
    authority, path = (found["authority"] or "").lower(), found["path"] or ""
    if scheme == "file":
        if unquote(path) != path:
            raise invalid_location(
                f"{printable(location, 100)!r} has an escaped character, which clients read differently"
            )
        path, authority = posixpath.normpath(path or "/"), ""
    elif not authority:
        raise invalid_location(f"{printable(location, 100)!r} names no bucket, container or host")
    family = _SAME.get(scheme, scheme)
    segments = path.rstrip("/").split("/")[1:]
    if family not in _OBJECT_STORES:
        # File systems take several slashes for one; normpath keeps two at the start (POSIX, Pathname Resolution).
        segments = [segment for segment in segments if segment]
    if any(segment in {".", ".."} for segment in segments):
        raise invalid_location(f"{printable(location, 100)!r} has a segment . or .., which clients read differently")
    if len(segments) > MOST_SEGMENTS:
        raise invalid_location(f"a location has at most {MOST_SEGMENTS} segments, not {len(segments)}")
    return (family, _store_of(family, authority, location), *segments)


def claim(entities: EntityChanges, location: str, owner: str) -> None:
    """Claim a location for an owner, within the commit of `entities`; a repeat by the same owner changes nothing.

    Raises LocationTaken if another owner has the same location, an outer or an inner one; PersistenceError
    (INVALID_LOCATION).
    """
    key = _key(location)
    for taken in _overlapping(entities, key):
        found = entities.fetch(taken, LocationOwner)
        if found is not None and found.value.owner != owner:
            raise LocationTaken(
                f"{printable(location, 200)!r} overlaps {printable(found.value.location, 200)!r}, which belongs to "
                f"{printable(found.value.owner, 100)!r}. Choose another location"
            )
    if entities.get(key) is None:
        entities.put(key, LocationOwner(owner=owner, location=location))


def release(entities: EntityChanges, location: str, owner: str) -> bool:
    """Give a location up; return False if it is not the owner's. Raises PersistenceError (INVALID_LOCATION)."""
    key = _key(location)
    found = entities.fetch(key, LocationOwner)
    return found is not None and found.value.owner == owner and entities.remove(key)


def _key(location: str) -> IndexKey:
    try:
        return IndexKey.of(LOCATIONS, *place_of(location))
    except ValueError as error:
        raise invalid_location(f"{printable(location, 100)!r}: {error}") from error


def _overlapping(entities: EntityChanges, key: IndexKey) -> Iterator[IndexKey]:
    """Return the claims of the location itself and of outer ones, then of inner ones."""
    elements = key.elements()
    for length in range(3, len(elements) + 1):
        outer = IndexKey.of(*elements[:length])
        if entities.get(outer) is not None:
            yield outer
    # An inner claim belongs to another owner, or the same owner had claimed the outer location before.
    yield from (inner for inner, _ in entities.items(key) if inner != key)


def _store_of(family: str, authority: str, location: str) -> str:
    if family != "azure":
        return authority
    container, at, host = authority.rpartition("@")
    named = _AZURE_HOST.match(host)
    if not at or named is None:
        raise invalid_location(
            f"{printable(location, 100)!r} is not of the form container@account.dfs.core.windows.net"
        )
    return f"{container}@{named['account']}.{named['domain']}"
