"""Tables are dropped with their files through the gateway, and restored, as real callers and operators do it."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from uuid import uuid4

import httpx
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from delegation.cli.catalog.polaris import connect_management
from delegation.cli.connection import Connection
from delegation.cli.main import build
from delegation.client.client import DelegationClient
from delegation.gateway.drop.settings import TOMBSTONE_NAMESPACE
from delegation.polaris.management import PolarisGrant
from infra.local.demo.tables import NAMESPACE
from tests.integration.acceptance.world import KEPT, eventually

pytestmark = pytest.mark.stack
PURGE = {"purgeRequested": "true"}
(TOMBSTONES,) = TOMBSTONE_NAMESPACE


@pytest.fixture
def operator(world):
    with DelegationClient.connect(world.stack.operator_settings()) as client:
        yield client


@pytest.fixture
def owner(world) -> Iterator[httpx.Client]:
    """The catalog through the gateway, as the owner of tables."""
    client_id, _, secret = world.stack.polaris_credential.get_secret_value().partition(":")
    with through_gateway(world, client_id, secret) as client:
        yield client


@pytest.fixture
def role(world) -> str:
    """A new principal role."""
    name = f"analysts_{uuid4().hex[:8]}"
    connect_management(Connection(world.process.path)).create_principal_role(name)
    return name


@pytest.fixture
def analyst(world, role) -> Iterator[httpx.Client]:
    """The same as a new principal of `role`, who may drop and write tables, and create none anywhere."""
    api, catalog = connect_management(Connection(world.process.path)), world.stack.warehouse
    made = api.create_principal(role)
    api.assign_principal_role(role, role)
    api.create_catalog_role(catalog, role)
    api.assign_catalog_role(role, catalog, role)
    for privilege in ("TABLE_DROP", "TABLE_WRITE_DATA"):
        api.grant(catalog, role, PolarisGrant(privilege, (NAMESPACE,)))
    with through_gateway(world, made.client_id, made.client_secret.get_secret_value()) as client:
        yield client


def through_gateway(world, client_id: str, secret: str) -> httpx.Client:
    form = {"client_id": client_id, "client_secret": secret, "scope": world.stack.polaris_scope}
    answer = httpx.post(f"{world.stack.polaris_url}/v1/oauth/tokens", data={"grant_type": "client_credentials", **form})
    headers = {
        "Authorization": f"Bearer {answer.raise_for_status().json()['access_token']}",
        "Polaris-Realm": world.stack.realm,
    }
    base = f"{world.stack.gateway_url}/v1/{world.stack.warehouse}/namespaces/"
    return httpx.Client(base_url=base, headers=headers, timeout=60)


def command(world, *words: str) -> tuple[int, dict]:
    """Run the operator's command on the stack; return its exit status and its document."""
    result = CliRunner().invoke(build(()), [*words, "--stack", str(world.process.path), "--json"])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, json.loads(result.stdout or result.stderr)


def test_a_caller_for_whom_setup_was_run_drops_a_table_with_its_files(world, operator, role, analyst):
    table, other = world.table(), world.table()
    path, catalog = f"{NAMESPACE}/tables/{table.name}", world.stack.warehouse
    in_catalog = ("--namespace", f"{catalog}.{NAMESPACE}", "--tombstones", f"{catalog}.{TOMBSTONES}", "--callers", role)

    refused = analyst.delete(path, params=PURGE)
    assert (refused.status_code, refused.json()["error"]["type"]) == (403, "ForbiddenException")
    assert "delegation polaris setup" in refused.json()["error"]["message"]
    assert world.left(table) == table.objects
    status, found = command(world, "doctor", *in_catalog)
    assert (status, [each["name"] for each in found["checks"] if each["ok"] is False]) == (1, ["callers"])

    words = ("--namespace", NAMESPACE, "--tombstones", TOMBSTONES, "--callers", role)
    status, made = command(world, "polaris", "setup", catalog, *words)
    assert (status, made["complete"]) == (0, True)
    status, found = command(world, "doctor", *in_catalog)
    assert (status, found["ok"]) == (0, True), found
    fine = {each["name"].partition(" ")[0] for each in found["checks"] if each["ok"]}
    assert {"tombstones", "callers", "grant"} <= fine, fine

    dropped = analyst.delete(path, params=PURGE)
    assert (dropped.status_code, dropped.content) == (204, b"")
    assert analyst.get(path).status_code == 404  # at once
    tombstone_id = dropped.headers["X-Delegation-Tombstone"]
    record = eventually(lambda: ended if (ended := operator.tombstone(tombstone_id)).is_ended else None)
    assert (record.state, record.table) == ("DROPPED", f"{catalog}.{NAMESPACE}.{table.name}")
    task = world.outcome(record.task_id)
    assert (task["status"], task["task_type"]) == ("SUCCESS", "TABLE_DROP_WITH_PURGE")
    assert world.left(table) == frozenset()
    assert (TOMBSTONES, record.destination_name) not in world.catalog.list_tables(TOMBSTONES)
    assert world.current_table(other.name).objects == other.objects
    assert analyst.delete(path, params=PURGE).status_code == 204  # a repeat has the first answer


def test_a_table_is_restored_within_its_grace_period(world, operator, owner):
    name, rows = f"kept_{uuid4().hex[:8]}", pa.table({"id": [1, 2, 3]})
    world.catalog.create_namespace_if_not_exists(KEPT)
    table = world.catalog.create_table((KEPT, name), rows.schema)
    table.append(rows)
    location = table.location()
    before = world.bucket.keys(location)

    dropped = owner.delete(f"{KEPT}/tables/{name}", params=PURGE)
    assert dropped.status_code == 204
    assert dropped.headers["X-Delegation-Tombstone-State"] == "RENAMED"
    assert datetime.fromisoformat(dropped.headers["X-Delegation-Purge-After"]) > datetime.now(UTC)
    assert owner.get(f"{KEPT}/tables/{name}").status_code == 404
    status, restored = command(world, "tombstones", "restore", dropped.headers["X-Delegation-Tombstone"])
    assert (status, restored["state"]) == (0, "RESTORED")
    found = world.catalog.load_table((KEPT, name))
    assert (found.metadata.table_uuid, found.scan().to_arrow()) == (table.metadata.table_uuid, rows)
    assert world.bucket.keys(location) == before
    task = world.task(operator.tombstone(restored["tombstone_id"]).task_id)
    assert (task["status"], task["error_code"]) == ("FAILURE", "RESTORED")
