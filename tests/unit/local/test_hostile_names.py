"""A name reaches what it names and nothing else: through the clients, both forms of the gateway, and the stand-in."""

import contextlib
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, cast
from unittest import mock

import httpx
import pytest
from pydantic import SecretStr

from delegation.gateway.app import Gateway, answer_event
from delegation.gateway.forwarding import TokenCallers
from delegation.gateway.http import HttpUpstream
from delegation.gateway.messages import CatalogRequest, UnsafeName
from delegation.gateway.routing import segment_of
from delegation.identifiers import NAMESPACE_SEPARATOR, TableIdentifier
from delegation.polaris.answers import PolarisError, PolarisUnexpectedAnswer
from delegation.polaris.client import PolarisClient
from delegation.polaris.management import PolarisGrant, PolarisManagement, management_url
from delegation.polaris.model import VIEW
from delegation.polaris.policies import PolicyClient, PolicyIdentifier, PolicyTarget
from delegation.polaris.requests import ClientCredentials, OAuth2TokenSource, PolarisPaths
from delegation.polaris.transport import RequestRetries, Transport
from delegation.timestamps import utc_now
from infra.local.catalog import access
from infra.local.catalog.access import LocalPrincipal
from infra.local.catalog.entities import CatalogEntry
from infra.local.catalog.layout import PURGE_VIEWS
from infra.local.catalog.privileges import OWNER
from infra.local.catalog.server import LocalCatalog
from infra.local.front.apigateway import ApiRequest, LocalApiGateway, integration_response
from infra.local.s3.requests import VendedKeys
from tests.kit.names import HOSTILE, NO_NAMES, SAMPLE
from tests.unit.gateway.drop.world import REALM, DropWorld
from tests.unit.gateway.keys import stand_in
from tests.unit.gateway.keys.stand_in import InProcess, MemoryS3, MemorySts
from tests.unit.gateway.world import gateway_over

BASE = "http://catalog.test/api/catalog"
PLAIN = ("ns",)
WAYS = ("direct", "gateway on Lambda")
METADATA = {
    "format-version": 2, "last-sequence-number": 0, "last-updated-ms": 0, "last-column-id": 1,
    "schemas": [{"type": "struct", "schema-id": 0, "fields": []}], "current-schema-id": 0,
    "partition-specs": [{"spec-id": 0, "fields": []}], "default-spec-id": 0, "last-partition-id": 999,
    "sort-orders": [{"order-id": 0, "fields": []}], "default-sort-order-id": 0, "properties": {},
}  # fmt: skip


class Named:
    """A catalog in which every name is a namespace, a table, a view and a policy, each with the number of its name."""

    def __init__(self, name: str = "lake", names: tuple[str, ...] = SAMPLE) -> None:
        self.name, self.names, self.s3 = name, names, MemoryS3()
        with mock.patch.object(access.rsa, "generate_private_key", return_value=stand_in._broker_key()):
            self.catalog = LocalCatalog(
                name=name, location="s3://lake/t", s3=cast("Any", self.s3), sts=cast("Any", MemorySts()),
                keys=VendedKeys(), s3_endpoint="http://127.0.0.1:1", region="us-east-1", root=SecretStr("root"),
                properties={PURGE_VIEWS: "false"},
                principals=[LocalPrincipal("owner", "owner", SecretStr("owner"), OWNER)],
            )  # fmt: skip
        self.policies = self.catalog._policies._policies
        self.catalog.entities.create_namespace(PLAIN, {})
        for number, one in enumerate(names):
            for namespace in ((one,), (one, one)):
                self.catalog.entities.create_namespace(namespace, {"location": f"s3://lake/t/{number}"})
            for at, key in enumerate([(PLAIN, one), ((one,), "t"), ((one, one), "t")]):
                self.put(key, number, f"s3://lake/t/{number}/{at}")
            for key in ((PLAIN, f"view {one}"), ((one,), "view")):
                self.catalog.entities.add_view(
                    key, self.write(f"s3://lake/t/{number}/view", {"view-uuid": uuid_of(number)})
                )
            for key in ((PLAIN, one), ((one,), "p")):
                self.policies.create(key, "system.snapshot-expiry", str(number), '{"enable": true}')

    def put(self, key: tuple[tuple[str, ...], str], number: int, location: str) -> None:
        document = {**METADATA, "table-uuid": uuid_of(number), "location": location}
        at = self.write(location, document)
        self.catalog.entities.add(
            key, CatalogEntry(metadata_location=at, table_uuid=uuid_of(number), location=location, used=(location,))
        )

    def write(self, location: str, document: dict[str, Any]) -> str:
        key = f"{location.removeprefix('s3://lake/')}/metadata/00000.metadata.json"
        self.s3.objects["lake", key] = json.dumps(document).encode()
        return f"s3://lake/{key}"

    def http(self, way: str = "direct") -> httpx.Client:
        direct = InProcess(self.catalog)
        return httpx.Client(
            transport=direct if way == "direct" else Behind(direct, as_event=way == "gateway on Lambda")
        )

    def client(self, way: str = "direct") -> PolarisClient:
        transport = Transport(self.http(way), backoff=RequestRetries(attempts=1))
        return PolarisClient(BASE, token_of("owner", transport), transport=transport)

    def close(self) -> None:
        self.catalog.stop()


