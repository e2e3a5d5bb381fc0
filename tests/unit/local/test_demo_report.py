import json

import pytest
from rich.console import Console

from delegation.wire.tasks import TaskRecord
from infra.local.demo.report import LIFE, ExpiredTable, Purged, Report
from tests.unit.client.service import TASK_ID, record

POLICY = "lake.shop.keep-newest"


def history(*statuses, **changed):
    fields = {"engine": "inline", "files_deleted": 7, **changed}
    return [
        TaskRecord.of(record(version=number, status=status, **fields))
        for number, status in enumerate(statuses or LIFE, start=1)
    ]


def expiries(*statuses, policy=POLICY, **changed):
    """Return the history of an expiry that a policy asked for, None for a request."""
    parameters = {} if policy is None else {"policy": policy}
    fields = {"files_deleted": 9, "bytes_deleted": 900, **changed}
    return history(*statuses, task_payload=json.dumps({"operation_parameters": parameters}), **fields)


def purged(**changes):
    values = {
        "name": "orders",
        "expected_engine": "inline",
        "objects_before": 7,
        "objects_left": 0,
        "seconds": 1.23,
        "history": history(),
    }
    return Purged(**(values | changes))


def expired(**changes):
    values = {
        "name": "visits",
        "policy": POLICY,
        "snapshots_before": 5,
        "snapshots_left": 2,
        "objects_before": 40,
        "lost": 9,
        "bytes_lost": 900,
        "added": 1,
        "rows_same": True,
        "seconds": 2.34,
        "history": expiries(),
    }
    return ExpiredTable(**(values | changes))


def report(*tables, **changes):
    values = {
        "tables": tables or (purged(),),
        "expired": expired(),
        "sibling": "customers",
        "sibling_rows_same": True,
        "sibling_objects_same": True,
        "catalog": ["customers", "visits"],
        "seconds": 9.87,
    }
    return Report(**(values | changes))


def test_a_purge_that_waited_for_anothers_pass_over_the_catalog_is_no_problem():
    assert report().problems() == []
    versions = history(*LIFE[:2], "RETRY_SCHEDULED", *LIFE[1:])
    waited = versions[2].model_copy(update={"error_code": "REFERENCES_NOT_KNOWN"})
    assert report(purged(history=[*versions[:2], waited, *versions[3:]])).problems() == []


@pytest.mark.parametrize("handed_over", [LIFE[1:2], LIFE[1:3]])
def test_an_attempt_that_was_handed_over_is_no_problem(handed_over):
    assert report(purged(history=history(LIFE[0], *handed_over, *LIFE[1:]))).problems() == []


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"objects_left": 2}, "2 objects are left"),
        ({"objects_before": 0, "history": history(files_deleted=0)}, "had no objects"),
        ({"objects_before": 8}, "7 files reported deleted of 8"),
        ({"expected_engine": "spark"}, "inline engine instead of spark"),
        ({"history": history(*LIFE[:3], "FAILURE")}, "RUNNING → FAILURE"),
        ({"history": history(*LIFE[:3], "RETRY_SCHEDULED", *LIFE[1:])}, "RETRY_SCHEDULED"),
    ],
)
def test_an_unexpected_result_of_a_table_is_a_problem(changes, text):
    (problem,) = report(purged(**changes)).problems()
    assert problem.startswith("orders: ")
    assert text in problem


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"sibling_rows_same": False}, "its rows have changed"),
        ({"sibling_objects_same": False}, "its objects have changed"),
        ({"catalog": []}, "lists nothing"),
        ({"catalog": ["customers", "orders", "visits"]}, "lists customers, orders, visits"),
        ({"expired": expired(snapshots_left=3)}, "visits: 3 of 5 are left instead of 2"),
        ({"expired": expired(snapshots_before=2)}, "visits: 2 of 2 are left"),
        ({"expired": expired(lost=8)}, "visits: reported 9 deleted files, but 8"),
        ({"expired": expired(lost=0, history=expiries(files_deleted=0))}, "visits: reported 0 deleted files"),
        ({"expired": expired(bytes_lost=800)}, "visits: reported 900 deleted bytes, but 800"),
        ({"expired": expired(history=expiries(policy=None))}, "visits: a request asked for its expiry instead of lake"),
        ({"expired": expired(policy=None)}, "visits: lake.shop.keep-newest asked for its expiry instead of a request"),
        ({"expired": expired(added=2)}, "visits: the expiry wrote 2 objects"),
        ({"expired": expired(rows_same=False)}, "visits: its rows, or those of its tag"),
        ({"expired": expired(history=expiries(*LIFE[:3], "FAILURE"))}, "visits: went through"),
    ],
)
def test_any_other_unexpected_result_is_a_problem(changes, text):
    (problem,) = report(**changes).problems()
    assert text in problem


def test_demo_json_has_the_results(tmp_path):
    report(sibling_rows_same=False).write(tmp_path / "demo.json")
    assert json.loads((tmp_path / "demo.json").read_text()) == {
        "tables": [
            {
                "name": "orders",
                "engine": "inline",
                "task_id": TASK_ID,
                "status": "SUCCESS",
                "files_before": 7,
                "files_deleted": 7,
                "objects_left": 0,
                "seconds": 1.2,
                "versions": [{"version": number, "status": status} for number, status in enumerate(LIFE, start=1)],
            }
        ],
        "expired": {
            "name": "visits",
            "task_id": TASK_ID,
            "status": "SUCCESS",
            "policy": POLICY,
            "snapshots_before": 5,
            "snapshots_left": 2,
            "objects_before": 40,
            "files_deleted": 9,
            "bytes_freed": 900,
            "objects_left": 32,
            "rows_same": True,
            "seconds": 2.3,
        },
        "sibling_intact": False,
        "seconds": 9.9,
    }


def test_a_change_of_the_other_table_is_shown():
    console = Console(width=100, color_system=None)
    with console.capture() as capture:
        console.print(report(sibling_objects_same=False).objects_table(3))
    assert "CHANGED" in capture.get()
