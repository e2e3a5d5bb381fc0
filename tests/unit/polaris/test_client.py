import json
from datetime import timedelta
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from delegation.identifiers import TableIdentifier
from delegation.polaris import answers
from delegation.polaris.answers import error_of
from delegation.polaris.client import PolarisClient
from delegation.polaris.requests import ClientCredentials, OAuth2TokenSource
from delegation.polaris.transport import RequestRetries
from polaris_common.errors import DelegationError
from tests.kit.clocks import Clock
from tests.unit.polaris.scripted import Server, error, raw_json, table_answer

BASE = "https://polaris.test/api/catalog"
TOKENS = "/api/catalog/v1/oauth/tokens"
CONFIG = "/api/catalog/v1/config"
ORDERS = TableIdentifier("lake", ("sales", "eu"), "orders")
TABLE = "/api/catalog/v1/lake/namespaces/sales%1Feu/tables/orders"


def token(value: str, expires_in: int = 3600) -> httpx.Response:
    return httpx.Response(200, json={"access_token": value, "token_type": "bearer", "expires_in": expires_in})


@pytest.fixture
def client(server: Server, clock: Clock) -> PolarisClient:
    return client_of(server, clock)


def client_of(server: Server, clock: Clock) -> PolarisClient:
    server.answer("POST", TOKENS, token("token-1"), token("token-2"))
    server.answer("GET", CONFIG, httpx.Response(200, json={"defaults": {}, "overrides": {"prefix": "lake"}}))
    server.answer("GET", TABLE, table_answer())
    server.answer("DELETE", TABLE, httpx.Response(204))
    tokens = OAuth2TokenSource(
        BASE + "/v1/oauth/tokens",
        lambda: ClientCredentials("purger", SecretStr("pssst")),
        clock=clock,
        realm="prod",
        transport=server.transport,
    )
    transport = server.transport
    return PolarisClient(BASE + "/", tokens, realm="prod", transport=transport, monotonic=lambda: clock().timestamp())


@pytest.mark.parametrize(
    ("options", "snapshots", "delegation"),
    [({}, "all", "vended-credentials"), ({"vend": False, "snapshots": "refs"}, "refs", None)],
)
def test_a_load_asks_for_all_snapshots_and_credentials_unless_told_otherwise(
    client: PolarisClient, server: Server, options: dict[str, Any], snapshots: str, delegation: str | None
) -> None:
    client.load_table(ORDERS, **options)
    [request] = server.asked("GET", TABLE)
    assert request.headers.get("X-Iceberg-Access-Delegation") == delegation
    assert (request.headers["Polaris-Realm"], request.headers["Authorization"]) == ("prod", "Bearer token-1")
    assert dict(request.url.params) == {"snapshots": snapshots}


def test_a_loaded_table_has_identity_and_storage_settings(client: PolarisClient) -> None:
    table = client.load_table(ORDERS)
    assert table.identifier == ORDERS
    assert str(table.identifier) == "lake.sales.eu.orders"
    assert table.table_uuid == "9c12d441-03fe-4693-9a96-a0705ddf69c1"
    assert table.metadata_location.endswith("00002.metadata.json")
    assert (table.location, table.format_version) == ("s3://lake/ns/orders", 2)
    assert table.properties == {"gc.enabled": "true"}
    assert (table.s3.endpoint, table.s3.path_style, table.s3.region) == ("http://127.0.0.1:90", True, "eu-west-1")


@pytest.mark.parametrize("number", [2**53 + 1, 9_223_372_036_854_775_807, -9_223_372_036_854_775_808])
def test_big_integers_stay_exact(client: PolarisClient, server: Server, number: int) -> None:
    body = table_answer().content.decode().replace("9223372036854775807", str(number))
    server.answer("GET", TABLE, raw_json(body))
    assert client.load_table(ORDERS).metadata["snapshots"][0]["snapshot-id"] == number


def test_config_and_token_are_requested_once(client: PolarisClient, server: Server) -> None:
    for _ in range(3):
        client.load_table(ORDERS)
    assert len(server.asked("POST", TOKENS)) == 1
    [config] = server.asked("GET", CONFIG)
    assert config.url.params["warehouse"] == "lake"


