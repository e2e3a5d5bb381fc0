"""Polaris' tables of other formats are listed with their locations; a catalog without them has none."""

import httpx
import pytest

from delegation.identifiers import TableIdentifier
from delegation.polaris import answers
from delegation.polaris.client import PolarisClient
from delegation.polaris.model import GenericTable
from tests.unit.polaris import test_client
from tests.unit.polaris.scripted import Server, error

client = test_client.client
NAMESPACE = ("sales", "eu")
TABLES = "/api/catalog/polaris/v1/lake/namespaces/sales%1Feu/generic-tables"


def identifier(name: str) -> TableIdentifier:
    return TableIdentifier("lake", NAMESPACE, name)


def page(*names: str, following: str | None = None) -> httpx.Response:
    found = [{"namespace": list(NAMESPACE), "name": name} for name in names]
    return httpx.Response(200, json={"identifiers": found, "next-page-token": following})


def test_each_is_loaded_for_its_location(client: PolarisClient, server: Server) -> None:
    server.answer("GET", TABLES, page("delta", "a/b", following="2"), page("lost", "plain"))
    server.answer(
        "GET",
        f"{TABLES}/delta",
        httpx.Response(200, json={"table": {"name": "delta", "base-location": "s3://b/delta"}}),
    )
    server.answer("GET", f"{TABLES}/a%2Fb", httpx.Response(200, json={"table": {"name": "a/b", "base-location": ""}}))
    server.answer("GET", f"{TABLES}/lost", error(404, "NoSuchTableException"))
    server.answer("GET", f"{TABLES}/plain", httpx.Response(200, json={"table": {"name": "plain"}}))
    asked: list[bool] = []
    found = list(client.generic_tables("lake", NAMESPACE, lambda: asked.append(True)))
    assert found == [
        GenericTable(identifier("delta"), "s3://b/delta"),
        GenericTable(identifier("a/b"), None),
        GenericTable(identifier("plain"), None),
    ]
    assert len(asked) == 6


@pytest.mark.parametrize("answer", [httpx.Response(404), error(400, "UnsupportedOperationException"), error(501, "X")])
def test_a_catalog_without_them_is_asked_once(client: PolarisClient, server: Server, answer: httpx.Response) -> None:
    server.answer("GET", TABLES, answer)
    assert list(client.generic_tables("lake", NAMESPACE)) == []
    before = len(server.requests)
    assert list(client.generic_tables("lake", ("other",))) == []
    assert len(server.requests) == before


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (error(403, "ForbiddenException"), answers.PolarisForbidden),
        (error(404, "NoSuchNamespaceException"), answers.NoSuchNamespace),
        (error(503, "ServiceUnavailable"), answers.PolarisUnavailable),
    ],
)
def test_what_is_no_answer_to_the_question_is_raised(
    client: PolarisClient, server: Server, answer: httpx.Response, kind: type[Exception]
) -> None:
    server.answer("GET", TABLES, answer)
    with pytest.raises(kind):
        list(client.generic_tables("lake", NAMESPACE))


def test_one_that_cannot_be_read_is_known_without_a_location(client: PolarisClient, server: Server) -> None:
    server.answer("GET", TABLES, page("secret", "odd", "delta"))
    server.answer("GET", f"{TABLES}/secret", error(403, "ForbiddenException"))
    server.answer("GET", f"{TABLES}/odd", httpx.Response(200, content=b"x"))
    server.answer("GET", f"{TABLES}/delta", httpx.Response(200, json={"table": {"base-location": "s3://b/delta"}}))
    assert list(client.generic_tables("lake", NAMESPACE)) == [
        GenericTable(identifier("secret"), None),
        GenericTable(identifier("odd"), None),
        GenericTable(identifier("delta"), "s3://b/delta"),
    ]


def test_the_others_are_yielded_before_the_error_of_one(client: PolarisClient, server: Server) -> None:
    found: list[GenericTable] = []
    server.answer("GET", TABLES, page("..", "down", "delta"))
    server.answer("GET", f"{TABLES}/down", error(503, "ServiceFailureException"))
    server.answer("GET", f"{TABLES}/delta", httpx.Response(200, json={"table": {"base-location": "s3://b/delta"}}))
    with pytest.raises(answers.PolarisUnexpectedAnswer, match=r"'\.\.' cannot be named"):
        found.extend(client.generic_tables("lake", NAMESPACE))
    assert found == [GenericTable(identifier("delta"), "s3://b/delta")]
    server.answer("GET", TABLES, page("down", "delta"))
    with pytest.raises(answers.PolarisUnavailable):
        found.extend(client.generic_tables("lake", NAMESPACE))
    assert len(found) == 2
