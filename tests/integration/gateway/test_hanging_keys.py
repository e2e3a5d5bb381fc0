"""While DynamoDB accepts connections and never answers, requests without a key do not touch it."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from infra.local.front.balancer import CatalogBalancer
from tests.integration.gateway.hanging import HangingServer, fresh_handler
from tests.integration.local.catalog_world import SCOPE, Stack, emptied, running
from tests.unit.gateway.keys.mutations import SCHEMA

TABLE = "namespaces/ns/tables/t"
SET = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"p": "1"}}]}


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    yield from running()


@pytest.fixture(scope="module", autouse=True)
def bucket(stack: Stack) -> Iterator[None]:
    yield from emptied(stack)


@pytest.fixture(scope="module")
def dynamodb() -> Iterator[HangingServer]:
    server = HangingServer().start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def client(stack: Stack, dynamodb: HangingServer) -> Iterator[httpx.Client]:
    """A caller of the deployed gateway: the local front, the real handler, and every request led to it."""
    with pytest.MonkeyPatch.context() as patch, fresh_handler() as function:
        for name, value in {
            "DELEGATION_POLARIS_URL": stack.catalog.url,
            "DELEGATION_REALM": "POLARIS",
            "DELEGATION_IDEMPOTENCY_TABLE": "keys",
            "DELEGATION_TOMBSTONES_TABLE": "tombstones",
            "DELEGATION_TOKEN_PUBLIC_KEY": stack.catalog.tokens.public_key_pem(),
            "AWS_ENDPOINT_URL_DYNAMODB": dynamodb.url,
            "AWS_ACCESS_KEY_ID": "id",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
        }.items():
            patch.setenv(name, value)
        balancer = CatalogBalancer(
            catalog_url=stack.catalog.url, gateway=function, region="us-east-1", account="123456789012", takes_all=True
        ).start()
        with httpx.Client(base_url=f"{balancer.url}/v1/", timeout=60) as http:
            form = {"grant_type": "client_credentials", "client_id": "owner-id", "client_secret": "owner-secret"}
            issued = http.post("oauth/tokens", data={**form, "scope": SCOPE}).raise_for_status().json()
            http.headers["Authorization"] = f"Bearer {issued['access_token']}"
            yield http
        balancer.stop()


REQUESTS: list[tuple[str, str, Any]] = [
    ("GET", "config?warehouse=lake", None),
    ("POST", "lake/namespaces", {"namespace": ["ns"]}),
    ("GET", "lake/namespaces", None),
    ("POST", "lake/namespaces/ns/properties", {"updates": {"p": "1"}}),
    ("POST", "lake/namespaces/ns/tables", {"name": "t", "schema": SCHEMA}),
    ("GET", f"lake/{TABLE}", None),
    ("POST", f"lake/{TABLE}", SET),
    ("POST", "lake/transactions/commit", {"table-changes": [
        {"identifier": {"namespace": ["ns"], "name": "t"}, **SET}]}),
    ("POST", "lake/tables/rename", {"source": {"namespace": ["ns"], "name": "t"},
                                    "destination": {"namespace": ["ns"], "name": "u"}}),
    ("DELETE", "lake/namespaces/ns/tables/u", None),
    ("DELETE", "lake/namespaces/ns", None),
]  # fmt: skip


def test_requests_without_a_key_never_call_dynamodb(client: httpx.Client, dynamodb: HangingServer) -> None:
    before = dynamodb.requests
    for method, path, body in REQUESTS:
        answer = client.request(method, path, json=body)
        assert answer.is_success, (method, path, answer.text)
        assert answer.headers["x-amzn-RequestId"]  # the function answered, not the catalog
    assert dynamodb.requests == before


def test_a_request_with_a_key_calls_it_and_is_not_sent(client: httpx.Client, dynamodb: HangingServer) -> None:
    """What the other test watches is what the gateway would call; nobody may take the answer for a refusal."""
    before = dynamodb.requests
    body = {"namespace": ["keyed"]}
    answer = client.post("lake/namespaces", json=body, headers={"Idempotency-Key": "key-1"})
    assert (answer.status_code, answer.json()["error"]["type"]) == (504, "CommitStateUnknownException")
    assert dynamodb.requests > before
    assert client.get("lake/namespaces/keyed").status_code == 404
    assert json.loads(client.get("config?warehouse=lake").text)["properties"]["idempotency-key-supported"] == "true"


def test_while_requests_with_keys_wait_for_it_others_are_answered(
    client: httpx.Client, dynamodb: HangingServer
) -> None:
    """After three failures the store is left alone: keyed requests no longer wait either."""
    for number in range(3):
        client.post("lake/namespaces", json={"namespace": ["k"]}, headers={"Idempotency-Key": f"wait-{number}"})
    before = dynamodb.requests
    answer = client.post("lake/namespaces", json={"namespace": ["k"]}, headers={"Idempotency-Key": "wait-4"})
    assert (answer.status_code, dynamodb.requests) == (504, before)
    assert client.get("lake/namespaces").is_success
    assert dynamodb.requests == before
