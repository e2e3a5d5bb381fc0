"""`delegation drop-namespace --cascade`, over a catalog in memory."""

import json
from threading import Lock
from types import SimpleNamespace
from uuid import NAMESPACE_URL, uuid4, uuid5

import pytest

from delegation.cli.connection import Connection
from delegation.cli.tombstones.receipts import ReceiptFile
from delegation.identifiers import TableIdentifier
from delegation.polaris.answers import NamespaceNotEmpty, NoSuchNamespace, NoSuchTable, PolarisError, PolarisForbidden
from delegation.polaris.model import GENERIC_TABLE, VIEW
from delegation.storage.memory import Killed
from tests.unit.cli.conftest import lines

MANY = 600


def name_of(text):
    catalog, *levels, name = text.split(".")
    return TableIdentifier(catalog, tuple(levels), name)


class MemoryCatalog:
    """Namespaces and tables by name behind a gateway; `refuses` are tables whose drop is refused.

    `keys` are those of the drops. `dropped` are the uuids of tables that were dropped, `failed` those whose purge was
    refused later. The process is killed before the drop of `kill_at` or, with `kill_late`, before its answer.
    """

    def __init__(self):
        self.namespaces = {("sales",), ("sales", "eu"), ("sales", "eu", "old"), ("hr",)}
        names = ("lake.sales.orders", "lake.sales.eu.orders", "lake.sales.eu.old.t", "lake.hr.people")
        self.tables = {name_of(name): str(uuid5(NAMESPACE_URL, name)) for name in names}
        self.properties, self.others = {}, {}
        self.refuses, self.keys, self.dropped, self.failed, self.lock = set(), [], set(), set(), Lock()
        self.created_meanwhile = self.kill_at = None
        self.kill_late = False
        self.refused_keys, self.modes = set(), []
        self.headers = {"X-Delegation-Tombstone-State": "DROPPED"}

    def create(self, name):
        self.tables[name_of(name)] = str(uuid4())

    def load_table(self, identifier, *, vend=True, snapshots="all"):
        summary = {"total-data-files": "10", "total-delete-files": "2", "total-files-size": "4096"}
        metadata = {"current-snapshot-id": 1, "snapshots": [{"snapshot-id": 1, "summary": summary}]}
        properties = self.properties.get(identifier, {})
        return SimpleNamespace(metadata=metadata, table_uuid=self.tables[identifier], properties=properties)

    def list_tables(self, catalog, namespace):
        return iter(sorted((one for one in self.tables if one.namespace == namespace), key=str))

    def list_namespaces(self, catalog, parent=()):
        if parent not in self.namespaces:
            raise NoSuchNamespace("no such namespace")
        return iter(sorted(one for one in self.namespaces if one[:-1] == parent))

    def purge_table(self, identifier, headers):
        with self.lock:
            return self._purge(identifier, headers)

    def _purge(self, identifier, headers):
        wanted = headers["X-Delegation-Table-Uuid"]
        self.keys.append(headers["Idempotency-Key"])
        self.modes.append(headers["X-Delegation-Drop-Mode"])
        if self.kill_at == str(identifier) and not self.kill_late:
            raise Killed
        if identifier.name in self.refuses or headers["Idempotency-Key"] in self.refused_keys:
            raise PolarisForbidden("no TABLE_WRITE_DATA", status=403)
        if wanted in self.failed:
            raise PolarisError("KEPT_AS_TOMBSTONE: the purge was refused", status=409)
        if wanted not in self.dropped:
            found = self.tables.get(identifier)
            if found is None:
                raise NoSuchTable("gone", status=404)
            if found != wanted:
                raise PolarisError("TABLE_REPLACED: another table has the name", status=409)
            del self.tables[identifier]
            self.dropped.add(wanted)
        if self.created_meanwhile is not None:
            self.create(self.created_meanwhile)
        if self.kill_at == str(identifier):
            raise Killed
        return {"X-Delegation-Tombstone": f"t-{wanted}", **self.headers}

    def list_others(self, kind, catalog, namespace):
        found = [one for known, one in self.others if known == kind and one.namespace == namespace]
        return iter(sorted(found, key=str))

    def load_other(self, kind, identifier):
        if (kind, identifier) not in self.others:
            raise NoSuchTable("gone", status=404)
        uuid = self.others[kind, identifier]
        return {"metadata": {"view-uuid": uuid}} if kind == VIEW else {"table": {"doc": uuid}}

    def drop_other(self, kind, identifier):
        self.load_other(kind, identifier)
        if identifier.name in self.refuses:
            raise PolarisForbidden("no VIEW_DROP", status=403)
        del self.others[kind, identifier]

    def drop_namespace(self, catalog, namespace):
        if any(one.namespace == namespace for _, one in self.others):
            raise NamespaceNotEmpty("not empty", status=409)
        if any(one.namespace == namespace for one in self.tables):
            raise NamespaceNotEmpty("not empty", status=409)
        if any(one[:-1] == namespace for one in self.namespaces):
            raise NamespaceNotEmpty("not empty", status=409)
        if namespace not in self.namespaces:
            raise NoSuchNamespace("no such namespace")
        self.namespaces.remove(namespace)


