"""What `GET /v1/health` says, and to whom."""

import tomllib

from delegation.edge.answers import problem_of
from delegation.edge.api import VERSION
from delegation.polaris.answers import PolarisUnavailable
from delegation.tasks.errors import StoreUnavailable
from tests.paths import ROOT
from tests.unit.edge.api.test_app import assert_problem, body_of
from tests.unit.edge.conftest import Api, header

HEALTH = "/v1/health"


def failing(error: Exception) -> object:
    def check() -> None:
        raise error

    return check


def test_with_a_token_every_dependency_is_named(api: Api) -> None:
    response = api.call("GET", HEALTH)
    assert response["statusCode"] == 200
    assert body_of(response) == {
        "status": "up",
        "version": VERSION,
        "realm": "POLARIS",
        "dependencies": [
            {"name": "task table", "ok": True, "error_code": None},
            {"name": "Polaris", "ok": True, "error_code": None},
        ],
        "paused": [],
        "maintenance": {"properties": {}, "policy_file": None, "error_code": None},
    }


def test_a_dependency_that_fails_is_named_with_its_code_and_no_text(api: Api) -> None:
    api.checks["Polaris"] = failing(PolarisUnavailable("https://secret.internal", status=503))
    response = api.call("GET", HEALTH)
    assert (response["statusCode"], header(response, "Retry-After")) == (503, "5")
    body = body_of(response)
    assert body["status"] == "down"
    assert body["dependencies"][1] == {"name": "Polaris", "ok": False, "error_code": "POLARIS_UNAVAILABLE"}
    assert "secret" not in response["body"]


def test_without_a_token_only_up_or_down_is_said(api: Api) -> None:
    api.checks["Polaris"] = failing(PolarisUnavailable("down", status=503))
    response = api.call("GET", HEALTH, client_id=None)
    assert (response["statusCode"], body_of(response)) == (200, {"status": "up"})
    api.checks["task table"] = failing(StoreUnavailable("down"))
    response = api.call("GET", HEALTH, client_id=None)
    assert (response["statusCode"], body_of(response)) == (503, {"status": "down"})


def test_a_bug_in_a_check_is_no_answer_about_health(api: Api) -> None:
    api.checks["task table"] = failing(ValueError("bug"))
    assert_problem(api.call("GET", HEALTH), 500, problem_of(ValueError("bug")).error)


def test_the_release_is_that_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["version"] == VERSION
