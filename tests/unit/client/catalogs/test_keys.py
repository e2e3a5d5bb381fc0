"""pyiceberg through the gateway with the keys of our wrapper, and what the wrapper repeats."""

import gzip
import io
import json
import threading
import warnings
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import CommitStateUnknownException, NamespaceAlreadyExistsError, ServerError
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from requests.exceptions import ConnectionError as NoConnection

from delegation.client.keys import KeyedRequests, advertised, is_mutation, send_keys
from delegation.gateway.messages import CatalogAnswer, CatalogRequest, error_answer
from tests.unit.gateway.keys.stand_in import KeyedCatalog
from tests.unit.gateway.test_routing import MUTATIONS

BASE = "http://catalog.test/api/catalog/v1/lake"
SCHEMA = Schema(NestedField(1, "id", LongType(), required=False))


@dataclass
class ThroughGateway:
    """A requests adapter that hands requests to a gateway of this process; `failing` replaces the catalog's answers."""

    world: KeyedCatalog
    respond: Any = lambda _request, answer: answer
    sent: list[CatalogRequest] = field(default_factory=list)

    def send(self, request: Any, **_: Any) -> Any:
        from requests import Response

        path, _, query = request.path_url.removeprefix("/api/catalog/").partition("?")
        body = request.body or b""
        content = body.encode() if isinstance(body, str) else body
        asked = CatalogRequest(request.method, path, query, tuple(request.headers.items()), content)
        self.sent.append(asked)
        answer = self.world.gateway(respond=self.respond).answer(asked)
        response = Response()
        response.status_code, response.request, response.url = answer.status, request, request.url
        is_zipped = answer.header("Content-Encoding") == "gzip"
        response._content = gzip.decompress(answer.body) if is_zipped else answer.body
        response.raw = io.BytesIO()
        response.headers.update(dict(answer.headers))
        return response

    def close(self) -> None:
        pass


@pytest.fixture
def catalog(monkeypatch):
    """pyiceberg's catalog on a gateway in this process, its adapter, and the stand-in behind it."""
    world = KeyedCatalog()
    adapter = ThroughGateway(world)
    monkeypatch.setattr("requests.Session.get_adapter", _adapters(adapter))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        found = RestCatalog(
            "lake", uri="http://catalog.test/api/catalog", warehouse="lake", token=world.tokens["owner"]
        )
    yield found, adapter
    world.close()


def _adapters(adapter):
    def get_adapter(session, url):
        own = [each for prefix, each in session.adapters.items() if url.startswith(prefix) and len(prefix) > 8]
        return own[0] if own else adapter

    return get_adapter


class FailsOnce:
    """The catalog applies each mutation, and its first answer to each is lost behind a 500."""

    def __init__(self) -> None:
        self.failed: set[bytes] = set()
        self._lock = threading.Lock()

    def __call__(self, request: CatalogRequest, answer: CatalogAnswer) -> CatalogAnswer:
        with self._lock:
            if request.method not in {"POST", "DELETE"} or request.body + request.path.encode() in self.failed:
                return answer
            self.failed.add(request.body + request.path.encode())
            return error_answer(500, "InternalServerError", "failed after it was applied")


def test_without_keys_an_applied_mutation_that_failed_stays_unknown(catalog):
    found, adapter = catalog
    adapter.respond = FailsOnce()
    with pytest.raises(ServerError):
        found.create_namespace("ns")
    with pytest.raises(NamespaceAlreadyExistsError):
        found.create_namespace("ns")
    with pytest.raises(ServerError):
        found.create_table("ns.t", SCHEMA)
    with pytest.raises(CommitStateUnknownException):
        found.load_table("ns.t").transaction().set_properties(a="1").commit_transaction()


def test_with_keys_each_mutation_succeeds_and_is_applied_once(catalog):
    found, adapter = catalog
    pauses = []
    assert send_keys(found, sleep=pauses.append)
    adapter.respond = FailsOnce()
    found.create_namespace("ns", {"a": "1"})
    found.update_namespace_properties("ns", updates={"b": "2"})
    table = found.create_table("ns.t", SCHEMA)
    with table.transaction() as transaction:
        transaction.set_properties(a="1")
    with table.update_schema() as update:
        update.add_column("b", LongType())
    found.rename_table("ns.t", "ns.u")
    loaded = found.load_table("ns.u")
    assert (loaded.properties["a"], [each.name for each in loaded.schema().fields]) == ("1", ["id", "b"])
    assert len(loaded.metadata.metadata_log) == 2
    with pytest.raises(ServerError, match="CommitStateUnknownException"):
        found.drop_table("ns.u")  # a name that is free now may have been renamed by somebody else
    assert not found.table_exists("ns.u")
    found.drop_namespace("ns")
    assert found.list_namespaces() == []
    keys = [each.header("Idempotency-Key") for each in adapter.sent if is_mutation(each.method, f"{BASE}/{each.path}")]
    assert (len(keys), len(set(keys)), len(pauses)) == (15, 8, 7)


