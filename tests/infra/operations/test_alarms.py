"""The alarms of the template are those of the table, and each has a page of the runbook that a person can follow."""

import re
from pathlib import Path
from typing import Any

import pytest

from delegation.metrics import METRICS, Metric
from infra.operations.alarms import ALARMS, ALWAYS, FRONT_ALARMS, AlarmRule, Concern
from tests.infra.operations.runbook import FOLDER, PAGES, blocks, text_of
from tests.infra.operations.watched import COMPARED, STATISTICS, WatchedTemplate
from tests.paths import ROOT

HEADINGS = ["## Symptom", "## Why", "## Look here", "## Do this", "## When to escalate"]
NAMES = [rule.name for rule in ALARMS]


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page as GitHub makes them of headings."""
    titles = re.findall(r"^#+ (.+)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-") for title in titles}


def test_the_template_has_the_alarms_of_the_table(service: Any) -> None:
    names = {body["Properties"]["AlarmName"] for body in service.resources("AWS::CloudWatch::Alarm").values()}
    assert names == {f"polaris-delegation-prod-{rule.name}" for rule in (*ALWAYS, *FRONT_ALARMS)}


def test_without_a_load_balancer_there_are_no_alarms_on_one(regional_service: Any) -> None:
    names = {body["Properties"]["AlarmName"] for body in regional_service.resources("AWS::CloudWatch::Alarm").values()}
    assert names == {f"polaris-delegation-dev-{rule.name}" for rule in ALWAYS}


@pytest.mark.parametrize("rule", [*ALWAYS, *FRONT_ALARMS], ids=lambda rule: rule.name)
def test_an_alarm_of_the_template_is_that_of_the_table(watched: WatchedTemplate, rule: AlarmRule) -> None:
    alarm = watched[rule.name].properties
    assert (alarm["Threshold"], alarm["EvaluationPeriods"]) == (rule.threshold, rule.periods)
    assert (alarm["TreatMissingData"], alarm["ComparisonOperator"] in COMPARED) == (rule.missing, True)
    assert alarm["AlarmDescription"] == rule.description(None)
    assert len(alarm["AlarmDescription"]) <= 1024
    if isinstance(rule.source, Metric):
        assert (alarm["Namespace"], alarm["MetricName"]) == ("PolarisDelegation", rule.source.name)
        assert alarm["Dimensions"] == [{"Name": "service", "Value": "polaris-delegation-prod"}]
        assert alarm["Statistic"] in STATISTICS


def test_a_certificate_that_expires_soon_is_not_hidden_by_others(watched: WatchedTemplate) -> None:
    assert watched["CertificateExpires"].is_raised_by([200.0, 12.0, 200.0])


def test_alarms_watch_metrics_of_the_table_of_metrics() -> None:
    assert {rule.source.name for rule in ALARMS if isinstance(rule.source, Metric)} <= METRICS.keys()


def test_refused_work_and_a_broken_machine_are_different_alarms() -> None:
    work = {rule.name for rule in ALARMS if rule.concern is Concern.WORK}
    assert work == {
        "TasksFailed",
        "TablesPartlyDeleted",
        "PurgesHeld",
        "TombstonesFailed",
        "TombstonesStuck",
        "PoliciesInvalid",
        "UpkeepBehind",
    }
    assert all(rule.description(None).startswith(f"[{rule.concern}] ") for rule in ALARMS)


def test_a_description_links_to_the_page_where_the_setting_says() -> None:
    rule = next(rule for rule in ALARMS if rule.name == "DeadLetters")
    assert rule.description(None).endswith("docs/runbook/dead-letters.md")
    assert rule.description("https://wiki.test/runbook/").endswith(" https://wiki.test/runbook/dead-letters.md")


def test_every_alarm_has_a_page_and_every_page_an_alarm() -> None:
    others = {FOLDER / name for name in ("README.md", "references.md", "restore.md")}
    assert {ROOT / rule.page for rule in ALARMS} | others == set(PAGES)
    assert [page.name for page in others if f"({page.name})" not in text_of(FOLDER / "README.md")] == ["README.md"]


@pytest.mark.parametrize("rule", ALARMS, ids=lambda rule: rule.name)
def test_a_page_says_what_happened_why_where_to_look_what_to_do_and_when_to_escalate(rule: AlarmRule) -> None:
    text = text_of(ROOT / rule.page)
    assert text.startswith(f"# {rule.name}\n")
    assert [line for line in text.splitlines() if line.startswith("## ")] == HEADINGS
    assert blocks(ROOT / rule.page), "a page has commands to paste"


def test_the_index_names_every_alarm_with_its_page() -> None:
    text = text_of(FOLDER / "README.md")
    assert [name for name in NAMES if f"[{name}](" not in text] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_of_the_runbook_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]+))?\)", text_of(page)):
        file = (page.parent / target).resolve() if target else page
        assert file.is_file(), target
        assert not anchor or anchor in anchors(file), f"{target}#{anchor}"