def test_names_with_reserved_characters_are_single_path_segments(client: PolarisClient, server: Server) -> None:
    path = "/api/catalog/v1/lake/namespaces/a%2Fb%1Fc%3Fd%20e/tables/x%23%25%C3%BC"
    server.answer("GET", path, table_answer())
    table = client.load_table(TableIdentifier("lake", ("a/b", "c?d e"), "x#%ü"))
    assert table.identifier.name == "x#%ü"
    assert len(server.asked("GET", path)) == 1


@pytest.mark.parametrize(
    ("config", "path"),
    [
        (
            '{"overrides": {"prefix": "p/q", "namespace-separator": "%2E"}, "defaults": {"prefix": "no"}}',
            "p/q/namespaces/sales.eu",
        ),
        ('{"overrides": {}, "defaults": {}}', "namespaces/sales%1Feu"),
    ],
    ids=["its own separator", "no prefix"],
)
def test_paths_follow_the_catalogs_configuration(client: PolarisClient, server: Server, config: str, path: str) -> None:
    server.answer("GET", CONFIG, raw_json(config))
    server.answer("GET", f"/api/catalog/v1/{path}/tables/orders", table_answer())
    assert client.load_table(ORDERS).location == "s3://lake/ns/orders"


@pytest.mark.parametrize(
    ("namespace", "name"), [(("sales",), name) for name in ("..", ".", "", "a\x1fb")] + [((), "orders")]
)
def test_a_name_that_would_change_the_path_is_refused(namespace: tuple[str, ...], name: str) -> None:
    with pytest.raises(ValueError, match=r"a part of an identifier|namespace level"):
        TableIdentifier("lake", namespace, name)


ANSWERS: list[tuple[httpx.Response, type[answers.PolarisError]]] = [
    (error(404, "NoSuchTableException"), answers.NoSuchTable),
    (error(404, "NoSuchIcebergTableException"), answers.NoSuchTable),
    (error(404, "NoSuchNamespaceException"), answers.NoSuchNamespace),
    (error(404, "NotFoundException", "Unable to find warehouse lake"), answers.NoSuchCatalog),
    (error(404, "MissingOrInvalidRealm"), answers.PolarisMisconfigured),
    (
        error(400, "NotFoundException", "Location does not exist: s3://lake/x.metadata.json"),
        answers.TableMetadataMissing,
    ),
    (error(500, "NotFoundException"), answers.TableMetadataMissing),
    (
        error(400, "BadRequestException", "Malformed request: Location does not exist: s3://lake/x.metadata.json"),
        answers.TableMetadataMissing,
    ),
    (
        error(500, "ServiceFailureException", "Server error: Location does not exist: s3://lake/x.metadata.json"),
        answers.TableMetadataMissing,
    ),
    (error(404, "NoSuchTableException", "Location does not exist: s3://lake/x"), answers.NoSuchTable),
    (error(400, "BadRequestException", "Table does not exist: NoSuchTableException"), answers.PolarisUnexpectedAnswer),
    (error(409, "AlreadyExistsException"), answers.TableAlreadyExists),
    (error(403, "ForbiddenException"), answers.PolarisForbidden),
    (httpx.Response(403, text="<html>"), answers.PolarisForbidden),
    (httpx.Response(404, text="<html>"), answers.PolarisUnexpectedAnswer),
    (httpx.Response(404, json=[1]), answers.PolarisUnexpectedAnswer),
    (httpx.Response(302, headers={"Location": "https://elsewhere.test"}), answers.PolarisUnexpectedAnswer),
    (error(429, "TooManyRequestsException"), answers.PolarisUnavailable),
    (error(500, "RuntimeException"), answers.PolarisUnavailable),
    (httpx.Response(502, text="bad gateway"), answers.PolarisUnavailable),
    (error(503, "ServiceUnavailableException"), answers.PolarisUnavailable),
]


@pytest.mark.parametrize(("answer", "kind"), ANSWERS, ids=lambda value: getattr(value, "__name__", None))
def test_an_error_is_recognized_by_its_type_not_its_message(
    client: PolarisClient, server: Server, answer: httpx.Response, kind: type[answers.PolarisError]
) -> None:
    server.answer("GET", TABLE, answer)
    with pytest.raises(answers.PolarisError) as raised:
        client.load_table(ORDERS)
    assert (type(raised.value), raised.value.status) == (kind, answer.status_code)
    assert bool(server.slept) is (answer.status_code == 429 or answer.status_code >= 500)


