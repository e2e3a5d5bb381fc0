"""Which former metadata files are read, and that what they name is found (issue 24, line 12)."""

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delegation.iceberg.errors import CorruptMetadata
from delegation.iceberg.history import History, read_history
from delegation.iceberg.metadata import ParsedMetadata, parse_metadata
from delegation.iceberg.paths import Spelling
from delegation.iceberg.reach import Fetcher, Tolerance
from delegation.storage.base import ObjectNotFound
from delegation.storage.locations import ObjectLocation
from polaris_common.errors import DelegationError
from tests.effort import examples

UUID, ANOTHER = "11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222"
HOME = "s3://lake/t"


def path_of(number: int, location: str = HOME) -> str:
    return f"{location}/metadata/{number:05d}-00000000-0000-0000-0000-{number:012d}.metadata.json"


def content(location: str, log: Sequence[str], uuid: str = UUID, **properties: str) -> dict[str, Any]:
    return {
        "format-version": 2,
        "table-uuid": uuid,
        "location": location,
        "last-updated-ms": 1,
        "properties": properties,
        "snapshots": [],
        "metadata-log": [{"metadata-file": path, "timestamp-ms": 1} for path in log],
    }


@dataclass
class Table:
    """A table's metadata files by path, written on demand; it notes which are read, and how many at a time."""

    files: Mapping[str, dict[str, Any]]
    raw: dict[str, bytes] = field(default_factory=dict)
    reads: list[str] = field(default_factory=list)

    def read(self, location: ObjectLocation, *, limit: int) -> bytes:
        path = f"s3://{location.bucket}/{location.key}"
        self.reads.append(path)
        if path in self.raw:
            return self.raw[path]
        if path not in self.files:
            raise ObjectNotFound(path)
        return json.dumps(self.files[path]).encode()


def chain(locations: Sequence[str], log: int) -> tuple[dict[str, dict[str, Any]], ParsedMetadata]:
    """Return one file for each location, each with at most `log` predecessors in its log, and the last one parsed."""
    paths = [path_of(number, location) for number, location in enumerate(locations)]
    files = {
        path: content(location, paths[max(0, at - log) : at])
        for at, (path, location) in enumerate(zip(paths, locations, strict=True))
    }
    return files, parse_metadata(paths[-1], files[paths[-1]])


def history_of(table: Table, metadata: ParsedMetadata, unreadable: dict[str, DelegationError] | None = None) -> History:
    noted = {} if unreadable is None else unreadable
    fetcher = Fetcher(table, threads=2, checkpoint=lambda: None)  # type: ignore[arg-type]
    return read_history(metadata, fetcher, lambda _path: True, Tolerance(noted.__setitem__))


