"""API Gateway's own answers before the gateway: none says that a mutation was not applied, for it knows no keys."""

import json

import pytest

from delegation.gateway.keys.calls import CatalogClient, Conclusion, conclusion, denies
from infra.gateway_answers import CATALOG_ANSWERS


@pytest.mark.parametrize("name", CATALOG_ANSWERS)
def test_no_answer_of_api_gateway_is_taken_for_a_refusal_of_a_commit(name: str) -> None:
    answer = CATALOG_ANSWERS[name]
    assert not denies(answer.status)
    error = json.loads(answer.text())["error"]
    assert (error["code"], bool(error["message"])) == (answer.status, True)


@pytest.mark.parametrize("client", CatalogClient)
def test_every_client_knows_success_and_an_unknown_outcome(client: CatalogClient) -> None:
    assert {conclusion(client, status) for status in (200, 204)} == {Conclusion.APPLIED}
    assert {conclusion(client, status) for status in (500, 504)} == {Conclusion.UNKNOWN}
