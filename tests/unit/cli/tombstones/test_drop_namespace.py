"""`delegation drop-namespace --cascade`, over a catalog in memory."""

import json
from threading import Lock
from types import SimpleNamespace

import pytest

from delegation.cli.connection import Connection
from delegation.identifiers import TableIdentifier
from delegation.polaris.errors import NamespaceNotEmpty, NoSuchNamespace, NoSuchTable, PolarisForbidden
from tests.unit.cli.conftest import lines

UUID = "9c12d441-03fe-4693-9a96-a0705ddf69c"


class MemoryCatalog:
    """Namespaces and tables by name; `refuses` are tables whose drop is refused, `keys` those of the drops."""

    def __init__(self):
        self.namespaces = {("sales",), ("sales", "eu"), ("sales", "eu", "old"), ("hr",)}
        self.tables = {
            TableIdentifier("lake", ("sales",), "orders"): {},
            TableIdentifier("lake", ("sales", "eu"), "orders"): {},
            TableIdentifier("lake", ("sales", "eu", "old"), "t"): {},
            TableIdentifier("lake", ("hr",), "people"): {},
        }
        self.refuses, self.keys, self.lock = set(), [], Lock()
        self.created_meanwhile = None

    def load_table(self, identifier, *, vend=True, snapshots="all"):
        summary = {"total-data-files": "10", "total-delete-files": "2", "total-files-size": "4096"}
        metadata = {"current-snapshot-id": 1, "snapshots": [{"snapshot-id": 1, "summary": summary}]}
        number = sorted(map(str, self.tables)).index(str(identifier))
        return SimpleNamespace(metadata=metadata, table_uuid=f"{UUID}{number}", properties=self.tables[identifier])

    def list_tables(self, catalog, namespace):
        return iter(sorted((one for one in self.tables if one.namespace == namespace), key=str))

    def list_namespaces(self, catalog, parent=()):
        if parent not in self.namespaces:
            raise NoSuchNamespace("no such namespace")
        return iter(sorted(one for one in self.namespaces if one[:-1] == parent))

    def purge_table(self, identifier, headers):
        with self.lock:
            self.keys.append(headers["Idempotency-Key"])
            if identifier.name in self.refuses:
                raise PolarisForbidden("no TABLE_WRITE_DATA", status=403)
            if identifier not in self.tables:
                raise NoSuchTable("gone", status=404)
            del self.tables[identifier]
            if self.created_meanwhile is not None:
                self.tables[self.created_meanwhile] = {}
            return {"X-Delegation-Tombstone": "t-1", "X-Delegation-Tombstone-State": "DROPPED"}

    def drop_namespace(self, catalog, namespace):
        if any(one.namespace == namespace for one in self.tables):
            raise NamespaceNotEmpty("not empty", status=409)
        if any(one[:-1] == namespace for one in self.namespaces):
            raise NamespaceNotEmpty("not empty", status=409)
        self.namespaces.remove(namespace)


@pytest.fixture
def catalog(monkeypatch):
    found = MemoryCatalog()
    monkeypatch.setattr(Connection, "catalog_through_gateway", lambda _self, _timeout: found)
    return found


def names(catalog):
    return {str(one) for one in catalog.tables}


def test_everything_below_is_dropped_and_the_namespaces_the_deepest_first(run, catalog, stack, tmp_path):
    words = ("drop-namespace", "lake.sales", "--cascade", "--yes", "--key", "k", "--receipt", str(tmp_path / "r.json"))
    (document,) = lines(run(*words, "--json", "--stack", str(stack)).stdout)
    assert document["complete"]
    assert {entry["outcome"] for entry in document["tables"]} == {"dropped"}
    assert (document["tables"][0]["files"], document["tables"][0]["bytes"]) == (12, 4096)
    assert document["namespaces_dropped"] == ["lake.sales.eu.old", "lake.sales.eu", "lake.sales"]
    assert (names(catalog), catalog.namespaces) == ({"lake.hr.people"}, {("hr",)})
    assert len(set(catalog.keys)) == 3
    assert all(key.startswith("k.") for key in catalog.keys)
    assert json.loads((tmp_path / "r.json").read_text()) == document


