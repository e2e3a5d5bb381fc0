"""The inline engine's memory does not grow with the table: the list of files is never in memory."""

import os
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

from delegation.identifiers import TableIdentifier
from delegation.removal import index
from delegation.removal.attempt import MemoryAttempt
from delegation.removal.purge.context import PurgeContext
from delegation.removal.purge.direct import MetadataFile
from delegation.removal.purge.requests import PurgeSettings
from delegation.removal.purge.run import purge_table
from delegation.storage.base import BatchResult, ObjectNotFound
from delegation.storage.deleter import DeletePolicy, RatePolicy
from delegation.storage.file_system import FilePlanStore
from delegation.storage.listing.model import ListedFolder, ListedObject, ListedPage, UnchangedResult
from delegation.storage.locations import ObjectLocation
from infra.local.processes.programs import import_path
from tests.bench.loads.big_table import UUID, BigTable
from tests.paths import ROOT

SETTINGS = PurgeSettings(
    chunk_paths=1_000,
    run_records=2_000,
    read_threads=2,
    vended=False,
    delete=DeletePolicy(threads=1, rate=RatePolicy(start=1e9)),
)


class Folder:
    """A store over a big table's folder; deletes are only counted, except that of metadata.json."""

    def __init__(self, table: BigTable) -> None:
        self._table = table
        self.deleted = 0

    def read(self, location: ObjectLocation, *, limit: int) -> bytes:
        try:
            return (self._table.folder / location.key).read_bytes()
        except FileNotFoundError as error:
            raise ObjectNotFound(location.uri) from error

    def exists(self, location: ObjectLocation) -> bool:
        return (self._table.folder / location.key).exists()

    def delete(self, bucket: str, keys: Sequence[str]) -> BatchResult:
        self.deleted += len(keys)
        if self._table.metadata_key in keys:
            (self._table.folder / self._table.metadata_key).unlink()
        return BatchResult(tuple(keys))

    def page(self, bucket: str, prefix: str, *, after: str = "") -> ListedPage:
        return ListedPage((), 0, is_last=True)

    def folder(self, bucket: str, prefix: str) -> ListedFolder:
        raise NotImplementedError

    def delete_unchanged(self, bucket: str, listed: Sequence[ListedObject]) -> UnchangedResult:
        raise NotImplementedError

    def probe_delete(self, prefix: str) -> str | None:
        return None

    def versioned(self, bucket: str, *, seen: ObjectLocation | None = None) -> bool | None:
        return False


def written(folder: Path, entries: int) -> BigTable:
    return BigTable(folder / "lake", entries, entries // 1_000).write()


def purge(folder: Path, table: BigTable) -> None:
    store = Folder(table)
    ctx = PurgeContext(
        attempt=MemoryAttempt("task"),
        identifier=TableIdentifier("lake", ("sales",), "orders"),
        table_uuid=UUID,
        tables=MetadataFile(table.metadata_location, store),
        store=store,
        plans=FilePlanStore(folder / "plans"),
        settings=SETTINGS,
    )
    result = purge_table(ctx)
    assert result.files_deleted == table.files == store.deleted


def peak(folder: Path, entries: int) -> int:
    """Return the peak of Python's memory, in bytes, during a purge of `entries` files."""
    table = written(folder, entries)
    tracemalloc.start()
    try:
        purge(folder, table)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def main() -> None:
    """Print the peaks for a small table and for one five times as large."""
    with tempfile.TemporaryDirectory() as name, mock.patch.object(index, "_FAN_IN", 4):  # merges in several passes
        folder = Path(name)
        # What every process makes once, such as decoders and models, takes ten times as long when it is traced.
        purge(folder / "first", written(folder / "first", 4_000))
        sys.stdout.write(f"{peak(folder / 'small', 4_000)} {peak(folder / 'large', 20_000)}")


def test_a_table_five_times_as_large_takes_no_more_memory() -> None:
    """It runs in a separate process, where nothing else is traced."""
    env = {**os.environ, "PYTHONPATH": import_path()}
    command = [sys.executable, "-m", "tests.unit.removal.purge.test_memory"]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    small, large = map(int, done.stdout.split())
    assert large < small * 1.1 + 100_000, (small, large)


if __name__ == "__main__":
    main()
