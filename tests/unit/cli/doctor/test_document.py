"""`delegation doctor --json`: programs read the document, so its members and ids stay from release to release.

`RECORD=1 pytest tests/unit/cli/doctor/test_document.py` records documents anew; a diff that removes or renames
something needs another FORMAT.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from delegation.cli.doctor.checks import CheckResult, failed, not_checked, passed, report
from tests.paths import ROOT
from tests.unit.cli.conftest import lines

RECORDED = Path(__file__).with_name("documents")
SCHEMA = json.loads((ROOT / "docs" / "doctor.schema.json").read_text(encoding="utf-8"))
MEMBERS = {"format", "release", "ok", "passed", "failed", "not_checked", "checks"}
OF_A_CHECK = {"id", "subject", "name", "ok", "detail", "fix"}


def document(run: Any, *words: str) -> dict[str, Any]:
    (found,) = lines(run("doctor", *words, "--json").stdout)
    Draft202012Validator(SCHEMA).validate(found)
    return found


def without_texts(found: dict[str, Any]) -> dict[str, Any]:
    """Return a document that states which checks have a detail and a fix, whatever their words are."""
    checks = [{**each, "detail": bool(each["detail"]), "fix": bool(each["fix"])} for each in found["checks"]]
    return found | {"checks": checks}


def recorded(name: str, found: dict[str, Any]) -> dict[str, Any]:
    path = RECORDED / f"{name}.json"
    if os.environ.get("RECORD"):
        RECORDED.mkdir(exist_ok=True)
        path.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return json.loads(path.read_text(encoding="utf-8"))


def test_the_document_of_a_healthy_set_up(run, settings):
    found = without_texts(document(run, "--namespace", "lake.sales"))
    assert found == recorded("healthy", found)
    assert (found["ok"], found["failed"], found["format"]) == (True, 0, 1)


def test_the_document_of_a_broken_set_up_has_the_same_members(run, settings, deployment):
    deployment.authorized = 403
    settings(plan_bucket="gone-with-the-wind", polaris_url=None)
    found = without_texts(document(run, "--namespace", "lake.sales"))
    assert found == recorded("broken", found)
    assert (found["ok"], found["failed"]) == (False, 2)


def test_the_document_without_any_setting(run):
    found = without_texts(document(run))
    assert found == recorded("no_settings", found)
    assert found["ok"] is False


@pytest.mark.parametrize(
    "findings", [[], [passed("queue", "x")], [failed("queue", "x", "y")], [not_checked("AWS", "x")]]
)
def test_every_member_is_always_there(findings):
    found = report(findings, "0.1.0")
    assert found.keys() == MEMBERS
    assert all(one.keys() == OF_A_CHECK for one in found["checks"])
    assert found["passed"] + found["failed"] + found["not_checked"] == len(found["checks"])
    assert set(SCHEMA["required"]) == MEMBERS
    assert set(SCHEMA["properties"]["checks"]["items"]["required"]) == OF_A_CHECK


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("tasks table", ("tasks_table", "")),
        ("AWS", ("aws", "")),
        ("grant TABLE_WRITE_DATA", ("grant", "TABLE_WRITE_DATA")),
        ("grants", ("grants", "")),
        ("service: plan bucket", ("service", "plan bucket")),
        ("stack PolarisDelegation-prod-Data", ("stack", "PolarisDelegation-prod-Data")),
        ("state machine", ("state_machine", "")),
        ("queue's mapping", ("queue_mapping", "")),
        ("alarms' topic", ("alarms_topic", "")),
        ("load balancer's targets", ("load_balancer_targets", "")),
        ("gateway's API", ("gateway_api", "")),
    ],
)
def test_ids_are_names_without_their_subject(name, expected):
    found = passed(name, "")
    assert (found.id, found.subject) == expected


def test_a_check_that_is_not_listed_is_refused():
    with pytest.raises(ValueError, match="not listed in CHECKS"):
        CheckResult("something new", ok=True, detail="")
