"""`delegation estimate`: what the plan of a task takes, as the service says."""

import json

import pytest

from tests.unit.cli.conftest import lines
from tests.unit.client.service import TASK_ID, TASKS, json_answer, refusal

PATH = f"{TASKS}/{TASK_ID}/estimate"
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
    service.answer("GET", PATH, json_answer(200, ESTIMATE))
    text = run("estimate", TASK_ID).stdout
    assert max(map(len, text.splitlines())) <= width
    for expected in ("1,200,000, 745.1 GiB; 3 are kept", "5 min 43 s", "700,000 files", "0.42 USD"):
        assert expected in " ".join(text.split())


def test_the_estimate_for_programs_is_the_services(run, service):
    service.answer("GET", PATH, json_answer(200, ESTIMATE))
    (document,) = lines(run("estimate", TASK_ID, "--json").stdout)
    assert document.items() >= {"files": 1_200_000, "cost": 0.42, "files_left": 700_000}.items()


@pytest.mark.parametrize("code", ["TASK_NOT_FOUND", "ESTIMATE_NOT_FOUND"])
def test_a_task_without_a_plan_is_reported(run, service, code):
    service.answer("GET", PATH, refusal(404, code))
    result = run("estimate", TASK_ID, "--json")
    assert (result.exit_code, json.loads(result.stderr)["error_code"]) == (1, code)