def test_a_refusal_is_not_repeated(catalog):
    found, adapter = catalog
    assert send_keys(found)
    found.create_namespace("ns")
    before = len(adapter.sent)
    with pytest.raises(NamespaceAlreadyExistsError):
        found.create_namespace("ns")
    assert len(adapter.sent) == before + 1


def test_a_server_that_honours_no_keys_gets_none(catalog):
    found, adapter = catalog
    adapter.respond = lambda request, answer: answer
    found._session.get = lambda *_args, **_more: Reply(200, {"properties": {"idempotency-key-supported": "false"}})
    assert not send_keys(found)


@pytest.mark.parametrize(
    ("config", "seconds"),
    [
        ({"properties": {"idempotency-key-supported": "true", "idempotency-key-lifetime": "PT30M"}}, 1800),
        ({"idempotency-key-lifetime": "PT5M"}, 300),
        ({"idempotency-key-lifetime": "PT5M", "properties": {"idempotency-key-supported": "false"}}, None),
        ({"properties": {"idempotency-key-supported": "true"}}, None),
        ({"properties": {"idempotency-key-lifetime": "PT30M"}}, None),
        ({"idempotency-key-lifetime": "soon"}, None),
        ({}, None),
        ([], None),
    ],
)
def test_the_window_is_what_the_server_advertises_in_either_form(config, seconds):
    expected = None if seconds is None else timedelta(seconds=seconds)
    assert advertised(json.dumps(config).encode()) == expected


@dataclass
class Reply:
    status_code: int
    document: Any = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def content(self) -> bytes:
        return json.dumps(self.document).encode()

    def json(self) -> Any:
        return self.document

    def close(self) -> None:
        pass


@dataclass
class Ask:
    method: str = "POST"
    url: str = f"{BASE}/namespaces"
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Replies:
    """Answers in turn; an exception is raised."""

    replies: list[Any]
    keys: list[str | None] = field(default_factory=list)

    def send(self, request: Any, **_: Any) -> Any:
        self.keys.append(request.headers.get("Idempotency-Key"))
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply

    def close(self) -> None:
        pass


def keyed(replies: Replies, window: float = 1800, attempts: int = 8) -> tuple[KeyedRequests, list[float]]:
    now = [0.0]
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        now[0] += seconds

    made = KeyedRequests(replies, timedelta(seconds=window), attempts, sleep=sleep, monotonic=lambda: now[0])
    return made, pauses


RUNNING = Reply(409, {"error": {"type": "request_in_progress"}}, {"Retry-After": "2"})


def test_the_key_stays_the_same_until_the_outcome_is_clear():
    replies = Replies([NoConnection("no"), RUNNING, Reply(503), Reply(200)])
    adapter, pauses = keyed(replies)
    assert adapter.send(Ask()).status_code == 200
    assert (len(replies.keys), len(set(replies.keys)), pauses[1]) == (4, 1, 2.0)


@pytest.mark.parametrize("reply", [Reply(409, {"error": {"type": "CommitFailedException"}}), Reply(422), Reply(404)])
def test_a_clear_outcome_is_returned(reply):
    replies = Replies([reply])
    assert keyed(replies)[0].send(Ask()) is reply


def test_after_the_window_nothing_is_repeated():
    adapter, pauses = keyed(Replies([Reply(500)] * 99), window=3)
    assert (adapter.send(Ask()).status_code, sum(pauses) < 3) == (500, True)
    adapter, _ = keyed(Replies([NoConnection("no")] * 99), window=3)
    with pytest.raises(NoConnection):
        adapter.send(Ask())


def test_the_number_of_repeats_is_bounded():
    replies = Replies([Reply(500)] * 99)
    assert (keyed(replies, attempts=3)[0].send(Ask()).status_code, len(replies.keys)) == (500, 3)


def test_a_read_and_the_callers_own_key_are_left_as_they_are():
    replies = Replies([Reply(500), Reply(200)])
    adapter, _ = keyed(replies)
    assert adapter.send(Ask("GET")).status_code == 500
    assert adapter.send(Ask(headers={"Idempotency-Key": "mine"})).status_code == 200
    assert replies.keys == [None, "mine"]


def test_every_mutation_that_the_gateway_honours_a_key_for_gets_one():
    assert [end for method, end, *_ in MUTATIONS if not is_mutation(method, f"{BASE}/{end}")] == []