@pytest.mark.parametrize("log", [100, 1_000, 50_000])
def test_a_file_for_each_length_of_a_log_is_read(log: int) -> None:
    """A table that is committed to each minute for 30 days has 43,200 former metadata files."""
    count = 43_200
    paths = [path_of(number) for number in range(count + 1)]

    class Files(dict[str, dict[str, Any]]):
        def __missing__(self, path: str) -> dict[str, Any]:
            at = paths.index(path)
            return content(HOME, paths[max(0, at - log) : at])

        def __contains__(self, path: object) -> bool:
            return True

    table = Table(Files())
    found = history_of(table, parse_metadata(paths[-1], content(HOME, paths[max(0, count - log) : count])))
    assert [one.path for one in sorted(found.files)] == paths[:-1]
    assert len(table.reads) == found.reads == -(-count // log)
    assert found.locations == [HOME]


@given(st.data())
@settings(max_examples=examples(150), deadline=None)
def test_every_file_and_every_location_that_was_left_is_found(data: st.DataObject) -> None:
    stays = data.draw(st.lists(st.integers(1, 25), min_size=1, max_size=5))
    locations = [f"s3://lake/l{at}" for at, stay in enumerate(stays) for _ in range(stay)]
    log = data.draw(st.integers(1, 30))
    files, metadata = chain(locations, log)
    expired = data.draw(st.integers(0, len(locations) - 1)) if data.draw(st.booleans()) else 0
    table = Table(dict(list(files.items())[expired:]))
    found = history_of(table, metadata)
    before = list(files)[:-1]
    reachable = before if not expired else before[max(0, min(expired, len(before) - log) - log) :]
    assert {one.path for one in found.files} >= set(before[expired:])
    assert {one.path for one in found.files} <= set(reachable) | set(before)
    assert set(found.locations) == set(locations[expired:-1])
    assert len(table.reads) == len(set(table.reads)) == found.reads


def test_few_files_are_read_around_a_move() -> None:
    locations = [f"{HOME}-old"] * 700 + [HOME] * 323
    files, metadata = chain(locations, 2_000)
    table = Table(files)
    found = history_of(table, metadata)
    assert set(found.locations) == {f"{HOME}-old", HOME}
    assert len(table.reads) < 16


def test_replaced_statistics_are_looked_for_in_the_newest_files_of_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delegation.iceberg.history.MOST_FOR_STATISTICS", 2)
    files, metadata = chain([HOME] * 6, 10)
    for number, file in enumerate(files.values()):
        file["statistics"] = [{"snapshot-id": 1, "statistics-path": f"{HOME}/{number}", "file-size-in-bytes": 1}]
    fetcher = Fetcher(Table(files), threads=2, checkpoint=lambda: None)  # type: ignore[arg-type]
    found = read_history(metadata, fetcher, lambda _path: True, statistics=True)
    # The oldest file is read for its locations.
    assert sorted(one.path for _, one in found.statistics) == [f"{HOME}/{number}" for number in (0, 3, 4)]


def test_a_log_whose_older_files_have_expired_is_searched_for_the_first_that_is_left() -> None:
    files, metadata = chain([HOME] * 1_001, 1_000)
    table = Table(dict(list(files.items())[990:]))
    found = history_of(table, metadata)
    assert len(found.files) == 1_000
    assert len(table.reads) < 13
    gone = Table({})
    assert len(history_of(gone, metadata).files) == 1_000
    assert len(gone.reads) < 13


@pytest.mark.parametrize(
    "name",
    [f"{one}.metadata.json" for one in ("foreign", "00002-x", "00005-x", "00010-x", "00099-x", "dropped/00007-x")],
)
@pytest.mark.parametrize("at", [0, 5, 10])
def test_what_does_not_fit_into_the_row_of_versions_is_read(name: str, at: int) -> None:
    files, metadata = chain([HOME] * 11, 20)
    stranger = f"{HOME}/metadata/{name}"
    log = list(metadata.former)
    log.insert(at, stranger)
    table = Table({**files, stranger: content("s3://lake/victim", [], ANOTHER)})
    found = history_of(table, parse_metadata(metadata.path, content(HOME, log)))
    assert found.foreign == {stranger}
    assert "s3://lake/victim" not in found.locations
    assert {one.path for one in found.files} == {*metadata.former, stranger}


def test_files_that_cannot_be_read_are_named_and_the_rest_is_found() -> None:
    files, metadata = chain([f"{HOME}-old"] * 3 + [HOME] * 8, 20)
    paths = list(files)
    table = Table(files, raw={paths[0]: b"{", paths[1]: b"no json"})
    noted: dict[str, DelegationError] = {}
    found = history_of(table, metadata, noted)
    assert all(isinstance(error, CorruptMetadata) for error in noted.values())
    assert paths[0] in noted
    assert set(found.locations) == {f"{HOME}-old", HOME}
    assert {one.path for one in found.files} == set(paths[:-1])


def test_uncovered_files_are_named_and_not_read() -> None:
    files, metadata = chain([f"{HOME}-old"] * 3 + [HOME] * 8, 4)
    table = Table(files)
    fetcher = Fetcher(table, threads=2, checkpoint=lambda: None)  # type: ignore[arg-type]
    found = read_history(metadata, fetcher, lambda path: not path.startswith(f"{HOME}-old/"))
    assert not any(path.startswith(f"{HOME}-old/") for path in table.reads)
    assert found.locations == [HOME]
    assert any(one.path.startswith(f"{HOME}-old/") for one in found.files)


def test_cycles_end() -> None:
    files, metadata = chain([HOME] * 8, 3)
    paths = list(files)
    files[paths[0]] = content(HOME, [paths[-1], paths[3], paths[0]])
    found = history_of(Table(files), metadata)
    assert {one.path for one in found.files} == set(paths[:-1])


def test_a_path_that_logs_repeat_is_spelled_once() -> None:
    """With gaps between the versions every file is read, and its log has nearly all that the next one's has."""
    spelled: list[str] = []

    class Noting(Spelling):
        def one(self, path: str) -> str:
            spelled.append(path)
            return Spelling.one(self, path)

    paths = [path_of(number) for number in range(0, 400, 10)]
    files = {path: content(HOME, paths[:at]) for at, path in enumerate(paths)}
    fetcher = Fetcher(Table(files), threads=2, checkpoint=lambda: None)  # type: ignore[arg-type]
    metadata = parse_metadata(paths[-1], files[paths[-1]])
    found = read_history(metadata, fetcher, lambda _path: True, Tolerance(spelling=Noting()))
    assert found.reads == len(paths) - 1
    assert sorted(spelled) == paths


@pytest.mark.parametrize("pattern", ["v{}.metadata.json", "v{}.gz.metadata.json", "v{}.metadata.json.gz"])
def test_names_of_file_system_tables_are_versions_too(pattern: str) -> None:
    paths = [f"{HOME}/metadata/{pattern.format(number)}" for number in range(1, 102)]
    files = {path: content(HOME, paths[:at]) for at, path in enumerate(paths)}
    table = Table(files)
    found = history_of(table, parse_metadata(paths[-1], files[paths[-1]]))
    assert len(found.files) == 100
    assert table.reads == paths[:1]


def test_it_may_end_between_two_logs() -> None:
    files, metadata = chain([HOME] * 1_000, 10)
    calls = itertools.count()
    table = Table(files)
    fetcher = Fetcher(table, threads=2, checkpoint=lambda: None)  # type: ignore[arg-type]
    found = read_history(metadata, fetcher, lambda _path: True, enough=lambda: next(calls) >= 3)
    assert (len(found.files), found.reads) == (30, 3)
