"""`delegation orphans`: what it sends, what it asks beforehand, and what it refuses to send."""

import json
from typing import Any

import pytest

from delegation.identifiers import TableIdentifier
from delegation.removal.orphans.behavior import success
from delegation.removal.orphans.context import OrphanResult
from tests.unit.cli.conftest import IDENTITY, TABLE, sent
from tests.unit.client.service import TASK_ID, TASKS, json_answer, record

PLAN = f"{TASK_ID}/1/ab12"


def planned(
    task_type: str = "ORPHAN_FILES", properties: dict[str, str] | None = None, **changed: Any
) -> dict[str, Any]:
    payload = {
        "common_payload": {"operation_type": task_type, "realm_identifier": "POLARIS"},
        "operation_parameters": {
            "table_identity": IDENTITY,
            "metadata_location": "s3://lake/orders/metadata/1.metadata.json",
            "metadata": {"location": "s3://lake/orders", "table-uuid": "u", "format-version": 2},
            "properties": properties or {},
        },
    }
    summary = "found 12 orphan files; nothing was deleted"
    found = {
        "status": "SUCCESS",
        "task_type": task_type,
        "result_summary": summary,
        "task_payload": json.dumps(payload),
    }
    return record(**found, **changed)


APPROVE = f"{TASKS}/{TASK_ID}/approve"
SHA = "0" * 64
WAITING = {"waits": "first-run", "waiting_plan": {"id": PLAN, "sha256": SHA}}
APPROVAL = {
    "plan": PLAN,
    "sha256": SHA,
    "by": {"client_id": "alice"},
    "at": "2026-11-21T12:00:00Z",
    "until": "2026-12-05T12:00:00Z",
}


def approving(service, task: dict[str, Any]) -> None:
    """Have the service know a task, and record approvals of its plan."""
    service.answer("GET", f"{TASKS}/{TASK_ID}", json_answer(200, task))
    service.answer("POST", APPROVE, json_answer(200, {**task, "approval": APPROVAL}))


def test_scan_asks_for_a_plan_and_deletes_nothing(run, accepting, stack):
    words = ("--older-than", "7d", "--equal-schemes", "cos,oss=store", "--equal-authorities", "a=b")
    result = run("orphans", "scan", TABLE, *words, "--prefix-mismatch-mode", "ignore", "--stack", str(stack))
    assert result.exit_code == 0, result.stderr
    assert TASK_ID in result.stdout
    body = sent(accepting)
    assert body["common_payload"]["operation_type"] == "ORPHAN_FILES"
    assert body["operation_parameters"] == {
        "table_identity": IDENTITY,
        "properties": {
            "file-age": "7d",
            "equal-schemes": "cos,oss=store",
            "equal-authorities": "a=b",
            "prefix-mismatch-mode": "ignore",
            "dry-run": "true",
        },
    }


def test_approve_names_the_table_of_the_plan_and_the_plan_alone(run, accepting, stack):
    approving(accepting, planned("ORPHAN_FILES_PLAN", plan_segments=SEGMENT))
    result = run("orphans", "approve", PLAN, "--including", TASK_ID.upper(), "--stack", str(stack))
    assert result.exit_code == 0, result.stderr
    [approval] = accepting.asked("POST", APPROVE)
    assert json.loads(approval.content) == {"plan": PLAN, "sha256": SHA, "including": [TASK_ID]}
    assert sent(accepting)["operation_parameters"] == {"table_identity": IDENTITY, "properties": {"plan": PLAN}}


def test_the_plan_of_a_policy_is_left_to_its_next_run(run, accepting, stack):
    approving(accepting, planned(properties={"upkeep-policy": "lake.gov.sweep"}, **WAITING))
    result = run("orphans", "approve", PLAN, "--stack", str(stack))
    assert result.exit_code == 0, result.stderr
    assert f"{PLAN}; the next run of the table's policy" in result.stdout
    assert len(accepting.asked("POST", APPROVE)) == 1
    assert accepting.asked("POST", TASKS) == []


def test_an_operator_who_may_not_submit_approves_all_the_same(run, accepting, stack):
    approving(accepting, planned(**WAITING))
    refused = json_answer(403, {"error_code": "PERMISSION_MISSING", "message": "may not submit tasks"})
    accepting.answer("POST", TASKS, refused)
    result = run("orphans", "approve", PLAN, "--stack", str(stack))
    assert result.exit_code == 0, result.stderr
    assert "Approved until 2026-12-05" in result.stdout
    assert "the next request for the table, or the next run of its policy" in result.stdout


def test_an_approval_that_is_refused_has_nothing_executed(run, accepting, stack):
    approving(accepting, planned(**WAITING))
    accepting.answer("POST", APPROVE, json_answer(403, {"error_code": "APPROVAL_NOT_ALLOWED", "message": "no"}))
    result = run("orphans", "approve", PLAN, "--stack", str(stack), "--json")
    assert result.exit_code == 1
    assert json.loads(result.stderr)["error_code"] == "APPROVAL_NOT_ALLOWED"
    assert accepting.asked("POST", TASKS) == []


