"""Receipts of a cascade: a rerun resumes, whatever ended the first run, and never drops what was created meanwhile."""

import json
from contextlib import suppress
from pathlib import Path

import pytest

from delegation.cli.connection import Connection
from delegation.cli.tombstones.receipts import ReceiptFile
from delegation.storage.memory import Faults, Killed
from tests.unit.cli.conftest import lines
from tests.unit.cli.tombstones.test_drop_namespace import catalog, name_of, names, with_others, written_in

__all__ = ["catalog"]
RECEIPT = "r.json"
TABLES = ("lake.sales.orders", "lake.sales.eu.orders", "lake.sales.eu.old.t")


@pytest.fixture
def cascade(run, stack):
    def command(*words):
        return run(
            "drop-namespace", "lake.sales", "--cascade", "--yes", "--json", "--receipt", RECEIPT, *words,
            "--stack", str(stack),
        )  # fmt: skip

    return command


def outcomes():
    return {entry.table: entry.outcome for entry in written_in(Path(RECEIPT)).tables}


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("table", TABLES)
def test_a_killed_cascade_resumes_and_its_receipt_has_every_table(cascade, catalog, table, late):
    catalog.kill_at, catalog.kill_late = table, late
    with pytest.raises(Killed):
        cascade()
    assert set(outcomes()) == set(TABLES)
    key = written_in(Path(RECEIPT)).idempotency_key
    catalog.kill_at = None
    result = cascade()
    (document,) = lines(result.stdout)
    assert (result.exit_code, document["complete"], document["idempotency_key"]) == (0, True, key)
    assert set(outcomes().items()) == {(one, "dropped") for one in TABLES}
    assert (names(catalog), catalog.namespaces) == ({"lake.hr.people"}, {("hr",)})
    assert len(set(catalog.keys)) == 3
    assert written_in(Path(RECEIPT)).complete


class CountedCatalog:
    """A catalog whose calls count in `faults`, as do the writes of receipts."""

    def __init__(self, catalog, faults):
        self._catalog, self._faults = catalog, faults

    def __getattr__(self, name):
        method = getattr(self._catalog, name)

        def counted(*arguments, **named):
            with self._faults.call(name):
                return method(*arguments, **named)

        return counted


@pytest.fixture
def killed_at(cascade, catalog, monkeypatch):
    """A function that runs the command in a process that is killed at one of its calls; returns their names."""
    append = ReceiptFile._append

    def run(faults, *words):
        def counted(file, document):
            with faults.call("append"):
                append(file, document)

        with monkeypatch.context() as patched:
            patched.setattr(ReceiptFile, "_append", counted)
            patched.setattr(Connection, "catalog_through_gateway", lambda _self: CountedCatalog(catalog, faults))
            with suppress(Killed):
                cascade("--parallel", "1", *OTHERS, *words)
        return faults.names

    return run


OTHERS = ("--drop-views", "--drop-generic-tables")


def refilled(catalog):
    """Make the catalog as it was at first, with a view and a generic table."""
    catalog.__init__()
    return with_others(catalog)


def test_a_cascade_killed_at_any_call_is_resumed_and_drops_each_table_once(killed_at, catalog):
    refilled(catalog)
    names_of_calls = list(killed_at(Faults()))
    for number in range(1, len(names_of_calls) + 1):
        for after in (False, True):
            Path(RECEIPT).unlink(missing_ok=True)
            refilled(catalog)
            wanted = {uuid for table, uuid in catalog.tables.items() if str(table) in TABLES}
            killed_at(Faults(kill_at=number, after=after))
            killed_at(Faults())
            call = f"{'after' if after else 'before'} {number} {names_of_calls[number - 1]}"
            assert (catalog.dropped, names(catalog)) == (wanted, {"lake.hr.people"}), call
            assert (catalog.others, catalog.namespaces) == ({}, {("hr",)}), call
            found = written_in(Path(RECEIPT))
            assert found.complete, call
            assert all(entry.is_done for entry in found.tables), call


def test_a_line_that_a_kill_left_half_written_is_not_read(cascade, catalog):
    catalog.refuses.add("t")
    assert cascade().exit_code == 4
    whole = Path(RECEIPT).read_bytes()
    Path(RECEIPT).write_bytes(whole[: whole.rindex(b'"outcome":"dropped"') + 8])
    assert list(outcomes().values()).count("pending") >= 1
    catalog.refuses.clear()
    assert cascade().exit_code == 0
    assert set(outcomes().values()) == {"dropped"}


def test_a_refusal_that_was_not_written_down_is_asked_anew_with_another_key(cascade, catalog):
    catalog.refuses.add("t")
    cascade()
    first = list(catalog.keys)
    lines_of = Path(RECEIPT).read_bytes().splitlines(keepends=True)
    Path(RECEIPT).write_bytes(b"".join(line for line in lines_of if b'"kept"' not in line))
    catalog.refused_keys, catalog.refuses = set(first), set()
    assert cascade().exit_code == 0
    assert len(catalog.keys) == len(first) + 2


def test_the_receipt_of_the_former_release_is_resumed(cascade, catalog):
    tables = [
        {"table": name, "namespace": name.split(".")[1:-1], "name": name.split(".")[-1],
         "table_uuid": catalog.tables[name_of(name)], "outcome": "pending"}
        for name in TABLES
    ]  # fmt: skip
    places = [["sales", "eu", "old"], ["sales", "eu"], ["sales"]]
    document = {"catalog": "lake", "namespace": ["sales"], "idempotency_key": "k", "tables": tables}
    text = json.dumps({**document, "namespaces": places, "namespaces_dropped": [], "complete": False}, indent=1)
    Path(RECEIPT).write_text(text + "\n")
    assert cascade().exit_code == 0
    assert names(catalog) == {"lake.hr.people"}
    assert {key.split(".")[0] for key in catalog.keys} == {"k"}
    assert written_in(Path(RECEIPT)).complete


def test_a_resumed_cascade_says_that_a_purge_was_refused_meanwhile(cascade, catalog):
    catalog.kill_at, catalog.kill_late = "lake.sales.orders", True
    with pytest.raises(Killed):
        cascade()
    catalog.kill_at, catalog.failed = None, set(catalog.dropped)
    result = cascade()
    assert (result.exit_code, lines(result.stdout)[0]["complete"]) == (4, False)
    assert outcomes()["lake.sales.orders"] == "kept"
    assert ("sales",) in catalog.namespaces


def test_a_table_that_was_made_anew_meanwhile_is_not_dropped(cascade, catalog):
    catalog.refuses.add("t")
    assert cascade().exit_code == 4
    catalog.refuses.clear()
    del catalog.tables[name_of("lake.sales.eu.old.t")]
    catalog.create("lake.sales.eu.old.t")
    catalog.create("lake.sales.orders")
    result = cascade()
    assert (result.exit_code, outcomes()["lake.sales.eu.old.t"]) == (4, "kept")
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
    assert written_in(Path("delegation-drop-k.json")).complete


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
    assert "files of 3 tables will be deleted after a grace period" in " ".join(text.split())
    (entry, *_) = written_in(Path(RECEIPT)).tables
    assert (entry.state, entry.purge_after) == ("RENAMED", "2026-11-23T00:00:00.000000Z")
    assert entry.tombstone == f"t-{entry.table_uuid}"
