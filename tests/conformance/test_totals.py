"""The counting of `make schemathesis`: what is missing is named, and only what the catalogue describes is foreseen."""

import json
from typing import Any

import pytest

from tests.conformance import foreseen
from tests.conformance.totals import Totals

CODES = frozenset({"POLARIS_UNAVAILABLE", "TIMEOUT", "INTERNAL_ERROR", "CORRUPT_METADATA"})


def line(status: int = 200, **members: Any) -> str:
    return json.dumps(
        {"operation": "GET /x", "status": status, "code": None, "linked": False, "foreseen": True} | members
    )


def test_a_run_that_suffices_lacks_nothing() -> None:
    lines = [line(), line(401), line(202, linked=True), line(403), line(502, code="POLARIS_UNAVAILABLE")]
    totals = Totals().add([*lines, json.dumps({"dropped": "because"})])
    assert (totals.cases, totals.past, totals.linked) == (5, 3, 1)
    assert list(totals.shortfalls(cases=5, past=0.6)) == []
    assert any("because" in each for each in totals.lines())


def test_everything_missing_is_named() -> None:
    totals = Totals().add([line(401), line(401), line(500, code="INTERNAL_ERROR", foreseen=False)])
    found = list(totals.shortfalls(cases=4, past=0.5))
    assert [each.partition(" ")[0] for each in found] == ["3", "1", "no", "1"]
    assert found[-1] == "1 unforeseen server errors: 500 INTERNAL_ERROR of GET /x"


def test_no_case_is_no_success() -> None:
    assert list(Totals().shortfalls())


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (502, "POLARIS_UNAVAILABLE", True),
        (504, "TIMEOUT", True),
        (500, "CORRUPT_METADATA", False),
        (502, "INTERNAL_ERROR", False),
        (502, "UNDESCRIBED", False),
        (503, None, False),
        (505, "TIMEOUT", False),
    ],
)
def test_only_a_described_error_of_something_else_is_foreseen(status: int, code: str | None, expected: bool) -> None:
    assert foreseen.server_error(status, code, CODES) is expected


@pytest.mark.parametrize(
    ("named", "place", "expected"),
    [
        ("a.b[0]", ["a", "b", 0], True),
        ("a.b[0]", ["a", "b"], True),
        ("a.b.c", ["a", "b"], True),
        ('a.b[""]', ["a", "b"], True),
        ("a.bc", ["a", "b"], False),
        ("a", ["a", "b"], False),
        ("a.b", [], False),
    ],
)
def test_a_refusal_beyond_a_limit_must_name_the_member(named: str, place: list[str | int], expected: bool) -> None:
    answer = {"message": f"{named}: must be shorter"}
    assert (foreseen.limit(400, answer, [["z"], place]) is not None) is expected
    assert foreseen.limit(404, answer, [place]) is None


def test_a_refusal_of_a_request_that_fits_is_not_foreseen() -> None:
    assert foreseen.refusal("/v1/tasks", 400, {"message": "query page_token: must be another"}) is not None
    assert foreseen.refusal("/v1/tasks", 400, {"message": "query page_size: must be a number"}) is None
    assert foreseen.refusal("/v1/tasks", 422, {"message": "query page_token: must be another"}) is None
    dry = {"message": "operation_parameters.properties.dry-run: must be absent"}
    assert foreseen.refusal("/v1/tasks/execute/synchronous", 400, dry) is not None
    assert foreseen.refusal("/v1/tasks", 400, dry) is None


@pytest.mark.parametrize(
    ("path", "seconds", "expected"),
    [(foreseen.EXECUTE, 25.1, True), (foreseen.EXECUTE, 29.1, False), ("/v1/tasks", 10.1, False)],
)
def test_only_the_synchronous_call_may_take_its_budget(path: str, seconds: float, expected: bool) -> None:
    assert (foreseen.slow(path, seconds) is not None) is expected
