"""Real pyiceberg through the gateway against the stand-in: tables are written, read, dropped and purged.

pyiceberg sends no keys itself, so mutations with a key are sent beside it.
"""

import uuid
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchTableError

from tests.gateway.conftest import GatewayStack

pytestmark = [pytest.mark.long, pytest.mark.stack, pytest.mark.timeout(900)]
ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})


def catalog_of(stack: GatewayStack, url: str) -> Catalog:
    return load_catalog(
        "lake",
        type="rest",
        uri=stack[url],
        warehouse=stack["warehouse"],
        credential=stack["polaris_credential"],
        scope=stack["polaris_scope"],
        **{"oauth2-server-uri": f"{stack['polaris_url']}/v1/oauth/tokens"},
        **{"header.X-Iceberg-Access-Delegation": "vended-credentials", "header.Polaris-Realm": stack["realm"]},
    )


@pytest.fixture(scope="module")
def catalog(stack: GatewayStack) -> Iterator[Catalog]:
    opened = catalog_of(stack, "gateway_url")
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def http(stack: GatewayStack) -> Iterator[httpx.Client]:
    """The same catalog and caller without pyiceberg, for requests with a key."""
    client_id, _, client_secret = stack["polaris_credential"].partition(":")
    form = {"client_id": client_id, "client_secret": client_secret, "scope": stack["polaris_scope"]}
    issued = httpx.post(
        f"{stack['polaris_url']}/v1/oauth/tokens", data={"grant_type": "client_credentials", **form}, timeout=60
    ).json()
    headers = {"Authorization": f"Bearer {issued['access_token']}", "Polaris-Realm": stack["realm"]}
    with httpx.Client(base_url=f"{stack['gateway_url']}/v1/", headers=headers, timeout=60) as client:
        yield client


def test_the_configuration_says_that_keys_are_honoured(stack: GatewayStack, http: httpx.Client):
    direct = httpx.get(
        f"{stack['polaris_url']}/v1/config", params={"warehouse": stack["warehouse"]}, headers=dict(http.headers)
    ).json()
    through = http.get("config", params={"warehouse": stack["warehouse"]}).json()
    assert through["properties"]["idempotency-key-supported"] == "true"
    assert through["idempotency-key-lifetime"].startswith("PT")
    assert "idempotency-key-lifetime" not in direct
    assert through["overrides"] == direct["overrides"]


def test_a_table_is_written_and_read_and_purged_with_its_files(stack: GatewayStack, catalog: Catalog):
    namespace = f"pyiceberg_{uuid.uuid4().hex[:8]}"
    catalog.create_namespace(namespace)
    table = catalog.create_table(f"{namespace}.orders", schema=ROWS.schema)
    table.append(ROWS)
    table.append(ROWS)
    assert catalog.load_table(f"{namespace}.orders").scan().to_arrow().num_rows == 6
    location = table.location()
    assert len(stack.objects(location)) >= 8
    catalog.purge_table(f"{namespace}.orders")
    with pytest.raises(NoSuchTableError):
        catalog.load_table(f"{namespace}.orders")
    assert stack.objects(location) == []
    catalog.drop_namespace(namespace)


def test_a_plain_drop_leaves_the_files(stack: GatewayStack, catalog: Catalog):
    namespace = f"pyiceberg_{uuid.uuid4().hex[:8]}"
    catalog.create_namespace(namespace)
    table = catalog.create_table(f"{namespace}.kept", schema=ROWS.schema)
    table.append(ROWS)
    location = table.location()
    catalog.drop_table(f"{namespace}.kept")
    assert stack.objects(location)


def test_a_mutation_with_a_key_is_performed_once(stack: GatewayStack, http: httpx.Client):
    path = f"{quote(stack['warehouse'])}/namespaces"
    body: dict[str, Any] = {"namespace": [f"keyed_{uuid.uuid4().hex[:8]}"], "properties": {"a": "b"}}
    key = {"Idempotency-Key": str(uuid.uuid4())}
    first = http.post(path, json=body, headers=key)
    again = http.post(path, json=body, headers=key)
    other = http.post(path, json={**body, "properties": {"a": "c"}}, headers=key)
    without = http.post(path, json=body)
    assert (first.status_code, again.status_code) == (200, 200)
    assert again.json() == first.json()
    assert again.headers["Idempotency-Replayed"] == "true"
    assert (other.status_code, without.status_code) == (422, 409)
