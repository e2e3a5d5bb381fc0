"""Views and generic tables as the client lists, reads and drops them, on the stand-in catalog."""

from collections.abc import Iterator

import pytest
from pydantic import SecretStr

from delegation.identifiers import TableIdentifier
from delegation.polaris.answers import NoSuchCatalog, NoSuchNamespace, NoSuchTable, PolarisForbidden
from delegation.polaris.client import PolarisClient
from delegation.polaris.model import GENERIC_TABLE, VIEW
from delegation.polaris.requests import ClientCredentials, OAuth2TokenSource
from delegation.polaris.transport import RequestRetries, Transport
from tests.unit.gateway.drop.world import REALM, URL, DropWorld
from tests.unit.gateway.keys.mutations import view_request

REPORT = TableIdentifier("lake", ("ns",), "report 2%")
GENERIC = "GET /api/catalog/polaris/v1/lake/namespaces/ns/generic-tables"


@pytest.fixture
def here() -> Iterator[DropWorld]:
    made = DropWorld()
    yield made
    made.close()


def ann(here: DropWorld) -> PolarisClient:
    """The client of a principal who may do everything."""
    transport = Transport(here.http, backoff=RequestRetries(attempts=1))
    secret = ClientCredentials("ann", SecretStr("ann"))
    url = f"{URL}/v1/oauth/tokens"
    token = OAuth2TokenSource(url, lambda: secret, clock=here.clock, realm=REALM, transport=transport)
    return PolarisClient(URL, token, realm=REALM, transport=transport)


def test_views_are_listed_read_and_dropped(here: DropWorld) -> None:
    client = ann(here)
    assert list(client.list_others(VIEW, "lake", ("ns",))) == []
    body = {**view_request(), "name": REPORT.name}
    here.send("POST", "namespaces/ns/views", body)
    assert list(client.list_others(VIEW, "lake", ("ns",))) == [REPORT]
    assert client.load_other(VIEW, REPORT)["metadata"]["view-uuid"]
    here.catalog.warehouse.replace_properties({"polaris.config.purge-view-metadata-on-drop": "false"})
    client.drop_other(VIEW, REPORT)
    assert list(client.list_others(VIEW, "lake", ("ns",))) == []


def test_a_server_without_generic_tables_has_none(here: DropWorld) -> None:
    for status, kind in ((404, "NotFoundException"), (404, ""), (400, "BadRequestException"), (501, ""), (405, "")):
        here.requests.fake = {GENERIC: (status, kind, "no such endpoint")}
        assert list(here.polaris.list_others(GENERIC_TABLE, "lake", ("ns",))) == [], (status, kind)


def test_an_unknown_catalog_is_an_error_and_no_empty_list(here: DropWorld) -> None:
    with pytest.raises(NoSuchCatalog):
        list(here.polaris.list_others(GENERIC_TABLE, "nowhere", ("ns",)))


def test_what_may_not_be_listed_is_an_error(here: DropWorld) -> None:
    here.requests.fake = {GENERIC: (403, "ForbiddenException", "no")}
    with pytest.raises(PolarisForbidden):
        list(here.polaris.list_others(GENERIC_TABLE, "lake", ("ns",)))
    with pytest.raises(NoSuchNamespace):
        list(ann(here).list_others(VIEW, "lake", ("nowhere",)))


def test_what_is_gone_is_gone(here: DropWorld) -> None:
    client = ann(here)
    for act in (client.load_other, client.drop_other):
        with pytest.raises(NoSuchTable):
            act(VIEW, TableIdentifier("lake", ("ns",), "nothing"))