def test_every_error_is_a_delegation_error_with_a_unique_code() -> None:
    kinds = [
        kind for kind in vars(answers).values() if isinstance(kind, type) and issubclass(kind, answers.PolarisError)
    ]
    assert all(issubclass(kind, DelegationError) for kind in kinds)
    assert len({kind.code for kind in kinds}) == len(kinds)
    assert {kind for kind in kinds if kind.retryable} == {answers.PolarisUnavailable, answers.PolarisOutcomeUnknown}


@pytest.mark.parametrize(
    "answer",
    [
        table_answer(metadata=None),
        table_answer(metadata={"location": "s3://x"}),
        table_answer(**{"metadata-location": None}),
        table_answer(config=["no"]),
        httpx.Response(200, text="<html>"),
    ],
    ids=["no metadata", "no uuid", "no metadata location", "odd config", "no JSON"],
)
def test_an_incomplete_answer_is_refused(client: PolarisClient, server: Server, answer: httpx.Response) -> None:
    server.answer("GET", TABLE, answer)
    with pytest.raises(answers.PolarisUnexpectedAnswer):
        client.load_table(ORDERS)


@pytest.mark.parametrize("refusal", [401, 419])
def test_a_refused_token_is_replaced_once(client: PolarisClient, server: Server, refusal: int) -> None:
    server.answer("GET", TABLE, httpx.Response(refusal), table_answer())
    client.load_table(ORDERS)
    assert [request.headers["Authorization"] for request in server.asked("GET", TABLE)] == [
        "Bearer token-1",
        "Bearer token-2",
    ]


def test_a_refused_fresh_token_is_not_replaced_again(client: PolarisClient, server: Server) -> None:
    server.answer("GET", TABLE, httpx.Response(401))
    with pytest.raises(answers.PolarisUnauthorized):
        client.load_table(ORDERS)
    assert len(server.asked("GET", TABLE)) == 2


@pytest.mark.parametrize(
    "failure",
    [httpx.ConnectError("refused"), httpx.ReadTimeout("slow"), httpx.RemoteProtocolError("eof"), httpx.Response(502)],
    ids=lambda value: type(value).__name__,
)
def test_a_failed_load_is_retried(client: PolarisClient, server: Server, failure: httpx.Response | Exception) -> None:
    server.answer("GET", TABLE, failure, failure, table_answer())
    client.load_table(ORDERS)
    assert server.slept == [0.2, 0.4]


def test_a_short_retry_after_is_waited_for_and_a_long_one_is_raised(client: PolarisClient, server: Server) -> None:
    short, long = error(503, "X", headers={"Retry-After": "1"}), error(503, "X", headers={"Retry-After": "120"})
    server.answer("GET", TABLE, short, long)
    with pytest.raises(answers.PolarisUnavailable) as raised:
        client.load_table(ORDERS)
    assert server.slept == [1.0]
    assert raised.value.retry_after == 120


def test_pauses_never_exceed_the_longest() -> None:
    backoff = RequestRetries(attempts=9, first_seconds=0.5, longest_seconds=1.5)
    assert [backoff.wait(attempt) for attempt in (1, 2, 3, 8, 9)] == [0.5, 1.0, 1.5, 1.5, None]


@pytest.mark.parametrize("status", [200, 204])
def test_drop_requests_no_purge_by_default(client: PolarisClient, server: Server, status: int) -> None:
    server.answer("DELETE", TABLE, httpx.Response(status))
    client.drop_table(ORDERS)
    client.drop_table(ORDERS, purge=True)
    assert [request.url.params["purgeRequested"] for request in server.asked("DELETE", TABLE)] == ["false", "true"]


@pytest.mark.parametrize("failure", [httpx.ReadTimeout("slow"), httpx.Response(500), httpx.Response(504)])
def test_a_drop_with_an_unknown_outcome_is_not_repeated(
    client: PolarisClient, server: Server, failure: httpx.Response | Exception
) -> None:
    server.answer("DELETE", TABLE, failure)
    with pytest.raises(answers.PolarisOutcomeUnknown):
        client.drop_table(ORDERS)
    assert len(server.asked("DELETE", TABLE)) == 1


