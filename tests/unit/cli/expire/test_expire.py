"""`delegation expire`: what it sends, what it shows beforehand, and what it refuses to send."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from delegation.timestamps import isoformat
from tests.unit.cli.conftest import IDENTITY, IN_CATALOG, TABLE, lines, sent
from tests.unit.client.service import TASK_ID, TASKS
from tests.unit.polaris.scripted import raw_json

UUID = "9c12d441-03fe-4693-9a96-a0705ddf69c1"


def snapshot(number: int, days: float, **more: Any) -> dict[str, Any]:
    at = datetime.now(UTC) - timedelta(days=days)
    listed = f"s3://lake/orders/metadata/snap-{number}.avro"
    return {"snapshot-id": number, "timestamp-ms": int(at.timestamp() * 1000), "manifest-list": listed, **more}


def loaded(polaris, **changed: Any) -> None:
    """Let the catalog have a table of five snapshots, one of them staged, with a tag and a branch."""
    metadata = {
        "format-version": 2,
        "table-uuid": UUID,
        "location": "s3://lake/orders",
        "last-updated-ms": 1,
        "properties": {},
        "current-snapshot-id": 4,
        "current-schema-id": 1,
        "schemas": [{"schema-id": 0}, {"schema-id": 1}],
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0}],
        "snapshots": [
            snapshot(1, 30, **{"schema-id": 0}),
            snapshot(2, 20, **{"parent-snapshot-id": 1, "schema-id": 1}),
            snapshot(3, 2, **{"parent-snapshot-id": 2, "schema-id": 1}),
            snapshot(4, 1, **{"parent-snapshot-id": 3, "schema-id": 1}),
            snapshot(9, 3, **{"parent-snapshot-id": 2, "schema-id": 1}),
        ],
        "refs": {
            "main": {"snapshot-id": 4, "type": "branch"},
            "audit": {"snapshot-id": 2, "type": "tag"},
            "old": {"snapshot-id": 1, "type": "branch", "max-ref-age-ms": 1},
        },
        **changed,
    }
    answer = {"metadata-location": "s3://lake/orders/metadata/7.metadata.json", "metadata": metadata, "config": {}}
    polaris.answer("GET", IN_CATALOG, raw_json(json.dumps(answer)))


def test_it_sends_the_identity_and_the_options_that_were_given(run, accepting, stack):
    words = ("--older-than", "now", "--retain-last", "3", "--snapshot-id", "7", "--snapshot-id", "-8")
    result = run("expire", TABLE, *words, "--max-ref-age", "2d", "--clean-expired-metadata", "--stack", str(stack))
    assert result.exit_code == 0, result.stderr
    assert TASK_ID in result.stdout
    assert "without purge" not in result.stdout
    body = sent(accepting)
    assert body["common_payload"]["operation_type"] == "TABLE_EXPIRE_SNAPSHOTS"
    assert body["operation_parameters"] == {
        "table_identity": IDENTITY,
        "properties": {
            "older-than": "now",
            "retain-last": "3",
            "snapshot-ids": "7,-8",
            "max-ref-age-ms": str(2 * 86_400_000),
            "clean-expired-metadata": "true",
        },
    }


@pytest.mark.parametrize(
    ("given", "property_"),
    [
        # A request with an age is the same tomorrow, and attaches to or resumes the task of today.
        ("7d", {"max-snapshot-age-ms": str(7 * 86_400_000)}),
        ("PT36H", {"max-snapshot-age-ms": str(36 * 3_600_000)}),
        ("2026-11-01", {"older-than": "2026-11-01T00:00:00Z"}),
        ("2026-11-01T02:00:00+02:00", {"older-than": "2026-11-01T02:00:00+02:00"}),
    ],
)
def test_times_are_read_as_people_write_them(run, accepting, stack, given, property_):
    run("expire", TABLE, "--older-than", given, "--stack", str(stack))
    assert sent(accepting)["operation_parameters"]["properties"] == property_


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("--older-than", "yesterday"), "--older-than"),
        (("--older-than", isoformat(datetime.now(UTC) + timedelta(days=1))), "--older-than"),
        (("--older-than", "0s"), "--older-than"),
        (("--older-than", "2026-11-01T00:00:00"), "--older-than"),
        (("--retain-last", "0"), "--retain-last"),
        (("--retain-last", "10000000000"), "--retain-last"),
        (("--max-ref-age", "x"), "--max-ref-age"),
        (("--snapshot-id", "x"), "--snapshot-id"),
        (("--snapshot-id", str(2**63)), "--snapshot-id"),
        (tuple(word for one in range(51) for word in ("--snapshot-id", str(one))), "--snapshot-id"),
        (("--plan", "x"), "--plan"),
        (("--plan", f"{UUID}/1/ab", "--dry-run"), "--plan"),
    ],
)
def test_what_the_service_would_refuse_is_not_sent(run, accepting, stack, words, option):
    refused = run("expire", TABLE, *words, "--stack", str(stack))
    assert refused.exit_code == 2
    assert option in refused.stderr
    assert accepting.asked("POST", TASKS) == []


def test_it_asks_before_it_expires_anything(run, accepting, stack, monkeypatch):
    monkeypatch.setattr("delegation.cli.calls.at_a_terminal", lambda: True)
    left = run("expire", TABLE, "--stack", str(stack), given="n\n")
    assert left.exit_code == 1
    assert "permanently deletes the files" in left.stderr
    assert accepting.asked("POST", TASKS) == []
    assert run("expire", TABLE, "--stack", str(stack), "--yes").exit_code == 0


def test_dry_run_shows_what_expires_and_why_the_rest_stays(run, accepting, polaris, stack, monkeypatch):
    monkeypatch.setattr("delegation.cli.calls.at_a_terminal", lambda: True)
    loaded(polaris)
    result = run("expire", TABLE, "--dry-run", "--retain-last", "2", "--snapshot-id", "5", "--stack", str(stack))
    assert result.exit_code == 0, result.stderr
    shown = {line.split()[0]: line.rstrip() for line in result.stdout.splitlines() if line.strip()}
    assert shown["1"].endswith("expires")
    assert shown["2"].endswith("kept: tag audit points to it")
    assert "kept: " in shown["3"]
    assert shown["4"].endswith("kept: branch main points to it")
    assert shown["9"].endswith("kept: no branch or tag reaches it, but it is not old enough")
    assert "kept: main never expires" in result.stdout
    assert "tag audit" in result.stdout
    assert "kept: it has no age limit" in result.stdout
    assert "The table has no snapshot 5" in result.stdout
    assert "Expires: 1 of 5 snapshots, 1 of 3 refs." in result.stdout
    assert sent(accepting)["operation_parameters"]["properties"]["dry-run"] == "true"


def test_dry_run_as_json_is_one_document(run, accepting, polaris, stack):
    loaded(polaris)
    words = ("--clean-expired-metadata", "--max-ref-age", "25d", "--json")
    [document] = lines(run("expire", TABLE, "--dry-run", *words, "--stack", str(stack)).stdout)
    assert document["delegation_task_id"] == TASK_ID
    assert document["metadata_location"] == "s3://lake/orders/metadata/7.metadata.json"
    found = {one["snapshot_id"]: (one["expires"], one.get("why"), one.get("ref")) for one in document["snapshots"]}
    assert found == {
        1: (True, None, None),
        2: (False, "ref", "audit"),
        3: (False, "age", "main"),
        4: (False, "ref", "main"),
        9: (False, "unreferenced", None),
    }
    refs = {one["name"]: (one["type"], one["expires"], one["max_ref_age_ms"]) for one in document["refs"]}
    assert refs == {
        "main": ("branch", False, None),
        "audit": ("tag", False, 25 * 86_400_000),
        "old": ("branch", True, None),
    }
    assert document["expired_schema_ids"] == [0]
    assert document["unknown_snapshot_ids"] == []


def test_dry_run_of_many_snapshots_shows_the_newest(run, accepting, polaris, stack):
    many = [snapshot(number, 1_000 - number) for number in range(1, 301)]
    loaded(polaris, snapshots=many, **{"current-snapshot-id": 300}, refs={})
    result = run("expire", TABLE, "--dry-run", "--stack", str(stack))
    assert result.exit_code == 1  # a current snapshot without a branch
    loaded(
        polaris, snapshots=many, **{"current-snapshot-id": 300}, refs={"main": {"snapshot-id": 300, "type": "branch"}}
    )
    result = run("expire", TABLE, "--dry-run", "--stack", str(stack))
    assert result.exit_code == 0, result.stderr
    assert "The newest 200 snapshots are shown" in result.stdout
    assert "Expires: 299 of 300 snapshots" in result.stdout


@pytest.mark.parametrize("properties", [{"gc.enabled": "false"}, {"delegation.protected": "true"}])
def test_dry_run_of_a_table_that_must_stay_as_it_is_sends_nothing(run, accepting, polaris, stack, properties):
    loaded(polaris, properties=properties)
    result = run("expire", TABLE, "--dry-run", "--stack", str(stack))
    assert result.exit_code != 0
    assert next(iter(properties)) in result.stderr
    assert accepting.asked("POST", TASKS) == []


def test_a_time_that_no_clock_has_is_shown_as_its_number(run, accepting, polaris, stack):
    odd = [snapshot(1, 1), {**snapshot(2, 1), "timestamp-ms": 2**62}]
    loaded(polaris, snapshots=odd, **{"current-snapshot-id": 1}, refs={"main": {"snapshot-id": 1, "type": "branch"}})
    result = run("expire", TABLE, "--dry-run", "--stack", str(stack))
    assert result.exit_code == 0, result.stderr
    assert str(2**62) in result.stdout