def token_of(principal: str, transport: Transport) -> OAuth2TokenSource:
    credentials = ClientCredentials(principal, SecretStr(principal))
    return OAuth2TokenSource(f"{BASE}/v1/oauth/tokens", lambda: credentials, clock=utc_now, transport=transport)


def uuid_of(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012d}"


class Behind(httpx.BaseTransport):
    """A gateway before a catalog: in a server that reads the request line, or in a function that gets an event."""

    def __init__(self, catalog: httpx.BaseTransport, *, as_event: bool) -> None:
        upstream = HttpUpstream(BASE, httpx.Client(transport=catalog))
        self._gateway = gateway_over(cast("Any", upstream))
        self._front = LocalApiGateway("g.test", "/api/catalog", "us-east-1", "1", vpc_endpoint="v", encodes_bodies=True)
        self._as_event = as_event

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        target, headers, body = request.url.raw_path.decode(), tuple(request.headers.items()), request.read()
        if self._as_event:
            received = ApiRequest(request.method, target, headers, body, b"", "127.0.0.1", datetime.now(UTC))
            event = self._front.proxy_event(received, str(self._front.route(received)), {})
            made = json.dumps(answer_event(event, self._gateway.answer, "/api/catalog")).encode()
            front = integration_response(None, made, "r-1")
            return httpx.Response(front.status, headers=list(front.headers), content=front.body)
        path, _, query = target.partition("?")
        sent = CatalogRequest(request.method, path.removeprefix("/api/catalog/"), query, headers, body)
        answer = self._gateway.answer(sent)
        return httpx.Response(answer.status, headers=list(answer.headers), content=answer.body)


@pytest.fixture
def named() -> Iterator[Named]:
    world = Named()
    yield world
    world.close()


def is_refused(way: str, name: str) -> bool:
    """Return whether the gateway refuses every path with a name, because servers decode it differently."""
    try:
        segment_of(name)
    except UnsafeName:
        return way != "direct"
    return False


def expect(named: Named, way: str, ask: Callable[[str], object], answer: Callable[[int], object]) -> None:
    """Ask with each name for something that knows its number."""
    wrong = {}
    for number, name in enumerate(named.names):
        try:
            found = ask(name)
        except PolarisError as error:
            found = None if is_refused(way, name) and error.status == 400 else repr(error)
        expected = None if is_refused(way, name) else answer(number)
        if found != expected:
            wrong[name] = found, expected
    assert wrong == {}


def table_in(*namespace: str, name: str = "t") -> TableIdentifier:
    return TableIdentifier("lake", namespace, name)


def test_there_are_200_names() -> None:
    assert len(set(HOSTILE)) == len(HOSTILE) >= 200


