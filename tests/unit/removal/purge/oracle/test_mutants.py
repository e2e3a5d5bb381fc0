"""Engines with one defect each, all detected by a fixture: the oracle's tests can fail."""

import dataclasses
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from delegation.iceberg import history, reach
from delegation.iceberg.metadata import ParsedMetadata
from delegation.iceberg.paths import Row, Spelling
from delegation.removal.purge import planning
from delegation.removal.purge.run import purge_table
from delegation.storage.base import BatchResult
from delegation.storage.memory import MemoryObjectStore
from tests.unit.removal.purge.oracle.oracle import Purge, check_exact

Patch = pytest.MonkeyPatch
_DELETED_STATUS = 2


def deleted_entries_skipped(patch: Patch) -> None:
    patch.setattr(reach, "entries", _entries(lambda entry: entry[0] != _DELETED_STATUS))


def delete_files_skipped(patch: Patch) -> None:
    patch.setattr(reach, "entries", _entries(lambda entry: entry[1] == 0))


def paths_decoded(patch: Patch) -> None:
    patch.setattr(reach, "entries", _entries(lambda _entry: True, urllib.parse.unquote))


def _entries(wanted: Callable[[Any], bool], spelled: Callable[[str], str] = str) -> Callable[..., Iterator[list[Row]]]:
    def entries(path: str, data: bytes, _spelling: Spelling, *, live: bool = False) -> Iterator[list[Row]]:
        assert not live, "a purge needs deleted entries too"
        for batch in reach.read_paths(data, path):
            yield [(spelled(entry[2]), reach._CONTENT_RANK[entry[1]], entry[3]) for entry in batch if wanted(entry)]

    return entries


def branches_ignored(patch: Patch) -> None:
    _metadata(patch, lambda found, source: {"snapshots": _current(found, source)})


def _current(found: ParsedMetadata, source: Any) -> tuple[Any, ...]:
    return tuple(one for one in found.snapshots if one.snapshot_id == source.get("current-snapshot-id"))


def inline_manifests_ignored(patch: Patch) -> None:
    _metadata(
        patch, lambda found, _: {"snapshots": tuple(dataclasses.replace(one, manifests=()) for one in found.snapshots)}
    )


def statistics_skipped(patch: Patch) -> None:
    patch.setattr(history, "_statistics", lambda *_: [])  # former metadata names them, too
    _metadata(patch, lambda _found, _source: {"statistics": ()})


def partition_statistics_skipped(patch: Patch) -> None:
    _metadata(patch, lambda _found, _source: {"partition_statistics": ()})


def _metadata(patch: Patch, change: Callable[[ParsedMetadata, Any], dict[str, Any]]) -> None:
    parse = planning.parse_metadata

    def changed(path: str, source: Any, **options: Any) -> ParsedMetadata:
        found = parse(path, source, **options)
        return dataclasses.replace(found, **change(found, source))

    patch.setattr(planning, "parse_metadata", changed)


def log_not_followed_back(patch: Patch) -> None:
    _former(patch, former=())


def former_locations_skipped(patch: Patch) -> None:
    _former(patch, locations=())


def _former(patch: Patch, **fields: Any) -> None:
    parse = history.parse_former_metadata
    patch.setattr(history, "parse_former_metadata", lambda path, data: dataclasses.replace(parse(path, data), **fields))


def replaced_statistics_skipped(patch: Patch) -> None:
    patch.setattr(history, "_statistics", lambda *_: [])


def neighbours_not_checked(patch: Patch) -> None:
    patch.setattr(planning, "neighbours_of", lambda *_given: ([], []))


def whole_directories_deleted(patch: Patch) -> None:
    delete = MemoryObjectStore.delete

    def sweep(store: MemoryObjectStore, bucket: str, keys: Sequence[str]) -> BatchResult:
        below = tuple(f"{key.partition('/data/')[0]}/data/" for key in keys if key.endswith(".parquet"))
        for where in [where for where in store.objects if where[1].startswith(below)]:
            del store.objects[where]
        return delete(store, bucket, keys)

    patch.setattr(MemoryObjectStore, "delete", sweep)


MUTANTS = [
    (deleted_entries_skipped, "expired", "v1_kept"),
    (deleted_entries_skipped, "row_deletes", "equality_v3"),
    (delete_files_skipped, "row_deletes", "positions"),
    (delete_files_skipped, "row_deletes", "vectors"),
    (paths_decoded, "odd", "percent"),
    (branches_ignored, "branches", "v3"),
    (inline_manifests_ignored, "inline_manifests", "inline"),
    (statistics_skipped, "statistics", "v1"),
    (partition_statistics_skipped, "statistics", "v2"),
    (replaced_statistics_skipped, "statistics", "v3"),
    (log_not_followed_back, "metadata", "short_log"),
    (former_locations_skipped, "moved", "v2"),
    (former_locations_skipped, "relocated", "both_once"),
    (neighbours_not_checked, "clone", "original"),
    (whole_directories_deleted, "recreated", "v2"),
    (whole_directories_deleted, "nested", "outer"),
]


@pytest.mark.parametrize(("mutant", "scenario", "table"), MUTANTS)
def test_a_defect_is_detected(
    mutant: Callable[[Patch], None], scenario: str, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    purge = Purge(scenario, table)
    mutant(monkeypatch)
    purge_table(purge.by_catalog())
    with pytest.raises(AssertionError):
        check_exact(purge)
