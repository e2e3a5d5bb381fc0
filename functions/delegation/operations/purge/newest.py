"""Looking for metadata files that are newer than the one that a direct purge was given."""

import re
from collections.abc import Callable, Iterable
from typing import Final

from delegation.iceberg.metadata import MAX_METADATA_BYTES, decode_metadata, parse_metadata
from delegation.storage.base import ObjectStore
from delegation.storage.locations import parse
from polaris_common.errors import DelegationError

# 00042-<uuid>.metadata.json or v42.metadata.json, or compressed (Iceberg Table Spec, File System Tables).
_NAME: Final = re.compile(r"(?:v(?P<hadoop>[0-9]+)|(?P<number>[0-9]+)-[^/]*)(?:\.gz)?\.metadata\.json(?:\.gz)?")


def version_of(path: str) -> int | None:
    """Return the version number in a metadata file's name; None for a name of another form."""
    found = _NAME.fullmatch(path.rpartition("/")[2])
    return None if found is None else int(found["hadoop"] or found["number"])


def newer_metadata(
    path: str, table_uuid: str, store: ObjectStore, names: Callable[[str, str], Iterable[str]]
) -> str | None:
    """Return the table's newest metadata file in the directory of `path` if its version is higher, else None.

    `names` lists the canonical URIs directly below a directory, from a name on. Another table's files, and what cannot
    be read, are no newer state of this table.
    """
    version = version_of(path)
    if version is None:
        return None
    directory, _, name = path.rpartition("/")
    listed = names(f"{directory}/", "v" if name.startswith("v") else name)
    found = [(number, one) for one in listed if (number := version_of(one)) is not None]
    for number, one in sorted(found, reverse=True):
        if number <= version:
            return None
        if _uuid(one, store) == table_uuid:
            return one
    return None


def _uuid(path: str, store: ObjectStore) -> str | None:
    try:
        data = store.read(parse(path), limit=MAX_METADATA_BYTES)
        return parse_metadata(path, decode_metadata(path, data), experimental=True).table_uuid
    except DelegationError:
        return None