def test_a_dry_run_shows_tables_and_files_and_changes_nothing(run, catalog, stack):
    before = names(catalog)
    text = run("drop-namespace", "lake.sales", "--cascade", "--dry-run", "--stack", str(stack)).stdout
    for word in ("lake.sales.eu.old.t", "12", "4.0 KiB", "3 tables with about 36 files", "lake.sales.eu.old"):
        assert word in text
    (document,) = lines(run("drop-namespace", "lake.sales", "--dry-run", "--json", "--stack", str(stack)).stdout)
    assert len(document["tables"]) == 3
    assert (names(catalog), catalog.keys) == (before, [])


@pytest.mark.parametrize("properties", [{"delegation.protected": "true"}, {"gc.enabled": "false"}])
def test_one_protected_table_keeps_all(run, catalog, stack, properties):
    catalog.tables[TableIdentifier("lake", ("sales", "eu"), "orders")] = properties
    result = run("drop-namespace", "lake.sales", "--cascade", "--yes", "--json", "--stack", str(stack))
    error = json.loads(result.stderr)
    assert (result.exit_code, error["error_code"]) == (3, "TABLES_REFUSED")
    assert "sales.eu.orders" in error["message"]
    assert (len(catalog.tables), catalog.keys) == (4, [])


def test_a_refused_table_is_named_and_no_namespace_is_dropped(run, catalog, stack):
    catalog.refuses.add("t")
    result = run("drop-namespace", "lake.sales", "--cascade", "--yes", "--key", "k", "--json", "--stack", str(stack))
    (document,) = lines(result.stdout)
    (kept,) = [entry for entry in document["tables"] if entry["outcome"] == "kept"]
    assert (kept["table"], document["namespaces_dropped"], document["complete"]) == ("lake.sales.eu.old.t", [], False)
    assert "TABLE_WRITE_DATA" in kept["problem"]
    error = json.loads(result.stderr)
    assert (result.exit_code, error["error_code"]) == (4, "NAMESPACE_NOT_DROPPED")
    assert "--key k" in error["next_step"]
    assert len(catalog.namespaces) == 4
    catalog.refuses.clear()
    again = run("drop-namespace", "lake.sales", "--cascade", "--yes", "--key", "k", "--stack", str(stack))
    assert (again.exit_code, catalog.namespaces) == (0, {("hr",)})


def test_a_table_created_meanwhile_keeps_its_namespace(run, catalog, stack):
    catalog.created_meanwhile = TableIdentifier("lake", ("sales",), "new")
    result = run("drop-namespace", "lake.sales", "--cascade", "--yes", "--json", "--stack", str(stack))
    (document,) = lines(result.stdout)
    assert document["namespaces_dropped"] == ["lake.sales.eu.old", "lake.sales.eu"]
    assert (result.exit_code, "lake.sales has a table" in document["problem"]) == (4, True)
    assert "lake.sales.new" in names(catalog)


def test_without_cascade_only_an_empty_namespace_is_dropped(run, catalog, stack):
    result = run("drop-namespace", "lake.sales", "--yes", "--json", "--stack", str(stack))
    assert (result.exit_code, json.loads(result.stderr)["error_code"]) == (2, "CASCADE_MISSING")
    assert len(catalog.tables) == 4
    catalog.tables.clear()
    assert run("drop-namespace", "lake.sales.eu.old", "--yes", "--stack", str(stack)).exit_code == 0
    assert ("sales", "eu", "old") not in catalog.namespaces


def test_misuse_and_unknown_names(run, catalog, stack):
    assert run("drop-namespace", "lake", "--stack", str(stack)).exit_code == 2
    assert run("drop-namespace", "lake.sales", "--key", "k" * 201, "--stack", str(stack)).exit_code == 2
    unknown = run("drop-namespace", "lake.nowhere", "--cascade", "--json", "--stack", str(stack))
    assert json.loads(unknown.stderr)["error_code"] == "NO_SUCH_NAMESPACE"
