"""Operators pause and resume through the API; health says what is paused."""

from typing import Any

import pytest

from delegation.tasks.errors import StoreUnavailable
from delegation.tasks.pauses import MemoryPauseStore, PauseControl, PauseRecord
from tests.unit.edge.api.test_app import assert_problem, body_of
from tests.unit.edge.conftest import NOW, Api

BY = {"client_id": "polaris", "subject": "polaris-service"}
ALL = {"scope": "all", "realm": None, "table": None, "mode": "stop", "since": "2026-11-21T03:00:00.000000Z", "by": BY}
TABLE = {**ALL, "scope": "table", "table": "lake.sales.orders"}


@pytest.fixture
def store(api: Api) -> MemoryPauseStore:
    kept = MemoryPauseStore()
    api.pauses.append(PauseControl(kept, lambda: NOW))
    return kept


def shown(response: dict[str, Any]) -> list[dict[str, Any]]:
    assert response["statusCode"] == 200, response
    return body_of(response)["pauses"]


def test_a_scope_is_paused_in_the_callers_name_until_it_is_resumed(api: Api, store: MemoryPauseStore) -> None:
    assert shown(api.call("GET", "/v1/pause")) == []
    first = {**ALL, "by": body_of(api.call("POST", "/v1/pause", {"reason": "upgrade"}))["pauses"][0]["by"]}
    assert set(first["by"]) == {"client_id", "subject"}
    both = shown(api.call("POST", "/v1/pause", {"scope": "table", "table": "lake.sales.orders", "mode": "drain"}))
    assert both == [{**first, "reason": "upgrade"}, {**TABLE, "by": first["by"], "mode": "drain", "reason": ""}]
    assert shown(api.call("GET", "/v1/pause")) == both
    assert shown(api.call("POST", "/v1/resume", {})) == both[1:]
    assert shown(api.call("POST", "/v1/resume", {})) == both[1:]
    assert shown(api.call("POST", "/v1/resume", {"scope": "table", "table": "lake.sales.orders"})) == []
    assert store.read() == PauseRecord(4)


def test_a_realm_is_that_of_the_deployment(api: Api, store: MemoryPauseStore) -> None:
    (found,) = shown(api.call("POST", "/v1/pause", {"scope": "realm"}))
    assert (found["scope"], found["realm"]) == ("realm", "POLARIS")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"scope": "table"}, ""),
        ({"table": "lake.a"}, ""),
        ({"scope": "world"}, "scope"),
        ({"mode": "later"}, "mode"),
        ({"reason": "x" * 301}, "reason"),
        ({"scope": "table", "table": ""}, "table"),
        ({"until": "tomorrow"}, "until"),
        ([], ""),
    ],
)
def test_a_wrong_request_names_its_field(api: Api, store: MemoryPauseStore, body: Any, field: str) -> None:
    for path in ("/v1/pause", "/v1/resume") if field not in {"mode", "reason"} else ("/v1/pause",):
        code = "INVALID_JSON" if body == [] else "INVALID_REQUEST"
        message = assert_problem(api.call("POST", path, body), 400, code)["message"]
        assert message.startswith(field)
    assert store.read() == PauseRecord()


@pytest.mark.parametrize("path", ["/v1/pause", "/v1/resume"])
def test_only_operators_change_pauses(api: Api, store: MemoryPauseStore, path: str) -> None:
    assert_problem(api.call("POST", path, {}, permissions="read submit"), 403, "PERMISSION_MISSING")
    assert shown(api.call("GET", "/v1/pause", permissions="read")) == []
    assert store.read() == PauseRecord()


def test_health_says_what_is_paused_to_those_with_a_token(api: Api, store: MemoryPauseStore) -> None:
    api.call("POST", "/v1/pause", {"reason": "upgrade"})
    assert body_of(api.call("GET", "/v1/health"))["paused"] == shown(api.call("GET", "/v1/pause"))
    assert body_of(api.call("GET", "/v1/health", client_id=None)) == {"status": "up"}


def test_health_works_while_the_pauses_cannot_be_read(api: Api, store: MemoryPauseStore) -> None:
    def away() -> PauseRecord:
        raise StoreUnavailable("away")

    store.read = away  # type: ignore[method-assign]
    assert body_of(api.call("GET", "/v1/health"))["paused"] == []
    assert_problem(api.call("GET", "/v1/pause"), 503, "STORE_UNAVAILABLE")


def test_a_service_without_a_store_of_pauses_has_none(api: Api) -> None:
    assert_problem(api.call("GET", "/v1/pause"), 404, "NOT_FOUND")