@pytest.mark.parametrize("way", [*WAYS, "gateway"])
def test_a_table_a_view_and_a_namespace_are_read_by_their_own_names(named: Named, way: str) -> None:
    client = named.client(way)

    def location(number: int, at: int) -> str:
        return f"s3://lake/t/{number}/{at}"

    expect(named, way, lambda name: client.load_table(table_in("ns", name=name)).location, lambda n: location(n, 0))
    expect(named, way, lambda name: client.load_table(table_in(name), vend=False).location, lambda n: location(n, 1))
    expect(named, way, lambda name: client.load_table(table_in(name, name)).location, lambda n: location(n, 2))
    changed = "no tag"
    expect(
        named, way, lambda name: getattr(client.load_if_changed(table_in(name), changed), "table_uuid", None), uuid_of
    )
    expect(named, way, lambda name: client.namespace_location("lake", (name, name)), lambda n: f"s3://lake/t/{n}")
    expect(named, way, lambda name: client.has_namespace("lake", (name,)), lambda _n: True)
    expect(named, way, lambda name: len(list(client.list_tables("lake", (name, name)))), lambda _n: 1)
    others = {name: len(list(client.list_others(VIEW, "lake", (name,)))) for name in named.names}
    assert others == {name: 0 if is_refused(way, name) else 1 for name in named.names}
    views = [lambda name: table_in("ns", name=f"view {name}"), lambda name: table_in(name, name="view")]
    for view in views:
        expect(named, way, lambda name, view=view: _view(client, view(name)), uuid_of)
    # A parent is in the query, where the gateway refuses nothing.
    below = {name: list(client.list_namespaces("lake", (name,))) for name in named.names}
    assert below == {name: [(name, name)] for name in named.names}
    assert {one.name for one in client.list_tables("lake", PLAIN)} == set(named.names)


def _view(client: PolarisClient, identifier: TableIdentifier) -> str:
    return str(client.load_other(VIEW, identifier)["metadata"]["view-uuid"])


@pytest.mark.parametrize("way", WAYS)
def test_a_table_and_a_view_are_changed_and_dropped_by_their_own_names(named: Named, way: str) -> None:
    client = named.client(way)

    def marked(name: str) -> str:
        updates = [{"action": "set-properties", "updates": {"name": name}}]
        return client.commit_table(table_in("ns", name=name), [], updates).table_uuid

    def moved(name: str) -> str:
        client.rename_table(table_in("ns", name=name), table_in("ns", name="passing"))
        return named.catalog.entities.get((PLAIN, "passing")).table_uuid

    def moved_back(name: str) -> None:
        client.drop_table(table_in("ns", name="passing"))

    expect(named, way, marked, uuid_of)
    for number, name in enumerate(named.names):  # a name in a body is refused by nobody
        assert moved(name) == uuid_of(number)
        moved_back(name)
    expect(named, way, lambda name: client.drop_table(table_in(name, name)), lambda _n: None)
    expect(named, way, lambda name: client.drop_other(VIEW, table_in("ns", name=f"view {name}")), lambda _n: None)
    expect(named, way, lambda name: client.drop_namespace("lake", (name, name)), lambda _n: None)
    left = {name for name in named.names if named.catalog.entities.has_namespace((name, name))}
    assert left == {name for name in named.names if is_refused(way, name)}


@pytest.mark.parametrize("way", WAYS)
def test_policies_are_read_attached_and_asked_for_by_their_own_names(named: Named, way: str) -> None:
    client = named.client(way)
    policies = PolicyClient(client.requests)

    def described(found: Any) -> str:
        return str(found[0].policy.description) if found else "none"

    def attached(name: str, target: PolicyTarget) -> str:
        """Attach a policy of a hostile name, and return the one that applies then."""
        policies.attach(PolicyIdentifier("lake", PLAIN, name), target)
        return described(policies.applicable(target))

    expect(named, way, lambda name: policies.load(PolicyIdentifier("lake", PLAIN, name)).description, str)
    expect(named, way, lambda name: policies.load(PolicyIdentifier("lake", (name,), "p")).description, str)
    expect(named, way, lambda name: [one.name for one in policies.list_policies("lake", (name,))], lambda _n: ["p"])
    expect(named, way, lambda name: attached(name, PolicyTarget("lake", PLAIN, name)), str)
    expect(named, way, lambda name: attached(name, PolicyTarget("lake", (name, name))), str)
    applying = {name: described(policies.applicable(PolicyTarget("lake", PLAIN, name))) for name in named.names}
    assert applying == {
        name: "none" if is_refused(way, name) else str(number) for number, name in enumerate(named.names)
    }
    expect(named, way, lambda name: policies.delete(PolicyIdentifier("lake", (name,), "p")), lambda _n: None)


def test_credentials_are_refreshed_where_the_stand_in_says(named: Named) -> None:
    client, http = named.client(), named.http()
    headers = {"Authorization": f"Bearer {client.requests._token.token()}"}

    def refreshed(name: str) -> str:
        place = client.load_table(table_in("ns", name=name)).config["client.refresh-credentials-endpoint"]
        return str(http.get(f"{BASE}/{place}", headers=headers).json()["storage-credentials"][0]["prefix"])

    expect(named, "direct", refreshed, lambda number: f"s3://lake/t/{number}/0")


