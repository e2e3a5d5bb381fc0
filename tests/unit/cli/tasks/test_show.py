"""`delegation tasks show`: plans, identifiers and properties as a person reads them."""

import json

from tests.unit.client.service import TASK_ID, TASKS, json_answer, record
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
    PAYLOAD["operation_parameters"]["properties"]["note"] = "a\x1b[2Jb"
    try:
        assert "\x1b" not in shown(run, service)
    finally:
        del PAYLOAD["operation_parameters"]["properties"]["note"]


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