@pytest.mark.parametrize("failure", [httpx.ConnectError("refused"), httpx.Response(503), httpx.Response(429)])
def test_a_drop_that_was_not_applied_is_repeated(
    client: PolarisClient, server: Server, failure: httpx.Response | Exception
) -> None:
    server.answer("DELETE", TABLE, failure, httpx.Response(204))
    client.drop_table(ORDERS)
    assert len(server.asked("DELETE", TABLE)) == 2


def test_a_drop_that_was_not_sent_has_no_unknown_outcome(client: PolarisClient, server: Server) -> None:
    server.answer("DELETE", TABLE, httpx.ConnectError("refused"))
    with pytest.raises(answers.PolarisUnavailable) as raised:
        client.drop_table(ORDERS)
    assert type(raised.value) is answers.PolarisUnavailable


RENAME = "/api/catalog/v1/lake/tables/rename"
HIDDEN = TableIdentifier("lake", ("hidden",), "t 1")


@pytest.mark.parametrize("status", [200, 204])
def test_a_rename_names_both_ends_by_their_levels(client: PolarisClient, server: Server, status: int) -> None:
    server.answer("POST", RENAME, httpx.Response(status))
    client.rename_table(ORDERS, HIDDEN)
    (request,) = server.asked("POST", RENAME)
    assert json.loads(request.content) == {
        "source": {"namespace": list(ORDERS.namespace), "name": ORDERS.name},
        "destination": {"namespace": ["hidden"], "name": "t 1"},
    }


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (error(404, "NoSuchTableException"), answers.NoSuchTable),
        (error(404, "NoSuchNamespaceException"), answers.NoSuchNamespace),
        (error(409, "AlreadyExistsException"), answers.TableAlreadyExists),
        (httpx.Response(500), answers.PolarisOutcomeUnknown),
        (httpx.ReadTimeout("slow"), answers.PolarisOutcomeUnknown),
    ],
)
def test_a_rename_that_failed_is_not_repeated(
    client: PolarisClient, server: Server, answer: httpx.Response | Exception, kind: type[answers.PolarisError]
) -> None:
    server.answer("POST", RENAME, answer)
    with pytest.raises(kind):
        client.rename_table(ORDERS, HIDDEN)
    assert len(server.asked("POST", RENAME)) == 1


COMMITTED = {
    "metadata-location": "s3://b/2.json",
    "metadata": {"table-uuid": "u", "location": "s3://b", "format-version": 2},
}


@pytest.mark.parametrize(
    "more",
    [
        {"config": {"s3.access-key-id": "k", "s3.secret-access-key": "s", "s3.session-token-expires-at-ms": "soon"}},
        {"storage-credentials": 5},
        {"config": []},
    ],
)
def test_a_commit_that_was_applied_is_none_that_failed_whatever_credentials_its_answer_has(
    client: PolarisClient, server: Server, more: dict[str, object]
) -> None:
    server.answer("POST", TABLE, httpx.Response(200, json={**COMMITTED, **more}))
    after = client.commit_table(ORDERS, [], [])
    assert (after.metadata_location, after.credentials) == ("s3://b/2.json", ())


@pytest.mark.parametrize("answer", [{}, {"metadata-location": "x"}, [], {**COMMITTED, "metadata": []}])
def test_an_unusable_answer_to_a_commit_is_unknown(client: PolarisClient, server: Server, answer: object) -> None:
    server.answer("POST", TABLE, httpx.Response(200, json=answer))
    with pytest.raises(answers.PolarisOutcomeUnknown):
        client.commit_table(ORDERS, [], [])


TABLES = "/api/catalog/v1/lake/namespaces/sales%1Feu/tables"
NAMESPACES = "/api/catalog/v1/lake/namespaces"


def listed(*names: str, following: str | None = None) -> httpx.Response:
    entries = [{"namespace": ["sales", "eu"], "name": name} for name in names]
    return httpx.Response(200, json={"identifiers": entries, "next-page-token": following})


