"""Operators manage tasks with an identity of their own; nobody needs a token for the description and the health."""

import httpx
import pytest

from delegation.client.client import DelegationClient
from delegation.client.errors import Conflict, NotPermitted
from delegation.edge.api.endpoints import ENDPOINTS
from tests.integration.acceptance.world import LIFE, SUBMIT

pytestmark = pytest.mark.stack


@pytest.fixture
def operator(world):
    with DelegationClient.connect(world.stack.operator_settings()) as client:
        yield client


def test_an_operator_reads_a_task_with_its_versions_and_receipt_and_cannot_submit(world, operator):
    table = world.table()
    request = world.request(table)
    with pytest.raises(NotPermitted, match="may not submit"):
        operator.submit(request)
    task_id = world.post(SUBMIT, request).json()["delegation_task_id"]
    assert world.outcome(task_id)["status"] == "SUCCESS"
    assert operator.get(task_id).requested_by.client_id == world.stack.client_id
    assert [view.status for view in operator.versions(task_id, page_size=3)] == LIFE
    assert operator.receipt(task_id).model_dump()["files_deleted"] == len(table.objects)
    with pytest.raises(Conflict, match="TASK_ENDED"):
        operator.cancel(task_id)
    with pytest.raises(Conflict, match="TASK_NOT_FAILED"):
        operator.retry(task_id)


def test_health_names_every_dependency_to_those_who_may_read(world, operator):
    found = operator.health()
    assert (found.status, found.realm) == ("up", world.stack.realm)
    assert {each.name: each.error_code for each in found.dependencies} == {
        "task table": None,
        "plan bucket": None,
        "Polaris": None,
    }


def test_open_methods_need_the_handshake_and_no_token(world):
    base = world.stack.edge_url
    with httpx.Client(verify=world.stack.client_settings().mutual_tls(), timeout=60) as client:
        assert client.get(f"{base}/v1/health").json() == {"status": "up"}
        assert client.get(f"{base}/openapi.json").json()["openapi"].startswith("3.1")
        assert client.get(f"{base}/docs").headers["Content-Type"] == "text/html; charset=utf-8"
        for endpoint in ENDPOINTS:
            if endpoint.permission is not None:
                path = endpoint.path.replace("{taskId}", "00000000-0000-0000-0000-000000000000")
                answer = client.request(endpoint.method, f"{base}{path}")
                assert (answer.status_code, answer.json()["error_code"]) == (401, "UNAUTHORIZED")
