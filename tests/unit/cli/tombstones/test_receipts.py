"""Receipts of a cascade: a rerun resumes, whatever ended the first run, and never drops what was created meanwhile."""

import json
from pathlib import Path

import pytest

from delegation.cli.connection import Connection
from tests.unit.cli.conftest import lines
from tests.unit.cli.tombstones.test_drop_namespace import Killed, MemoryCatalog, name_of, names

RECEIPT = "r.json"
TABLES = ("lake.sales.orders", "lake.sales.eu.orders", "lake.sales.eu.old.t")


@pytest.fixture
def catalog(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    found = MemoryCatalog()
    monkeypatch.setattr(Connection, "catalog_through_gateway", lambda _self, _timeout: found)
    return found


@pytest.fixture
def cascade(run, stack):
    def command(*words):
        return run(
            "drop-namespace", "lake.sales", "--cascade", "--yes", "--json", "--receipt", RECEIPT, *words,
            "--stack", str(stack),
        )  # fmt: skip

    return command


def outcomes(text):
    return {entry["table"]: entry["outcome"] for entry in json.loads(text)["tables"]}


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("table", TABLES)
def test_a_killed_cascade_resumes_and_its_receipt_has_every_table(cascade, catalog, table, late):
    catalog.kill_at, catalog.kill_late = table, late
    with pytest.raises(Killed):
        cascade()
    assert set(outcomes(Path(RECEIPT).read_text())) == set(TABLES)
    key = json.loads(Path(RECEIPT).read_text())["idempotency_key"]
    catalog.kill_at = None
    result = cascade()
    (document,) = lines(result.stdout)
    assert (result.exit_code, document["complete"], document["idempotency_key"]) == (0, True, key)
    assert set(outcomes(result.stdout).items()) == {(one, "dropped") for one in TABLES}
    assert (names(catalog), catalog.namespaces) == ({"lake.hr.people"}, {("hr",)})
    assert len(set(catalog.keys)) == 3
    assert json.loads(Path(RECEIPT).read_text()) == document


def test_a_resumed_cascade_says_that_a_purge_was_refused_meanwhile(cascade, catalog):
    catalog.kill_at, catalog.kill_late = "lake.sales.orders", True
    with pytest.raises(Killed):
        cascade()
    catalog.kill_at, catalog.failed = None, set(catalog.dropped)
    result = cascade()
    assert (result.exit_code, lines(result.stdout)[0]["complete"]) == (4, False)
    assert outcomes(result.stdout)["lake.sales.orders"] == "kept"
    assert ("sales",) in catalog.namespaces


def test_a_table_that_was_made_anew_meanwhile_is_not_dropped(cascade, catalog):
    catalog.refuses.add("t")
    assert cascade().exit_code == 4
    catalog.refuses.clear()
    del catalog.tables[name_of("lake.sales.eu.old.t")]
    catalog.create("lake.sales.eu.old.t")
    catalog.create("lake.sales.orders")
    result = cascade()
    assert (result.exit_code, outcomes(result.stdout)["lake.sales.eu.old.t"]) == (4, "kept")
    assert {"lake.sales.eu.old.t", "lake.sales.orders"} <= names(catalog)
    assert "TABLE_REPLACED" in result.stdout


def test_a_complete_receipt_is_shown_again_and_changes_nothing(cascade, catalog):
    first = cascade()
    catalog.namespaces.add(("sales",))
    catalog.create("lake.sales.orders")
    written = Path(RECEIPT).stat().st_ino
    again = cascade()
    assert Path(RECEIPT).stat().st_ino == written
    assert (again.exit_code, again.stdout) == (0, first.stdout)
    assert "lake.sales.orders" in names(catalog)
    assert len(catalog.keys) == 3


def test_a_namespace_that_was_made_anew_meanwhile_is_not_dropped(cascade, catalog):
    catalog.created_meanwhile = "lake.sales.new"
    assert cascade().exit_code == 4
    catalog.namespaces.add(("sales", "eu"))
    catalog.tables.pop(name_of("lake.sales.new"))
    result = cascade()
    assert (result.exit_code, catalog.namespaces) == (4, {("sales",), ("sales", "eu"), ("hr",)})


def test_without_a_name_the_receipt_is_written_to_one_with_the_key(run, catalog, stack):
    words = ("drop-namespace", "lake.sales", "--cascade", "--yes", "--key", "k", "--stack", str(stack))
    text = run(*words).stdout
    assert "delegation-drop-k.json" in text
    assert json.loads(Path("delegation-drop-k.json").read_text())["complete"]


@pytest.mark.parametrize(
    ("text", "words", "why"),
    [
        ("{", (), "is not the receipt of a cascade"),
        ('{"catalog": "lake"}', (), "is not the receipt of a cascade: namespace"),
        (None, ("--key", "another"), "the cascade with the key first"),
    ],
)
def test_a_file_that_is_not_this_receipt_is_left_as_it_is(cascade, catalog, text, words, why):
    if text is None:
        catalog.refuses.add("t")
        cascade("--key", "first")
    else:
        Path(RECEIPT).write_text(text)
    before, dropped = Path(RECEIPT).read_text(), len(catalog.keys)
    result = cascade(*words)
    error = json.loads(result.stderr)
    assert (result.exit_code, error["error_code"], why in error["message"]) == (2, "RECEIPT_UNUSABLE", True)
    assert (Path(RECEIPT).read_text(), len(catalog.keys)) == (before, dropped)


def test_the_receipt_of_another_namespace_is_refused(cascade, run, catalog, stack):
    cascade()
    result = run("drop-namespace", "lake.hr", "--cascade", "--yes", "--receipt", RECEIPT, "--stack", str(stack))
    assert (result.exit_code, names(catalog)) == (2, {"lake.hr.people"})


def test_nothing_is_dropped_if_the_receipt_cannot_be_written(run, catalog, stack, tmp_path):
    (tmp_path / "file").touch()
    place = str(tmp_path / "file" / RECEIPT)
    words = ("drop-namespace", "lake.sales", "--cascade", "--yes", "--json", "--receipt", place)
    result = run(*words, "--stack", str(stack))
    assert (result.exit_code, json.loads(result.stderr)["error_code"]) == (2, "RECEIPT_UNUSABLE")
    assert (len(catalog.tables), catalog.keys) == (4, [])


def test_the_grace_period_of_the_files_is_in_the_receipt(run, catalog, stack):
    catalog.headers = {
        "X-Delegation-Tombstone-State": "RENAMED",
        "X-Delegation-Purge-After": "2026-11-23T00:00:00.000000Z",
    }
    words = ("drop-namespace", "lake.sales", "--cascade", "--yes", "--receipt", RECEIPT, "--stack", str(stack))
    text = run(*words).stdout
    assert "files of 3 tables are deleted after a grace period" in " ".join(text.split())
    (entry, *_) = json.loads(Path(RECEIPT).read_text())["tables"]
    assert (entry["state"], entry["purge_after"]) == ("RENAMED", "2026-11-23T00:00:00.000000Z")
    assert entry["tombstone"] == f"t-{entry['table_uuid']}"
