"""Answers about policies that no healthy Polaris gives, and those of servers without policies."""

from typing import Any

import httpx
import pytest

from delegation.polaris import answers
from delegation.polaris.client import PolarisClient
from delegation.polaris.policies import (
    MOST_APPLICABLE,
    ApplicablePolicy,
    PolicyClient,
    PolicyIdentifier,
    PolicyTarget,
    StoredPolicy,
)
from tests.kit.errors import coded
from tests.unit.polaris import test_client
from tests.unit.polaris.scripted import Server, error

client = test_client.client
APPLICABLE = "/api/catalog/polaris/v1/lake/applicable-policies"
KEEP = "/api/catalog/polaris/v1/lake/namespaces/sales%1Feu/policies/keep"
TARGET = PolicyTarget("lake", ("sales", "eu"), "orders")
IDENTIFIER = PolicyIdentifier("lake", ("sales", "eu"), "keep")
ENTRY: dict[str, Any] = {
    "policy-type": "system.snapshot-expiry",
    "inheritable": True,
    "name": "keep",
    "description": None,
    "content": '{"enable": true}',
    "version": 3,
    "inherited": True,
    "namespace": ["sales"],
}
POLICY = StoredPolicy("system.snapshot-expiry", "keep", '{"enable": true}', 3)


@pytest.fixture
def policies(client: PolarisClient) -> PolicyClient:
    """The policies of a scripted Polaris."""
    return PolicyClient(client.requests)


def page(*entries: Any, following: str | None = None) -> httpx.Response:
    return httpx.Response(200, json={"applicable-policies": list(entries), "next-page-token": following})


def test_what_applies_is_read_page_by_page(policies: PolicyClient, server: Server) -> None:
    other = {**ENTRY, "policy-type": "custom.mask", "content": None, "inherited": False, "namespace": None}
    server.answer("GET", APPLICABLE, page(ENTRY, following="2"), page(other))
    assert policies.applicable(TARGET) == [
        ApplicablePolicy(POLICY, ("sales",), inherited=True),
        ApplicablePolicy(StoredPolicy("custom.mask", "keep", "", 3), (), inherited=False),
    ]
    first, second = server.asked("GET", APPLICABLE)
    assert dict(first.url.params) == {
        "namespace": "sales\x1feu",
        "target-name": "orders",
        "pageToken": "",
        "pageSize": "1000",
    }
    assert second.url.params["pageToken"] == "2"


@pytest.mark.parametrize(
    ("target", "expected"), [(PolicyTarget("lake"), set()), (PolicyTarget("lake", ("sales",)), {"namespace"})]
)
def test_what_applies_to_a_catalog_or_a_namespace_is_asked_without_a_table(
    policies: PolicyClient, server: Server, target: PolicyTarget, expected: set[str]
) -> None:
    server.answer("GET", APPLICABLE, page())
    assert policies.applicable(target) == []
    [request] = server.asked("GET", APPLICABLE)
    assert set(request.url.params) - {"pageToken", "pageSize"} == expected


@pytest.mark.parametrize(
    "entry",
    [
        None,
        [],
        {},
        {**ENTRY, "policy-type": ""},
        {**ENTRY, "name": None},
        {**ENTRY, "version": "3"},
        {**ENTRY, "version": True},
    ],
)
def test_an_entry_that_is_no_policy_is_an_unexpected_answer(policies: PolicyClient, server: Server, entry: Any) -> None:
    server.answer("GET", APPLICABLE, page(entry))
    with pytest.raises(answers.PolarisUnexpectedAnswer):
        policies.applicable(TARGET)


@pytest.mark.parametrize("entries", [100, 0])
def test_endless_pages_end(policies: PolicyClient, server: Server, entries: int) -> None:
    tokens = iter(range(1_000_000))
    server.answer("GET", APPLICABLE, lambda: page(*[ENTRY] * entries, following=str(next(tokens))))
    with pytest.raises(answers.PolarisUnexpectedAnswer, match="more than"):
        policies.applicable(TARGET)
    assert not entries or len(server.asked("GET", APPLICABLE)) <= MOST_APPLICABLE // entries + 1


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(404),
        error(404, "NotFoundException", "HTTP 404 Not Found"),
        error(400, "BadRequestException", "No route for request: GET polaris/v1/lake/applicable-policies"),
        error(406, "UnsupportedOperationException", "Feature not enabled: ENABLE_POLICY_STORE"),
        httpx.Response(405),
        httpx.Response(501),
    ],
)
def test_a_server_without_policies_says_so(policies: PolicyClient, server: Server, answer: httpx.Response) -> None:
    server.answer("GET", APPLICABLE, answer)
    server.answer("PUT", f"{KEEP}/mappings", answer)
    with pytest.raises(answers.PoliciesNotSupported):
        policies.applicable(TARGET)
    with pytest.raises(answers.PoliciesNotSupported):
        policies.attach(IDENTIFIER, TARGET)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (error(404, "NoSuchTableException"), answers.NoSuchTable),
        (error(403, "ForbiddenException"), answers.PolarisForbidden),
        (error(503, "ServiceUnavailableException"), answers.PolarisUnavailable),
    ],
)
def test_other_errors_keep_their_class(
    policies: PolicyClient, server: Server, answer: httpx.Response, kind: type[Exception]
) -> None:
    server.answer("GET", APPLICABLE, answer)
    with pytest.raises(kind):
        policies.applicable(TARGET)


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (error(404, "NoSuchMappingException"), "POLICY_NOT_ATTACHED"),
        (error(500, "IllegalStateException", "error status: POLICY_MAPPING_NOT_FOUND"), "POLICY_NOT_ATTACHED"),
        (error(500, "IllegalStateException", "something else"), answers.PolarisOutcomeUnknown.code),
    ],
)
def test_a_detachment_of_what_is_not_attached_is_known_from_one_whose_outcome_is_not(
    policies: PolicyClient, server: Server, answer: httpx.Response, code: str
) -> None:
    server.answer("POST", f"{KEEP}/mappings", answer)
    with pytest.raises(answers.PolarisError, check=coded(code)) as caught:
        policies.detach(IDENTIFIER, TARGET)
    assert isinstance(caught.value, answers.PolarisOutcomeUnknown) == (code == answers.PolarisOutcomeUnknown.code)


def test_the_conflict_of_an_attachment_has_two_names(policies: PolicyClient, server: Server) -> None:
    server.answer("PUT", f"{KEEP}/mappings", error(409, "ConflictPolicyAttachmentException"))
    with pytest.raises(answers.PolarisError, check=coded("POLICY_TYPE_ATTACHED")):
        policies.attach(IDENTIFIER, TARGET)
