"""`delegation references lost` and `dismiss`."""

import json
from datetime import timedelta

import pytest

from delegation.identifiers import TableIdentifier
from delegation.references.model import LostRefs
from delegation.timestamps import utc_now


def lost_refs(**fields: object) -> LostRefs:
    now = utc_now()
    values = {
        "identifier": TableIdentifier("lake", ("sales",), "orders"),
        "table_uuid": "00000000-0000-4000-8000-000000000001",
        "metadata_file": "s3://lake/orders/metadata/7.metadata.json",
        "copy": "lost-refs/7.metadata.json",
        "refs": {"audit": 17},
        "count": 2,
        "task_id": "task-1",
        "at": now,
        "until": now + timedelta(days=90),
    }
    return LostRefs(**{**values, **fields})  # type: ignore[arg-type]


def test_what_is_kept_is_listed_with_what_restores_and_what_dismisses_it(run, index, stack):
    lost = lost_refs()
    index.put_lost_refs(lost)
    index.put_lost_refs(lost_refs(metadata_file="s3://lake/over.json", until=utc_now()))
    text = run("references", "lost", "lake", "--stack", str(stack)).stdout
    assert text.startswith("lake.sales.orders\n")
    assert "2 refs (audit, …) lost" in text
    assert "CALL `lake`.system.register_table(table => '`sales`.`orders_restored`', metadata_file => " in text
    assert f"delegation references dismiss lake {lost.key}" in text
    assert "over.json" not in text


def test_json_has_everything(run, index, stack):
    index.put_lost_refs(lost_refs())
    [one] = json.loads(run("references", "lost", "lake", "--stack", str(stack), "--json").stdout)["lost"]
    assert (one["refs"], one["refs_count"], one["copy"]) == ({"audit": "17"}, 2, "lost-refs/7.metadata.json")


def test_nothing_that_is_kept_is_said(run, index, stack):
    text = run("references", "lost", "empty", "--stack", str(stack)).stdout
    assert text == "No files are kept in empty for lost branches or tags.\n"


def test_what_is_dismissed_is_kept_no_more_and_an_unknown_id_is_an_error(run, index, stack):
    lost = lost_refs()
    index.put_lost_refs(lost)
    command = ("references", "dismiss", "lake", lost.key, "--yes", "--stack", str(stack))
    assert "no longer kept for 2 refs" in run(*command).stdout
    assert index.lost_refs("lake") == []
    again = run(*command)
    assert again.exit_code == 1
    assert "no files are kept in lake for lost refs" in again.stderr


@pytest.mark.parametrize("columns", [80, 160])
def test_a_table_with_any_name_breaks_no_terminal(run, index, stack, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    index.put_lost_refs(lost_refs(identifier=TableIdentifier("lake", ("a.b",), "x\x1b[31m"), refs={"\x1b[31m": 1}))
    text = run("references", "lost", "lake", "--stack", str(stack)).stdout
    assert "\x1b" not in text
