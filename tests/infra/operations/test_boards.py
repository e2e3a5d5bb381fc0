"""The dashboards and the saved queries of the template, and the page of metrics."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from delegation.metrics import METRICS, NAMESPACE
from infra.operations import boards, metrics_page
from infra.operations.alarms import lease_age
from infra.operations.boards import QUERIES
from tests.infra.operations.board_names import NAMES

BOARDS = {"users": boards.users(NAMES), "resources": boards.resources(NAMES)}


def widgets(name: str) -> list[dict[str, Any]]:
    return [one for one in BOARDS[name]["widgets"] if one["type"] == "metric"]


def strips(stack: Any) -> str:
    """Return the dashboards of a template, with the references in them."""
    return json.dumps(stack.resources("AWS::CloudWatch::Dashboard"))


@pytest.mark.parametrize("name", BOARDS)
def test_widgets_fill_the_grid_and_do_not_overlap(name: str) -> None:
    taken: set[tuple[int, int]] = set()
    for one in BOARDS[name]["widgets"]:
        assert one["x"] + one["width"] <= boards.WIDTH
        cells = {(one["x"] + x, one["y"] + y) for x in range(one["width"]) for y in range(one["height"])}
        assert not cells & taken, one["properties"].get("title")
        taken |= cells


@pytest.mark.parametrize("name", BOARDS)
def test_own_metrics_of_a_dashboard_are_in_the_table_and_of_the_stage(name: str) -> None:
    own = [line for one in widgets(name) for line in one["properties"]["metrics"] if line[0] == NAMESPACE]
    assert own
    for _, metric, *dimensions, _ in own:
        assert metric in METRICS
        assert dimensions == ["service", "polaris-delegation-prod"]


def test_every_wanted_metric_is_shown_somewhere() -> None:
    shown = json.dumps(BOARDS)
    hidden = {"RequestsServed", "RequestsRefused", "RequestsFailed", "ResubmitsRefused", "NotificationMessages"}
    hidden |= {
        "TasksFailed",
        "TablesPartlyDeleted",
        "PurgesHeld",
        "TombstonesFailed",
        "TombstonesStuck",
        "PoliciesInvalid",
        "UpkeepWaitSeconds",
        "DispatchFailed",
        "WorkerErrors",
        "KeysUnavailable",
        "ChangesUnreadable",
        "ItemsSetAside",
    }
    assert {name for name in METRICS if f'"{name}"' not in shown} == hidden, "an alarm or a query has the others"


def test_the_template_has_both_dashboards_and_every_query(service: Any) -> None:
    names = [body["Properties"]["DashboardName"] for body in service.resources("AWS::CloudWatch::Dashboard").values()]
    assert sorted(names) == ["polaris-delegation-prod-resources", "polaris-delegation-prod-users"]
    saved = [body["Properties"] for body in service.resources("AWS::Logs::QueryDefinition").values()]
    assert {one["Name"] for one in saved} == {f"polaris-delegation-prod-queries/{query.name}" for query in QUERIES}
    groups = service.resources("AWS::Logs::LogGroup")
    for one in saved:
        assert len(one["LogGroupNames"]) <= 50, "StartQuery takes no more"
        assert {group["Ref"] for group in one["LogGroupNames"]} <= groups.keys()


def test_the_operators_page_names_every_query() -> None:
    text = (metrics_page.PAGE.parent / "operations.md").read_text(encoding="utf-8")
    assert [query.name for query in QUERIES if f"*{query.name}*" not in " ".join(text.split())] == []


@pytest.mark.parametrize("name", BOARDS)
def test_the_alarm_of_a_limit_is_on_the_same_dashboard(name: str) -> None:
    [strip] = [one["properties"]["alarms"] for one in BOARDS[name]["widgets"] if one["type"] == "alarm"]
    limits = [
        limit["label"].split()[1]
        for one in widgets(name)
        for limit in one["properties"].get("annotations", {}).get("horizontal", [])
    ]
    assert limits
    assert set(limits) - {arn.rpartition("-")[2] for arn in strip} == set()


def test_every_alarm_of_the_stack_is_on_a_dashboard(service: Any) -> None:
    alarms = set(service.resources("AWS::CloudWatch::Alarm"))
    assert {one for one in alarms if f'"{one}"' not in strips(service)} == set()


def test_many_lines_have_their_legend_beside_the_graph() -> None:
    beside = {
        one["properties"]["title"]: one["properties"]["legend"]["position"] == "right"
        for name in BOARDS
        for one in widgets(name)
    }
    assert {title for title, is_beside in beside.items() if is_beside} == {
        "Errors of functions",
        "Throttled by concurrency limits",
        "Duration, 99th percentile",
    }


def test_the_line_of_lease_age_is_at_the_threshold_of_the_alarm() -> None:
    """It was drawn at 13 hours, whatever a Spark job may wait for its start."""
    hours = lease_age(timedelta(hours=2)).threshold / 3600
    board = boards.resources(replace(NAMES, lease_hours=hours))
    (graph,) = [one for one in board["widgets"] if one["properties"].get("title") == "Longest running attempt"]
    assert [one["value"] for one in graph["properties"]["annotations"]["horizontal"]] == [hours] == [15]