def test_tables_are_listed_page_by_page(client: PolarisClient, server: Server) -> None:
    server.answer("GET", TABLES, listed("a", "b", following="p2"), listed(following="p3"), listed("c"))
    names = [table.name for table in client.list_tables("lake", ("sales", "eu"))]
    assert names == ["a", "b", "c"]
    assert [request.url.params["pageToken"] for request in server.asked("GET", TABLES)] == ["", "p2", "p3"]


def test_pages_of_a_listing_are_requested_on_demand(client: PolarisClient, server: Server) -> None:
    server.answer("GET", TABLES, listed("a", following="p2"), error(500, "Unexpected"))
    assert next(client.list_tables("lake", ("sales", "eu"))) == TableIdentifier("lake", ("sales", "eu"), "a")
    assert len(server.asked("GET", TABLES)) == 1


def test_namespaces_are_listed_below_a_parent(client: PolarisClient, server: Server) -> None:
    server.answer("GET", NAMESPACES, httpx.Response(200, json={"namespaces": [["sales", "eu"], ["sales", "us"]]}))
    assert list(client.list_namespaces("lake", ("sales",))) == [("sales", "eu"), ("sales", "us")]
    assert list(client.list_namespaces("lake")) == [("sales", "eu"), ("sales", "us")]
    below, top = server.asked("GET", NAMESPACES)
    assert below.url.params["parent"] == "sales"
    assert "parent" not in top.url.params


@pytest.mark.parametrize(
    "body",
    [
        {"identifiers": None},
        {"identifiers": {"name": "a"}},
        {"identifiers": [{"namespace": ["sales", "eu"]}]},
        {"identifiers": ["a"]},
        {"identifiers": [{"name": 7}]},
    ],
)
def test_a_malformed_listing_is_refused(client: PolarisClient, server: Server, body: dict[str, Any]) -> None:
    server.answer("GET", TABLES, httpx.Response(200, json=body))
    with pytest.raises(answers.PolarisUnexpectedAnswer):
        list(client.list_tables("lake", ("sales", "eu")))


def test_a_listing_that_repeats_its_page_token_is_refused(client: PolarisClient, server: Server) -> None:
    server.answer("GET", TABLES, listed("a", following="p2"), listed("b", following="p2"))
    with pytest.raises(answers.PolarisUnexpectedAnswer):
        list(client.list_tables("lake", ("sales", "eu")))


@pytest.mark.parametrize("bad", [{"name": ".."}, {"name": "\x1f"}, {"name": ""}, {}, 7])
def test_an_impossible_name_is_raised_after_all_others(client: PolarisClient, server: Server, bad: object) -> None:
    entries = [{"name": "a"}, bad, {"name": "b"}]
    for path in (TABLES, TABLES.replace("/tables", "/views")):
        server.answer("GET", path, httpx.Response(200, json={"identifiers": entries}))
    for listing in (client.list_tables("lake", ("sales", "eu")), client.list_others("view", "lake", ("sales", "eu"))):
        assert [next(listing).name, next(listing).name] == ["a", "b"]
        with pytest.raises(answers.PolarisUnexpectedAnswer):
            next(listing)


@pytest.mark.parametrize("entry", ["sales", [], ["sales", 7], None, 7])
def test_a_malformed_namespace_is_raised_after_all_others(client: PolarisClient, server: Server, entry: object) -> None:
    server.answer("GET", NAMESPACES, httpx.Response(200, json={"namespaces": [entry, ["sales"]]}))
    listing = client.list_namespaces("lake")
    assert next(listing) == ("sales",)
    with pytest.raises(answers.PolarisUnexpectedAnswer):
        next(listing)


def test_an_unchanged_table_is_not_loaded_again(client: PolarisClient, server: Server) -> None:
    server.answer("GET", TABLE, httpx.Response(304))
    assert client.load_if_changed(ORDERS, 'W/"abc"') is None
    [request] = server.asked("GET", TABLE)
    assert request.headers["If-None-Match"] == 'W/"abc"'
    assert dict(request.url.params) == {"snapshots": "all"}
    assert request.headers["X-Iceberg-Access-Delegation"] == "vended-credentials"


def test_a_changed_table_comes_with_its_etag(client: PolarisClient, server: Server) -> None:
    answer = table_answer()
    answer.headers["ETag"] = 'W/"new"'
    server.answer("GET", TABLE, answer)
    table = client.load_if_changed(ORDERS, None)
    assert (table.identifier, table.etag) == (ORDERS, 'W/"new"')
    assert "If-None-Match" not in server.asked("GET", TABLE)[0].headers


