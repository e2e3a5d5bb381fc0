"""Deletes a dropped table's files as Polaris' purge does: what its metadata reaches, and not what lies beside it."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from delegation.iceberg.avro.manifests import read_manifest_list, read_paths


def reached_by(metadata: Mapping[str, Any], metadata_location: str, read: Callable[[str], bytes]) -> Iterator[str]:
    """Yield the table's files, those that others name last; `read` returns the content of a file."""
    lists = [snapshot["manifest-list"] for snapshot in metadata.get("snapshots") or () if "manifest-list" in snapshot]
    manifests = dict.fromkeys(one.manifest_path for path in lists for one in read_manifest_list(read(path), path))
    for manifest in manifests:
        for entries in read_paths(read(manifest), manifest):
            yield from dict.fromkeys(path for _status, _content, path, _size in entries)
    yield from manifests
    yield from lists
    for kind in ("statistics", "partition-statistics"):
        yield from (one["statistics-path"] for one in metadata.get(kind) or ())
    yield from (entry["metadata-file"] for entry in metadata.get("metadata-log") or ())
    yield metadata_location
