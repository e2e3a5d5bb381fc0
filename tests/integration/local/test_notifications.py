"""The local stack with notifications: a purge that fails is pushed to a receiver outside of it."""

import json
import signal
import socket
import stat
import sys
import threading

import pytest

from delegation.client.callbacks import CallbackVerifier
from infra.local.identities import KeyPair
from infra.local.resources import CALLBACK_KEYS
from tests.integration.local.stack_process import StackProcess, edge_of, token
from tests.unit.notifications.receiver import serving

pytestmark = [
    pytest.mark.stack,
    pytest.mark.long,
    pytest.mark.skipif(sys.platform != "linux", reason="reads processes from /proc"),
]
TABLE = {
    "common_payload": {"operation_type": "TABLE_PURGE", "realm_identifier": "POLARIS"},
    "operation_parameters": {
        "table_identity": {"catalog_name": "lake", "namespace_levels": ["ns"], "table_name": "absent"},
        "metadata_location": "s3://lake/absent/metadata/1.metadata.json",
        "metadata": {
            "location": "s3://lake/absent",
            "table-uuid": "5f1f2a0e-6c4b-4d0a-9a53-0f6d1f0b7a11",
            "format-version": 2,
        },
        "config": {},
        "properties": {"callback": "catalog"},
    },
}


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as bound:
        return bound.getsockname()[1]


def submitted(stack):
    body = {**TABLE, "common_payload": {**TABLE["common_payload"], "realm_identifier": stack["realm"]}}
    with edge_of(stack) as edge:
        answer = edge.post("/v1/tasks", json=body, headers={"Authorization": f"Bearer {token(stack)}"})
    assert answer.status_code == 202, answer.text
    return answer.json()["delegation_task_id"]


def test_an_end_is_pushed(tmp_path):
    port = free_port()
    properties = (
        "delegation.notifications.events=true",
        f"delegation.notifications.callback.catalog=https://localhost:{port}/hooks",
        "delegation.notifications.private-addresses=true",
    )
    options = [word for one in properties for word in ("--property", one)]
    process = StackProcess(tmp_path / "state", *options)
    try:
        stack = process.ready()
        # The stack's own authority is trusted, so a receiver on this machine may use its server's certificate.
        folder = tmp_path / "state" / "pki"
        with serving(KeyPair(folder / "server.pem", folder / "server.key"), port) as receiver:
            arrived = threading.Event()
            receiver.on_request = arrived.set
            task_id = submitted(stack)
            assert arrived.wait(120), process.output
            headers, body = receiver.received[0]
    finally:
        process.end(signal.SIGTERM)
    keys = tmp_path / "state" / CALLBACK_KEYS
    assert stat.S_IMODE(keys.stat().st_mode) == 0o600
    ended = CallbackVerifier(json.loads(keys.read_text())["catalog"]).verify(headers, body)
    assert (ended.task_id, ended.status) == (task_id, "FAILURE")