@pytest.mark.parametrize("way", WAYS)
def test_a_catalog_is_found_by_its_own_name(way: str) -> None:
    for name in SAMPLE:
        one = Named(name, ("a", "%61"))
        try:
            if is_refused(way, name):
                with pytest.raises(PolarisError):
                    one.client(way).load_table(TableIdentifier(name, PLAIN, "a"))
                continue
            assert one.client(way).load_table(TableIdentifier(name, ("%61",), "t")).table_uuid == uuid_of(1)
            policies = PolicyClient(one.client(way).requests)
            assert policies.load(PolicyIdentifier(name, PLAIN, "%61")).description == "1"
        finally:
            one.close()


def test_principals_roles_and_catalogs_are_managed_by_their_own_names() -> None:
    for name in SAMPLE:
        one = Named(name, ("a",))
        transport = Transport(one.http())
        management = PolarisManagement(management_url(BASE), token_of("root", transport), transport=transport)
        try:
            assert management.has_catalog(name)
            management.create_catalog_role(name, name)
            management.grant(name, name, PolarisGrant("TABLE_LIST", ("a",)))
            management.create_principal_role(name)
            management.assign_catalog_role(name, name, name)
            assert management.create_principal(name).client_id == management.client_id_of(name)
            management.assign_principal_role(name, name)
            assert management.grants_of(name, name) == {PolarisGrant("TABLE_LIST", ("a",))}
            assert management.catalog_roles_of(name, name) == management.principal_roles_of(name) == {name}
        finally:
            one.close()


def test_a_table_is_dropped_with_its_files_by_its_own_name() -> None:
    with contextlib.closing(DropWorld()) as world:
        uuid, state = world.table(), world.catalog.entities
        gateway = Gateway(world.forwarder, TokenCallers(None), drops=lambda: world.drops)
        headers = (("Authorization", f"Bearer {world.tokens['ann']}"), ("Polaris-Realm", REALM))
        for name in SAMPLE:
            if is_refused("gateway", name):
                continue
            state.rename((PLAIN, "orders"), (PLAIN, name))
            path = PolarisPaths("lake", NAMESPACE_SEPARATOR).table_path(table_in("ns", name=name))
            answer = gateway.answer(CatalogRequest("DELETE", path, "purgeRequested=true", headers))
            record = world.tombstones.get(str(answer.header("X-Delegation-Tombstone")))
            assert (answer.status, record.identifier.name, record.table_uuid) == (204, name, uuid)
            world.tombstones.restore(record.tombstone_id, table_in("ns", name="orders"))
        assert world.uuid() == uuid


def test_what_no_request_can_name_is_refused_before_a_request() -> None:
    def send(request: httpx.Request) -> httpx.Response:
        assert request.url.path.endswith(("/oauth/tokens", "/config")), "a request names something else"
        token = {"access_token": "t", "token_type": "bearer"}
        return httpx.Response(200, json={**token, "overrides": {"prefix": "lake", "namespace-separator": "%2E"}})

    transport = Transport(httpx.Client(transport=httpx.MockTransport(send)))
    client = PolarisClient(BASE, token_of("owner", transport), transport=transport)
    policies = PolicyClient(client.requests)
    for name in (*NO_NAMES, "a.b"):
        for ask in (
            lambda levels: list(client.list_tables("lake", levels)),
            lambda levels: list(client.list_namespaces("lake", levels)),
            lambda levels: client.drop_namespace("lake", levels),
            lambda levels: policies.applicable(PolicyTarget("lake", levels)),
            lambda levels: policies.load(PolicyIdentifier("lake", levels, "p")),
        ):
            with pytest.raises(PolarisUnexpectedAnswer, match=r"the namespace .* cannot be named"):
                ask(("a", name))
    for name in NO_NAMES:
        with pytest.raises(ValueError, match="a part of an identifier"):
            table_in("ns", name=name)


@pytest.mark.parametrize("name", NO_NAMES[1:])
def test_a_listed_table_that_no_request_can_name_is_an_answer_of_its_namespace(named: Named, name: str) -> None:
    named.catalog.entities.create_namespace(("bad",), {})
    named.put((("bad",), name), 0, "s3://lake/t/bad")
    with pytest.raises(PolarisUnexpectedAnswer, match=r"the table .* cannot be named|a name that is not Unicode"):
        list(named.client().list_tables("lake", ("bad",)))
    assert len(list(named.client().list_tables("lake", PLAIN))) == len(named.names)