def test_approve_shows_what_was_found_and_asks_first(run, accepting, stack, monkeypatch):
    monkeypatch.setattr("delegation.cli.calls.at_a_terminal", lambda: True)
    approving(accepting, planned())
    left = run("orphans", "approve", PLAN, "--stack", str(stack), given="n\n")
    assert left.exit_code == 1
    assert "lake.sales.eu.orders: found 12 orphan files.\nThis deletes the plan's files" in left.stderr
    assert "tags" in left.stderr  # neither the summary nor the request states which of the two the plan does
    assert "nothing was deleted" not in left.stderr
    assert accepting.asked("POST", TASKS) == []
    assert accepting.asked("POST", APPROVE) == []
    approving(accepting, planned())
    assert run("orphans", "approve", PLAN, "--stack", str(stack), "--yes").exit_code == 0


def summary_of_plan(*, is_quarantine: bool) -> str:
    """The service's own words, from which the command reads what the plan does."""
    found = OrphanResult(
        status="PLANNED",
        identifier=TableIdentifier("lake", ("sales", "eu"), "orders"),
        table_uuid="u",
        location="s3://lake/orders/",
        plan_ids=(PLAN,),
        files_planned=12,
        quarantine=is_quarantine,
    )
    return success(found, None)[0]


@pytest.mark.parametrize("stated", ["summary", "request"])
@pytest.mark.parametrize(("value", "verb", "other"), [("tag", "tags", "delete"), ("none", "deletes", "tag")])
def test_approve_asks_for_what_the_plan_does(run, accepting, stack, monkeypatch, stated, value, verb, other):
    monkeypatch.setattr("delegation.cli.calls.at_a_terminal", lambda: True)
    summary = summary_of_plan(is_quarantine=value == "tag")
    of_request = planned(properties={"quarantine": value})
    approving(accepting, of_request if stated == "request" else {**planned(), "result_summary": summary})
    asked = run("orphans", "approve", PLAN, "--stack", str(stack), given="n\n").stderr
    assert f"This {verb} the plan's files" in asked
    assert other not in asked.partition("This ")[2]


def test_a_plan_of_another_kind_or_of_no_task_is_not_approved(run, accepting, stack):
    accepting.answer("GET", f"{TASKS}/{TASK_ID}", json_answer(200, planned("TABLE_PURGE")))
    result = run("orphans", "approve", PLAN, "--stack", str(stack), "--json")
    assert result.exit_code == 1
    assert json.loads(result.stderr)["error_code"] == "PLAN_NOT_FOUND"
    missing = json_answer(404, {"error_code": "TASK_NOT_FOUND", "message": "none"})
    accepting.answer("GET", f"{TASKS}/{TASK_ID}", missing)
    assert run("orphans", "approve", PLAN, "--stack", str(stack)).exit_code == 1
    assert accepting.asked("POST", TASKS) == []


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("scan", TABLE, "--older-than", "23h"), "--older-than"),
        (("scan", TABLE, "--older-than", "yesterday"), "--older-than"),
        (("scan", TABLE, "--equal-schemes", "s3a"), "--equal-schemes"),
        (("scan", TABLE, "--equal-authorities", "="), "--equal-authorities"),
        (("scan", TABLE, "--prefix-mismatch-mode", "maybe"), "--prefix-mismatch-mode"),
        (("approve", "x"), "PLAN"),
        (("approve", PLAN, "--including", "orders"), "--including"),
    ],
)
def test_what_the_service_would_refuse_is_not_sent(run, accepting, stack, words, hint):
    refused = run("orphans", *words, "--stack", str(stack))
    assert refused.exit_code == 2
    assert hint in refused.stderr
    assert accepting.asked("POST", TASKS) == []


SEGMENT = [{"id": PLAN, "sha256": SHA}]


def followed(run, accepting, stack, *words, **changed):
    approving(accepting, planned(plan_segments=SEGMENT, **changed))
    result = run("orphans", *words, "--wait", "--stack", str(stack))
    assert result.exit_code == 0, result.stderr
    return result.stdout.splitlines()


def test_a_scan_ends_with_lines_to_copy(run, accepting, stack):
    printed = followed(run, accepting, stack, "scan", TABLE, files_planned=12, files_deleted=0, bytes_deleted=0)
    assert "found 12 orphan files; nothing was deleted" in printed
    commands = [line.partition(": ")[2] for line in printed[-2:]]
    assert commands == [f"delegation orphans show {PLAN}", f"delegation orphans approve {PLAN} --wait"]


def test_a_scan_that_found_nothing_ends_without_advice(run, accepting, stack):
    printed = followed(run, accepting, stack, "scan", TABLE, files_planned=0, files_deleted=0, bytes_deleted=0)
    assert not any("delegation orphans" in line for line in printed)


@pytest.mark.parametrize(("freed", "restorable"), [(None, True), (10, False)])
def test_what_was_deleted_can_be_restored_where_nothing_was_freed(run, accepting, stack, freed, restorable):
    receipt = {"format": 1, "task_id": TASK_ID, "status": "SWEPT", "bytes_freed": freed}
    accepting.answer("GET", f"{TASKS}/{TASK_ID}/receipt", json_answer(200, receipt))
    accepting.answer("GET", f"{TASKS}/{TASK_ID}", json_answer(200, planned()))
    printed = followed(run, accepting, stack, "approve", PLAN, "--yes", files_planned=5, files_deleted=5)
    commands = {line.partition(": ")[2] for line in printed}
    assert f"delegation tasks receipt {TASK_ID}" in commands
    assert (f"delegation orphans restore {TASK_ID}" in commands) == restorable
