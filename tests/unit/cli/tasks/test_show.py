"""`tasks show`, `tasks receipt` and `estimate`: what people read of a task, and that programs get all of it."""

import json

import pytest

from tests.unit.cli.conftest import lines
from tests.unit.client.service import TASK_ID, TASKS, json_answer, record, refusal
from tests.unit.upkeep.execution.catalogs import WEEK, UpkeepWorld
from tests.unit.upkeep.execution.test_sweeps import DAYS, Coast

PAYLOAD = {
    "common_payload": {"operation_type": "TABLE_PURGE", "realm_identifier": "POLARIS"},
    "operation_parameters": {
        "table_identity": {"catalog_name": "lake", "namespace_levels": ["sales"], "table_name": "orders.old"},
        "properties": {"dry-run": "true", "outside": "keep"},
    },
}
SEGMENT = {"id": f"{TASK_ID}/1/aaaaaaaaaaaa", "sha256": "0123456789abcdef" * 4}


def shown(run, service, payload=None, **fields):
    fields["task_payload"] = payload or json.dumps(PAYLOAD)
    service.answer("GET", f"{TASKS}/{TASK_ID}", json_answer(200, record(**fields)))
    done = run("tasks", "show", TASK_ID)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_plans_identifiers_and_properties_are_shown_without_json(run, service):
    text = shown(run, service, plan_segments=[SEGMENT, SEGMENT], purged_identifier='["lake", "sales", "orders.old"]')
    assert text.count(f"{TASK_ID}/1/aaaaaaaaaaaa (SHA-256 0123456789ab…)") == 2
    assert "lake.sales.`orders.old`" in text
    assert "dry-run = true" in text
    assert "outside = keep" in text
    assert "[" not in text
    assert text.count("{") == 1  # of the member that this release does not know


def test_an_identifier_of_another_form_is_shown_as_it_is(run, service):
    assert "lake/sales" in shown(run, service, purged_identifier="lake/sales")
    assert '{"a": 1}' in shown(run, service, purged_identifier='{"a": 1}')


def test_a_terminal_gets_no_control_characters_of_a_property(run, service):
    assert "\x1b" not in shown(run, service, json.dumps(PAYLOAD).replace("keep", "a\\u001b[2Jb"))


def test_a_run_of_upkeep_names_its_policy(run, service):
    expiries, removals = UpkeepWorld(), Coast()
    expiries.policies.attach(WEEK, "ns")
    removals.attach(DAYS, "ns")
    for world in (expiries, removals):
        world.write("a", [30.0, 1.0])
    expiries.run()
    removals.sweep()
    for [task], name in ((expiries.all_tasks(), "lake.gov.keep"), (removals.all_tasks(), "lake.gov.sweep")):
        rows = [line.split() for line in shown(run, service, task.task_payload).splitlines()]
        assert ["policy", name] in rows
    assert "policy" not in shown(run, service)


RECEIPT = {
    "format": 1,
    "task_id": TASK_ID,
    "status": "SWEPT",
    "request": {"common_payload": {}},
    "cancelled_by": None,
    "identifier": {"catalog": "lake", "namespace": ["shop"], "name": "orders"},
    "plan": ["a/1/b", "a/2/c"],
    "approved": True,
    "files_listed": 47,
    "files_deleted": 5,
    "bytes_deleted": 13_275,
    "bytes_freed": None,
    "changed": [],
    "references": [{"catalog": "lake", "tables": 3, "pass": 2}],
    "seconds": 1.041,
}


@pytest.fixture
def answering(service):
    service.answer("GET", f"{TASKS}/{TASK_ID}/receipt", json_answer(200, RECEIPT))
    return service


def test_people_see_each_member_with_a_value(run, answering, stack):
    result = run("tasks", "receipt", TASK_ID, "--stack", str(stack))
    assert result.exit_code == 0, result.stderr
    assert [line.rstrip() for line in result.stdout.splitlines()] == [
        f"task_id        {TASK_ID}",
        "status         SWEPT",
        "identifier     lake.shop.orders",
        "plan           a/1/b",
        "               a/2/c",
        "approved       yes",
        "files_listed   47",
        "files_deleted  5",
        "bytes_deleted  13.0 KiB (13,275)",
        "references     catalog lake, tables 3, pass 2",
        "seconds        1.041",
        f"restore        delegation orphans restore {TASK_ID}",
    ]


def test_programs_get_all_of_it(run, answering, stack):
    assert json.loads(run("tasks", "receipt", TASK_ID, "--stack", str(stack), "--json").stdout) == RECEIPT


def test_a_task_without_a_receipt_is_an_error(run, service, stack):
    service.answer("GET", f"{TASKS}/{TASK_ID}/receipt", refusal(404, "RECEIPT_NOT_FOUND"))
    result = run("tasks", "receipt", TASK_ID, "--stack", str(stack))
    assert (result.exit_code, result.stdout) == (1, "")
    assert "RECEIPT_NOT_FOUND" in result.stderr


ESTIMATED = f"{TASKS}/{TASK_ID}/estimate"
ESTIMATE = {
    "task_id": TASK_ID,
    "task_status": "RUNNING",
    "engine": "spark",
    "files": 1_200_000,
    "bytes": 8 * 10**11,
    "by_type": {"data": {"files": 1_199_000, "bytes": 7 * 10**11}, "manifest": {"files": 1_000, "bytes": 10**9}},
    "files_kept": 3,
    "findings": [],
    "keys_per_second": 3500.0,
    "seconds": 343.0,
    "delete_requests": 1200,
    "other_requests": 40,
    "emr_vcpu_hours": 1.5,
    "emr_gb_hours": 6.0,
    "lambda_gb_seconds": 10.0,
    "cost": 0.42,
    "currency": "USD",
    "prices_as_of": "2026-11-01",
    "prices_region": "eu-central-1",
    "files_left": 700_000,
    "seconds_left": 200.0,
}


@pytest.mark.parametrize("width", [80, 160])
def test_the_estimate_fits_the_terminal(run, service, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    service.answer("GET", ESTIMATED, json_answer(200, ESTIMATE))
    text = run("estimate", TASK_ID).stdout
    assert max(map(len, text.splitlines())) <= width
    for expected in ("1,200,000, 745.1 GiB; 3 are kept", "5 min 43 s", "700,000 files", "0.42 USD"):
        assert expected in " ".join(text.split())


def test_the_estimate_for_programs_is_the_services(run, service):
    service.answer("GET", ESTIMATED, json_answer(200, ESTIMATE))
    (document,) = lines(run("estimate", TASK_ID, "--json").stdout)
    assert document.items() >= {"files": 1_200_000, "cost": 0.42, "files_left": 700_000}.items()


@pytest.mark.parametrize("code", ["TASK_NOT_FOUND", "ESTIMATE_NOT_FOUND"])
def test_a_task_without_a_plan_is_reported(run, service, code):
    service.answer("GET", ESTIMATED, refusal(404, code))
    result = run("estimate", TASK_ID, "--json")
    assert (result.exit_code, json.loads(result.stderr)["error_code"]) == (1, code)
