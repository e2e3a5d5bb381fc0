"""The answers of the HTTPS endpoint to requests from outside the stack."""

import json
import os
import re
import shutil
import socket
import ssl
import subprocess
from uuid import uuid4

import httpx
import pytest

from infra.local.identities import CertificateAuthority
from tests.integration.acceptance.world import EXECUTE, LIFE, SUBMIT
from tests.paths import ROOT

pytestmark = pytest.mark.stack
PAGE = ROOT / "docs" / "curl.md"
COMMANDS = re.findall(r"^```bash\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
needs_curl = pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")


def refusal_message(answer, status, error_code):
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert body["error_code"] == error_code
    assert "status" not in body
    return body["message"]


def test_a_small_table_is_purged_while_the_caller_waits(world):
    # The first purge of a catalog waits for its reference index, and is retried.
    world.settled(world.request(world.table()))
    table = world.table()
    answer = world.settled(world.request(table))[-1]
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert body["status"] == "COMPLETED_SUCCESS"
    assert body["execution_result"]["files_deleted"] == len(table.objects)
    assert world.left(table) == frozenset()
    task = world.task(body["delegation_task_id"])
    assert (task["status"], task["engine"], task["version"]) == ("SUCCESS", "inline", len(LIFE))
    assert [view.status for view in world.history(task["task_id"])] == LIFE


def test_a_task_is_accepted_and_its_status_can_be_queried_until_its_outcome(world):
    table = world.table()
    identity = {"table_identity": world.identity(table.name)}
    answer = world.post(SUBMIT, {**world.request(table), "operation_parameters": identity})
    assert answer.status_code == 202, answer.text
    body = answer.json()
    assert body["status"] == "QUEUED"
    assert body["status_query_url"] == f"/delegation-service/api/v1/tasks/{body['delegation_task_id']}"
    status = world.edge.get(httpx.URL(world.stack.edge_url).join(body["status_query_url"]))
    assert status.json()["task_id"] == body["delegation_task_id"]
    assert world.outcome(body["delegation_task_id"])["status"] == "SUCCESS"
    assert world.left(table) == frozenset()


def test_an_unknown_task_or_route_is_not_found_by_the_service(world):
    refusal_message(world.edge.get(f"/v1/tasks/{uuid4()}"), 404, "TASK_NOT_FOUND")
    answer = world.edge.get("/v1/nothing")
    assert (answer.status_code, "error_code" in answer.json()) == (404, True)
    assert world.edge.get("/v1/config").json()["properties"]["idempotency-key-supported"] == "true"


def test_a_repeated_request_gets_the_same_bytes_and_another_body_is_refused(world):
    table, key = world.table(), str(uuid4())
    request = world.request(table)
    first = world.settled(request, key)[-1]
    assert first.status_code == 200, first.text
    replay = world.post(EXECUTE, request, key)
    assert (replay.status_code, replay.content) == (200, first.content)
    other = world.request(table, properties={"priority": "4"})
    refusal_message(world.post(EXECUTE, other, key), 422, "idempotency_key_conflict")
    assert world.post(EXECUTE, request, key).content == first.content


def handshake(world, certificate):
    url = httpx.URL(world.stack.edge_url)
    tls = ssl.create_default_context(cafile=world.stack.ca_cert)
    if certificate:
        tls.load_cert_chain(*certificate)
    with socket.create_connection((url.host, url.port), 10) as plain, tls.wrap_socket(plain, server_hostname=url.host):
        pass


def test_the_handshake_refuses_a_client_without_a_certificate_of_the_authority(world, tmp_path):
    stranger = CertificateAuthority.create(tmp_path).issue_client("polaris")
    for certificate in (None, (stranger.cert, stranger.key)):
        with pytest.raises(ssl.SSLError, match="alert"):
            handshake(world, certificate)
    handshake(world, (world.stack.client_cert, world.stack.client_key))


def test_a_request_without_a_valid_token_is_unauthorized(world):
    with world.client(world.stack.client_settings().mutual_tls()) as client:
        for headers in ({}, {"Authorization": "Bearer nonsense"}):
            answer = client.get("/v1/config", headers=headers)
            assert answer.status_code == 401
            assert answer.json()["error_code"] == "UNAUTHORIZED"


def test_another_realm_is_refused(world):
    table = world.table()
    request = world.request(table)
    request["common_payload"]["realm_identifier"] = "ELSEWHERE"
    for path in (EXECUTE, SUBMIT):
        refusal_message(world.post(path, request), 403, "REALM_MISMATCH")
    assert world.left(table) == table.objects


def run(script, world, **variables):
    environment = {"PATH": os.environ["PATH"], "STACK": str(world.process.path), **variables}
    command = ["bash", "-euo", "pipefail", "-c", script]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.long
@needs_curl
def test_the_documented_curl_commands_purge_a_table(world):
    table = world.table(name="orders")
    done = run("\n".join(COMMANDS), world)
    assert done.returncode == 0, done.stderr
    config, accepted, repeated, task, estimate, listed = (json.loads(line) for line in done.stdout.splitlines())
    assert config["properties"]["idempotency-key-supported"] == "true"
    assert accepted == repeated
    assert accepted["status"] == "QUEUED"
    assert (task["task_id"], task["status"]) == (accepted["delegation_task_id"], "SUCCESS")
    assert world.left(table) == frozenset()
    assert (estimate["files"], estimate["files_left"]) == (len(table.objects), 0)
    assert [one["task_id"] for one in listed["tasks"]] == [task["task_id"]]
