"""`delegation drop`: one request with one key until it has an outcome."""

import json

import httpx
import pytest
from pydantic import SecretStr

from delegation.cli.connection import Connection, polaris_as
from delegation.cli.errors import CommandError
from delegation.cli.tombstones.drop import DropRefused, TableDrop
from delegation.identifiers import TableIdentifier
from delegation.polaris.answers import NoSuchTable
from delegation.polaris.client import PolarisClient
from tests.kit.errors import coded
from tests.unit.cli.conftest import lines
from tests.unit.client.service import Tokens
from tests.unit.polaris.scripted import Server, error, raw_json

TABLE = "lake.sales.eu.orders"
PATH = "/api/catalog/v1/lake/namespaces/sales%1Feu/tables/orders"
DROPPED = httpx.Response(204)
RUNNING = error(409, "ConflictException", headers={"Retry-After": "2"})
UNKNOWN = error(504, "CommitStateUnknownException")
PURGING = error(503, "ServiceUnavailableException", headers={"Retry-After": "5"})


@pytest.fixture
def gateway(monkeypatch) -> Server:
    server = Server()
    server.answer("GET", "/api/catalog/v1/config", raw_json('{"overrides": {"prefix": "lake"}}'))
    server.answer("DELETE", PATH, DROPPED)
    client = PolarisClient("https://gateway.test/api/catalog", Tokens(), transport=server.transport)
    monkeypatch.setattr(Connection, "catalog_through_gateway", lambda _self: client)
    monkeypatch.setattr("delegation.cli.tombstones.drop.time.sleep", lambda _seconds: None)
    return server


def a_drop(server: Server, patience: float = 100.0) -> TableDrop:
    """A drop whose clock advances only when it sleeps."""
    client = PolarisClient("https://gateway.test/api/catalog", Tokens(), transport=server.transport)
    spent: list[float] = []
    return TableDrop(
        client, TableIdentifier("lake", ("sales", "eu"), "orders"), "k-1", waits=True, patience=patience,
        sleep=spent.append, now=lambda: sum(spent),
    )  # fmt: skip


def test_one_request_drops_the_table_and_waits_for_the_purge(run, gateway, stack):
    result = run("drop", TABLE, "--key", "k-1", "--yes", "--stack", str(stack))
    (request,) = gateway.asked("DELETE", PATH)
    assert dict(request.url.params) == {"purgeRequested": "true"}
    assert (request.headers["Idempotency-Key"], request.headers["X-Delegation-Drop-Mode"]) == ("k-1", "wait")
    assert result.stdout.startswith(f"Dropped {TABLE} (idempotency key k-1)")
    (document,) = lines(run("drop", TABLE, "--no-wait", "--json", "--stack", str(stack)).stdout)
    assert (document["table"], document["dropped"], document["waited"]) == (TABLE, True, False)
    assert gateway.asked("DELETE", PATH)[-1].headers["X-Delegation-Drop-Mode"] == "at-once"
    assert gateway.asked("DELETE", PATH)[-1].headers["Idempotency-Key"] == document["idempotency_key"]


def test_the_key_is_whole_on_80_columns(run, gateway, stack, monkeypatch):
    """Its last letter was on the next line, and it is copied to continue the same drop."""
    monkeypatch.setenv("COLUMNS", "80")
    key = "7fc3c7c6-0434-4663-8cd3-60c259b32ce4"
    shown = run("drop", TABLE, "--key", key, "--yes", "--stack", str(stack)).stdout.splitlines()
    assert max(map(len, shown)) <= 80
    assert any(key in line for line in shown)


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ({"X-Delegation-Tombstone-State": "DROPPED"}, ["its files are deleted."]),
        ({"X-Delegation-Tombstone-State": "PURGING"}, ["being purged", "delegation tombstones show t-1"]),
        ({"X-Delegation-Tombstone-State": "RENAMED", "X-Delegation-Purge-After": "2026-11-21T14:00:00Z"},
         ["deleted after 2026-11-21 ", "delegation tombstones show t-1"]),
        ({"X-Delegation-Tombstone-State": "RENAMED", "Idempotency-Replayed": "true"},
         ["by an earlier request with this key", "being purged"]),
        ({"X-Delegation-Tombstone-State": "FAILED"}, ["its purge failed", "delegation tombstones show t-1"]),
    ],
)  # fmt: skip
def test_it_reports_what_the_answer_says_of_the_tombstone(run, gateway, stack, headers, words):
    answer = httpx.Response(204, headers={"X-Delegation-Tombstone": "t-1", **headers})
    gateway.answer("DELETE", PATH, answer, answer)
    text = run("drop", TABLE, "--yes", "--stack", str(stack)).stdout
    assert [word for word in words if word not in text] == []
    (document,) = lines(run("drop", TABLE, "--json", "--yes", "--stack", str(stack)).stdout)
    assert (document["tombstone"], document["state"]) == ("t-1", headers["X-Delegation-Tombstone-State"])


def test_an_answer_without_a_tombstone_is_said_not_to_be_the_gateways(run, gateway, stack):
    assert "gateway_url" in run("drop", TABLE, "--yes", "--stack", str(stack)).stdout


