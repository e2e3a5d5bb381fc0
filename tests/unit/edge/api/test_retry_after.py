"""When an answer says to send a request again: 409, 429 and 503 always do, the others only if they know."""

import pytest

from delegation.edge.answers import ApiResponse
from delegation.edge.errors import KeysUnavailable
from delegation.idempotency.keys import RequestInProgress, ResubmitsExhausted, task_conflict
from delegation.polaris.answers import TableMetadataMissing
from delegation.tasks.errors import StoreUnavailable
from infra.gateway_answers import ANSWERS
from polaris_common.errors import DelegationError
from tests.unit.edge.conftest import TASK_ID, Api, header
from tests.unit.edge.requests import loaded

EXECUTE = "/v1/tasks/execute/synchronous"
SUBMIT = "/v1/tasks"


CONFLICTS = [
    RequestInProgress(TASK_ID),
    task_conflict(TASK_ID, "has other properties"),
    ResubmitsExhausted(TASK_ID, 9, "LOST"),
    TableMetadataMissing("x"),
]


@pytest.mark.parametrize("error", [*CONFLICTS, StoreUnavailable("x"), KeysUnavailable("x")])
def test_every_409_and_503_says_when_to_send_again(api: Api, error: DelegationError) -> None:
    api.submissions.answer = error
    response = api.call("POST", SUBMIT, loaded())
    assert response["statusCode"] in {409, 503}
    assert int(header(response, "Retry-After")) >= 1


def test_a_stored_409_and_those_of_management_say_when_to_send_again(api: Api) -> None:
    stored = ApiResponse(409, b"{}", TASK_ID, "replayed")
    api.submissions.answer = stored
    assert int(header(api.call("POST", EXECUTE, loaded()), "Retry-After")) >= 1
    refused = api.call("POST", f"/v1/tasks/{TASK_ID}/retry")
    assert (refused["statusCode"], int(header(refused, "Retry-After")) >= 1) == (409, True)


def test_an_answer_that_needs_no_wait_names_none(api: Api) -> None:
    for response in (api.call("POST", SUBMIT, loaded()), api.call("POST", SUBMIT, "{"), api.call("GET", "/v1/none")):
        assert "Retry-After" not in response["multiValueHeaders"]


def test_api_gateways_own_429_says_when_to_send_again() -> None:
    throttled = {name: answer for name, answer in ANSWERS.items() if answer.status == 429}
    assert throttled.keys() == {"THROTTLED", "QUOTA_EXCEEDED"}
    assert all(int(answer.headers["Retry-After"]) >= 1 for answer in throttled.values())
