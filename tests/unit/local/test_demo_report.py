import json

import pytest
from rich.console import Console

from delegation.wire.tasks import TaskRecord
from infra.local.demo.report import LIFE, Purged, Report
from tests.unit.client.service import TASK_ID, record


def history(*statuses, engine="inline", deleted=7):
    return [
        TaskRecord.of(record(version=number, status=status, engine=engine, files_deleted=deleted))
        for number, status in enumerate(statuses or LIFE, start=1)
    ]


def purged(**changes):
    values = {
        "name": "orders",
        "expected_engine": "inline",
        "files_before": 7,
        "objects_left": 0,
        "seconds": 1.23,
        "history": history(),
    }
    return Purged(**(values | changes))


def report(*tables, **changes):
    values = {
        "tables": tables or (purged(),),
        "sibling": "customers",
        "sibling_rows_same": True,
        "sibling_objects_same": True,
        "catalog": ["customers"],
        "seconds": 9.87,
    }
    return Report(**(values | changes))


def test_nothing_is_off_when_all_is_well():
    assert report().problems() == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"objects_left": 2}, "2 objects are left"),
        ({"files_before": 0, "history": history(deleted=0)}, "had no objects"),
        ({"files_before": 8}, "7 files reported deleted of 8"),
        ({"expected_engine": "spark"}, "inline engine instead of spark"),
        ({"history": history(*LIFE[:3], "FAILURE")}, "RUNNING → FAILURE"),
        ({"history": history(*LIFE[:3], "RETRY_SCHEDULED", *LIFE[1:])}, "RETRY_SCHEDULED"),
    ],
)
def test_table_that_is_off_is_told(changes, said):
    (problem,) = report(purged(**changes)).problems()
    assert problem.startswith("orders: ")
    assert said in problem


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sibling_rows_same": False}, "its rows have changed"),
        ({"sibling_objects_same": False}, "its objects have changed"),
        ({"catalog": []}, "lists nothing"),
        ({"catalog": ["customers", "orders"]}, "lists customers, orders"),
    ],
)
def test_whatever_else_is_off_is_told(changes, said):
    (problem,) = report(**changes).problems()
    assert said in problem


def test_file_has_the_figures(tmp_path):
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
        "sibling_intact": False,
        "seconds": 9.9,
    }


def test_changed_sibling_shows():
    console = Console(width=100, color_system=None)
    with console.capture() as capture:
        console.print(report(sibling_objects_same=False).objects_table(3))
    assert "CHANGED" in capture.get()