@pytest.mark.parametrize(
    "unclear", [RUNNING, UNKNOWN, PURGING, error(500, "InternalServerError"), httpx.ReadTimeout("no answer")]
)
def test_an_unclear_answer_is_followed_by_the_same_request_with_the_same_key(gateway, unclear):
    gateway.answer("DELETE", PATH, unclear, unclear, DROPPED)
    a_drop(gateway).run()
    assert {request.headers["Idempotency-Key"] for request in gateway.asked("DELETE", PATH)} == {"k-1"}


def test_the_wait_ends_before_the_key_may_be_forgotten_and_names_it(gateway):
    gateway.answer("DELETE", PATH, UNKNOWN)
    with pytest.raises(CommandError, match="no outcome yet", check=coded("DROP_NOT_FINISHED")) as ended:
        a_drop(gateway, patience=20.0).run()
    assert "--key k-1" in ended.value.next_step


@pytest.mark.parametrize(
    ("answer", "word"),
    [
        (error(403, "ForbiddenException", "files cannot be deleted"), "TABLE_CREATE"),
        (error(409, "ConflictException", "TABLE_PROTECTED: the table is protected"), "Remove"),
        (error(400, "UnsupportedOperationException", "a view"), "gateway_url"),
    ],
)
def test_a_refusal_is_final_and_says_what_to_do(gateway, answer, word):
    gateway.answer("DELETE", PATH, answer)
    with pytest.raises(DropRefused, match="was not dropped") as refused:
        a_drop(gateway).run()
    assert word in refused.value.next_step
    assert len(gateway.asked("DELETE", PATH)) == 1


GRANT = f"{TABLE} was not dropped: the caller needs TABLE_DROP on it. Principal 'ann' is not authorized"
BACK = f"{TABLE} was not dropped, and has its name again: GC_DISABLED: off"
KEPT = "it is kept as a tombstone; `delegation tombstones show t-1` says more"


@pytest.mark.parametrize(
    ("answer", "message", "next_step"),
    [
        (error(403, "ForbiddenException", GRANT), GRANT, "granted"),
        (error(409, "ConflictException", BACK), BACK, "Remove the cause"),
        (error(409, "ConflictException", KEPT), f"{TABLE} was not dropped: {KEPT}", "Run the command that the message"),
        (httpx.Response(418, text="?"), f"{TABLE} was not dropped: the gateway answered 418", "gateway_url"),
    ],
)
def test_a_refusal_has_the_gateways_words_once_and_whole(gateway, answer, message, next_step):
    gateway.answer("DELETE", PATH, answer)
    with pytest.raises(DropRefused) as refused:
        a_drop(gateway).run()
    assert str(refused.value) == message
    assert next_step in refused.value.next_step
    assert "keeps its name" not in refused.value.next_step  # the message says where the table is
    assert "Polaris" not in f"{refused.value} {refused.value.next_step}"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (error(503, "ServiceUnavailableException", "it is being purged"), "it is being purged"),
        (httpx.ReadTimeout("late"), "the gateway gave no answer (ReadTimeout)"),
        (httpx.Response(502, text="<html>"), "the gateway answered 502"),
    ],
)
def test_what_is_without_an_outcome_is_the_gateways_too(gateway, answer, reason):
    gateway.answer("DELETE", PATH, answer)
    with pytest.raises(CommandError, check=coded("DROP_NOT_FINISHED")) as ended:
        a_drop(gateway, patience=1.0).run()
    assert str(ended.value) == f"the drop of {TABLE} has no outcome yet: {reason}"


def test_an_unknown_table_is_named(run, gateway, stack):
    gateway.answer("DELETE", PATH, error(404, "NoSuchTableException", "Table does not exist"))
    with pytest.raises(NoSuchTable):
        a_drop(gateway).run()
    result = run("drop", TABLE, "--yes", "--json", "--stack", str(stack))
    assert (result.exit_code, json.loads(result.stderr)["error_code"]) == (1, "NO_SUCH_TABLE")


def test_at_a_terminal_nothing_is_sent_before_the_confirmation(run, gateway, stack, monkeypatch):
    monkeypatch.setattr("delegation.cli.calls.at_a_terminal", lambda: True)
    assert run("drop", TABLE, "--stack", str(stack), given="n\n").exit_code == 1
    assert gateway.asked("DELETE", PATH) == []


def test_without_the_gateways_address_it_says_what_to_set(run, stack, monkeypatch):
    error_of = lambda *words: json.loads(run("drop", TABLE, "--yes", "--json", *words).stderr)  # noqa: E731
    named = error_of("--stack", str(stack))
    assert (named["error_code"], "--gateway" in named["next_step"]) == ("GATEWAY_UNKNOWN", True)
    monkeypatch.setenv("DELEGATION_POLARIS_URL", "https://polaris.test/api/catalog")
    assert "DELEGATION_GATEWAY_URL" in error_of()["message"]


def test_the_address_comes_from_the_settings_or_from_the_stack(stack, monkeypatch):
    stack.write_text(json.dumps({**json.loads(stack.read_text()), "gateway_url": "http://127.0.0.1:1/api/catalog"}))
    assert isinstance(Connection(stack).catalog_through_gateway(), PolarisClient)
    monkeypatch.setenv("DELEGATION_GATEWAY_URL", "https://gateway.test/api/catalog")
    monkeypatch.setenv("DELEGATION_POLARIS_CREDENTIAL", "ann:hunter2")
    assert isinstance(Connection(None).catalog_through_gateway(), PolarisClient)
    assert isinstance(polaris_as("https://gateway.test", SecretStr("a:b"), scope="s", realm=None), PolarisClient)
