"""Spark's Python workers do not read their archives before each task: with files in the form of PySpark's archives."""

import importlib
import sys
import zipfile
import zipimport

import pytest

from delegation.identifiers import TableIdentifier
from delegation.removal.orphans.spark import ListOnExecutors, SubtractParts
from delegation.removal.orphans.subtraction import Rules
from delegation.removal.spark_executors import DeleteChunks, SpreadSources, WriteParts, no_checkpoint
from delegation.storage.deleter import DeletePolicy
from delegation.storage.memory import MemoryObjectStore, MemoryPlanStore
from polaris_common.spark_workers import forget_archives
from polaris_persistence.catalogs.executors import DynamoDbStores


@pytest.fixture
def archive(tmp_path, monkeypatch):
    path = tmp_path / "archive.zip"
    with zipfile.ZipFile(path, "w") as out:
        out.writestr("of_an_archive/__init__.py", "")
        out.writestr("of_an_archive/one.py", "")
        out.writestr("of_an_archive/other.py", "VALUE = 2")
    monkeypatch.syspath_prepend(str(path))
    yield path
    forget_archives()
    for name in [name for name in sys.modules if name.partition(".")[0] == "of_an_archive"]:
        del sys.modules[name]


def _importers(archive) -> list[str]:
    found = sys.path_importer_cache.items()
    return [path for path, one in found if isinstance(one, zipimport.zipimporter) and path.startswith(str(archive))]


def _of_the_package(archive) -> list[str]:
    """The importer of the package, which only an import from it makes; any other import makes that of the archive."""
    return [path for path in _importers(archive) if path.endswith("of_an_archive")]


def test_no_importer_is_left_that_would_read_an_archive_again(archive):
    importlib.import_module("of_an_archive.one")
    assert _importers(archive) == [str(archive), str(archive / "of_an_archive")]

    forget_archives()

    assert _importers(archive) == []
    assert any(not isinstance(one, zipimport.zipimporter) for one in sys.path_importer_cache.values())


def test_what_an_archive_has_can_be_imported_afterwards(archive):
    importlib.import_module("of_an_archive.one")
    forget_archives()
    importlib.invalidate_caches()

    assert importlib.import_module("of_an_archive.other").VALUE == 2


class _Resources:
    """What an executor opens; no function that is given no work uses it."""

    def plans(self):
        return MemoryPlanStore()

    def store(self, identifier):
        return MemoryObjectStore()

    def checkpoint(self, task_id, attempt):
        return no_checkpoint


IDENTIFIER = TableIdentifier("lake", ("sales",), "orders")
PLACE = {"resources": _Resources(), "identifier": IDENTIFIER, "shares": (), "task_id": "t", "attempt": 1}
FUNCTIONS = {
    "spread": SpreadSources.of(lambda source: iter(()), 1, ()),
    "write": WriteParts(lambda runs, part: {}),
    "subtract": SubtractParts(Rules("DELETE"), (), only_needed=False),
    "list": ListOnExecutors(**PLACE, how=None, most_pages=1),
    "delete": DeleteChunks(**PLACE, policy=DeletePolicy(), plans={}),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_function_of_executors_has_its_worker_forget_them(archive, name):
    importlib.import_module("of_an_archive.one")

    assert list(FUNCTIONS[name](iter(()))) == []

    assert _of_the_package(archive) == []


def test_so_does_the_persistence_of_an_executor(archive, monkeypatch):
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    importlib.import_module("of_an_archive.one")

    DynamoDbStores("objects", "references", "http://127.0.0.1:1").open()

    assert _of_the_package(archive) == []