@pytest.fixture
def catalog(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    found = MemoryCatalog()
    monkeypatch.setattr(Connection, "catalog_through_gateway", lambda _self: found)
    return found


def written_in(path):
    """The receipt of a file."""
    return ReceiptFile.opened(path).receipt


def names(catalog):
    return {str(one) for one in catalog.tables}


def test_everything_below_is_dropped_and_the_namespaces_the_deepest_first(run, catalog, stack, tmp_path):
    words = ("drop-namespace", "lake.sales", "--cascade", "--yes", "--key", "k", "--receipt", str(tmp_path / "r.json"))
    (document,) = lines(run(*words, "--json", "--stack", str(stack)).stdout)
    assert (document["complete"], document["tables"], document["left"]) == (True, {"dropped": 3}, [])
    written = written_in(tmp_path / "r.json")
    assert {entry.outcome for entry in written.tables} == {"dropped"}
    assert (written.tables[0].files, written.tables[0].bytes) == (12, 4096)
    assert document["namespaces_dropped"] == ["lake.sales.eu.old", "lake.sales.eu", "lake.sales"]
    assert (names(catalog), catalog.namespaces) == ({"lake.hr.people"}, {("hr",)})
    assert len(set(catalog.keys)) == 3
    assert all(key.startswith("k.") for key in catalog.keys)
    assert (written.complete, written.namespaces_dropped) == (True, tuple(document["namespaces_dropped"]))


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
    catalog.properties[name_of("lake.sales.eu.orders")] = properties
    result = run("drop-namespace", "lake.sales", "--cascade", "--yes", "--json", "--stack", str(stack))
    error = json.loads(result.stderr)
    assert (result.exit_code, error["error_code"]) == (3, "TABLES_REFUSED")
    assert "sales.eu.orders" in error["message"]
    assert (len(catalog.tables), catalog.keys) == (4, [])


def test_a_refused_table_is_named_and_no_namespace_is_dropped(run, catalog, stack):
    catalog.refuses.add("orders")
    result = run("drop-namespace", "lake.sales", "--cascade", "--yes", "--key", "k", "--json", "--stack", str(stack))
    (document,) = lines(result.stdout)
    kept = {entry["table"]: entry["problem"] for entry in document["left"]}
    assert document["tables"] == {"dropped": 1, "kept": 2}
    assert set(kept) == {"lake.sales.orders", "lake.sales.eu.orders"}
    assert (document["namespaces_dropped"], document["complete"]) == ([], False)
    assert all("TABLE_WRITE_DATA" in problem for problem in kept.values())
    error = json.loads(result.stderr)
    assert (result.exit_code, error["error_code"]) == (4, "NAMESPACE_NOT_DROPPED")
    assert "--receipt delegation-drop-k.json" in error["next_step"]
    assert len(catalog.namespaces) == 4
    catalog.refuses.clear()
    again = run("drop-namespace", "lake.sales", "--cascade", "--yes", "--key", "k", "--stack", str(stack))
    assert (again.exit_code, catalog.namespaces) == (0, {("hr",)})


def test_a_refusal_that_the_gateway_keeps_with_its_key_does_not_keep_the_table(run, catalog, stack):
    """The cause is removed, and the rerun asks with another key."""
    catalog.refuses.add("orders")
    words = ("drop-namespace", "lake.sales", "--cascade", "--yes", "--key", "k", "--json", "--stack", str(stack))
    assert run(*words).exit_code == 4
    catalog.refused_keys, catalog.refuses = set(catalog.keys), set()
    assert run(*words).exit_code == 0
    assert names(catalog) == {"lake.hr.people"}


def with_others(catalog):
    view, generic = name_of("lake.sales.eu.report"), name_of("lake.sales.images")
    catalog.others = {(VIEW, view): "v-1", (GENERIC_TABLE, generic): "g-1"}
    return catalog


@pytest.mark.parametrize(
    ("options", "named"),
    [((), ("report", "images")), (("--drop-views",), ("images",)), (("--drop-generic-tables",), ("report",))],
)
def test_views_and_generic_tables_are_found_before_anything_is_dropped(run, catalog, stack, options, named):
    with_others(catalog)
    result = run("drop-namespace", "lake.sales", "--cascade", "--yes", "--json", *options, "--stack", str(stack))
    error = json.loads(result.stderr)
    assert (result.exit_code, error["error_code"], catalog.keys) == (3, "OTHERS_REFUSED", [])
    assert {one for one in ("report", "images") if one in error["message"]} == set(named)
    assert ("--drop-views" in error["next_step"]) == ("report" in named)
    assert len(catalog.others) == 2


def test_views_and_generic_tables_are_dropped_first_if_that_is_said(run, catalog, stack):
    with_others(catalog)
    both = ("--drop-views", "--drop-generic-tables")
    catalog.refuses.add("report")
    words = ("drop-namespace", "lake.sales", "--cascade", "--yes", "--json", *both, "--receipt", "r.json")
    result = run(*words, "--stack", str(stack))
    (document,) = lines(result.stdout)
    assert (result.exit_code, catalog.keys) == (4, [])  # no table is purged while a view is left
    assert "1 view was not dropped, so no table was" in document["problem"]
    catalog.refuses.clear()
    result = run(*words, "--stack", str(stack))
    assert (result.exit_code, catalog.others, catalog.namespaces) == (0, {}, {("hr",)})


def test_a_view_that_was_made_anew_meanwhile_is_not_dropped(run, catalog, stack):
    with_others(catalog)
    words = ("drop-namespace", "lake.sales", "--cascade", "--yes", "--json", "--drop-views", "--drop-generic-tables")
    catalog.refuses.add("report")
    assert run(*words, "--receipt", "r.json", "--stack", str(stack)).exit_code == 4
    catalog.refuses.clear()
    catalog.others[VIEW, name_of("lake.sales.eu.report")] = "v-2"
    result = run(*words, "--receipt", "r.json", "--stack", str(stack))
    assert (result.exit_code, "another view now has the name" in result.stdout, catalog.keys) == (4, True, [])


def test_a_namespace_of_many_tables_is_dropped_with_a_line_for_each_and_one_summary(run, catalog, stack, tmp_path):
    """Above 200 tables the result of the former parent task was too large; 50,000 is only a larger number here."""
    for number in range(MANY):
        catalog.create(f"lake.sales.t{number}")
    words = ("drop-namespace", "lake.sales", "--cascade", "--yes", "--no-wait", "--parallel", "16", "--receipt", "r")
    result = run(*words, "--stack", str(stack))
    assert (result.exit_code, names(catalog)) == (0, {"lake.hr.people"})
    assert f"Dropped {MANY + 3:,} of {MANY + 3:,} tables and 3 of 3 namespaces" in result.stdout
    assert len(result.stdout.splitlines()) < 230
    tables = MANY + 3
    assert len((tmp_path / "r").read_text().splitlines()) == 1 + 2 * tables + 3
    assert set(catalog.modes) == {"at-once"}


def test_what_somebody_else_drops_while_all_is_listed_is_left_out(run, catalog, stack, monkeypatch):
    """Of 50,000 tables some are dropped while the others are loaded: that ended the command, each time anew."""
    with_others(catalog)
    load, loads, spaces = catalog.load_table, catalog.load_other, catalog.list_namespaces

    def load_table(identifier, **how):
        if identifier.name != "orders":
            raise NoSuchTable("gone", status=404)
        return load(identifier, **how)

    def load_other(kind, identifier):
        catalog.others.pop((VIEW, identifier), None)
        return loads(kind, identifier)

    def list_namespaces(name, parent=()):
        return iter([*spaces(name, parent), *([("sales", "gone")] if parent == ("sales",) else [])])

    for function in (load_table, load_other, list_namespaces):
        monkeypatch.setattr(catalog, function.__name__, function)
    options = ("--cascade", "--drop-generic-tables", "--dry-run", "--json")
    result = run("drop-namespace", "lake.sales", *options, "--stack", str(stack))
    (document,) = lines(result.stdout)
    found = [one["table"] for one in document["tables"]]
    assert found == ["lake.sales.images", "lake.sales.orders", "lake.sales.eu.orders"]
    assert document["namespaces"] == [["sales", "eu", "old"], ["sales", "eu"], ["sales"]]


def test_of_many_refused_tables_the_message_names_the_first(run, catalog, stack):
    for number in range(300):
        catalog.create(f"lake.sales.t{number}")
        catalog.properties[name_of(f"lake.sales.t{number}")] = {"delegation.protected": "true"}
    result = run("drop-namespace", "lake.sales", "--cascade", "--yes", "--json", "--stack", str(stack))
    message = json.loads(result.stderr)["message"]
    assert (result.exit_code, "300 tables must not be purged" in message, "and 280 more" in message) == (3, True, True)
    assert len(message) < 2_000


def test_a_table_created_meanwhile_keeps_its_namespace(run, catalog, stack):
    catalog.created_meanwhile = "lake.sales.new"
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