MANAGED = "/api/management/v1/catalogs/lake"


@pytest.mark.parametrize(
    ("found", "word"),
    [
        ({"type": "EXTERNAL", "storageConfigInfo": {"storageType": "S3"}}, "EXTERNAL"),
        ({"type": "INTERNAL", "storageConfigInfo": {"storageType": "GCS"}}, "storage type is GCS"),
        ({"type": "INTERNAL", "storageConfigInfo": {"storageType": "AZURE"}}, "storage type is AZURE"),
    ],
)
def test_a_catalog_whose_files_are_not_the_services_is_refused_with_that_word(
    client: PolarisClient, server: Server, found: dict[str, Any], word: str
) -> None:
    server.answer("GET", MANAGED, httpx.Response(200, json={"name": "lake", **found}))
    for _ in range(2):
        with pytest.raises(answers.PolarisError, match=word) as raised:
            client.check_catalog("lake")
        assert raised.value.code == "CATALOG_UNSUPPORTED"
    assert len(server.asked("GET", MANAGED)) == 1


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(200, json={"type": "INTERNAL", "storageConfigInfo": {"storageType": "S3"}}),
        httpx.Response(200, json={"type": 7, "storageConfigInfo": [1]}),
        error(403, "ForbiddenException", "Principal 'p' is not authorized for op GET_CATALOG"),
        httpx.Response(404, text="no such path"),
    ],
)
def test_a_catalog_of_no_known_kind_is_accepted(client: PolarisClient, server: Server, answer: httpx.Response) -> None:
    server.answer("GET", MANAGED, answer)
    client.check_catalog("lake")


EXTERNAL = httpx.Response(200, json={"type": "EXTERNAL", "storageConfigInfo": {"storageType": "S3"}})
INTERNAL = httpx.Response(200, json={"type": "INTERNAL", "storageConfigInfo": {"storageType": "S3"}})


@pytest.mark.parametrize("failure", [httpx.ReadTimeout("hung"), error(503, "ServiceUnavailableException")])
def test_a_look_without_answer_is_repeated(client: PolarisClient, server: Server, clock: Clock, failure: Any) -> None:
    server.answer("GET", MANAGED, failure, EXTERNAL)
    for _ in range(3):
        client.check_catalog("lake")
    [look] = server.asked("GET", MANAGED)  # it is neither repeated at once nor waited for again
    assert (look.extensions["timeout"]["read"], server.slept) == (2.0, [])
    clock.advance(timedelta(seconds=30))
    with pytest.raises(answers.PolarisError, match="EXTERNAL"):
        client.check_catalog("lake")


def test_what_is_known_of_a_catalog_stays_while_polaris_hangs_and_follows_a_new_catalog_of_the_name(
    client: PolarisClient, server: Server, clock: Clock
) -> None:
    server.answer("GET", MANAGED, EXTERNAL, httpx.ReadTimeout("hung"), INTERNAL)
    for _ in range(2):
        with pytest.raises(answers.PolarisError, match="EXTERNAL"):
            client.check_catalog("lake")
        clock.advance(timedelta(seconds=300))
    client.check_catalog("lake")


def test_the_refusal_of_a_static_facade_names_the_catalog_as_external(client: PolarisClient, server: Server) -> None:
    server.answer("GET", TABLE, error(400, "BadRequestException", "Cannot X on static-facade external catalogs."))
    with pytest.raises(answers.PolarisError, match="the catalog is EXTERNAL") as raised:
        client.load_table(ORDERS)
    assert raised.value.code == "CATALOG_UNSUPPORTED"


def test_a_name_and_a_write_of_unknown_outcome_are_not_taken_for_a_metadata_file_that_is_gone() -> None:
    named = error_of(error(503, "ServiceFailureException", "Table ns.Location does not exist is locked"))
    assert isinstance(named, answers.PolarisUnavailable)
    gone = error(500, "ServiceFailureException", "Location does not exist: s3://lake/x.metadata.json")
    assert isinstance(error_of(gone, write=True), answers.PolarisOutcomeUnknown)
    assert isinstance(error_of(gone), answers.TableMetadataMissing)
