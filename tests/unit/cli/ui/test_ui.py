"""`delegation ui`: only the printed address answers, only on this machine, and the page holds no secret."""

import http.client
import json
import threading
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from delegation.cli.catalog.health import GIB
from delegation.cli.connection import Connection
from delegation.cli.errors import CommandError
from delegation.cli.ui import OperatorReads, PageAnswer, StatusServer, answer, operator_reads, redirecting
from delegation.identifiers import TableIdentifier
from delegation.upkeep.health.model import FreedBytes, PastRun, TableHealth
from tests.unit.client.service import ROOT, TASK_ID, TASKS, json_answer, record

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
ASSETS = files("delegation.cli") / "assets"
HEALTH = {"status": "up", "version": "0.1.0", "realm": "POLARIS", "dependencies": [], "paused": []}
EVIL = '<img src=x onerror="alert(1)">'


def not_asked(name):
    raise AssertionError(name)


NO_READS = OperatorReads(not_asked, not_asked)


@pytest.fixture
def server():
    asked = []

    def found(target):
        asked.append(target)
        return PageAnswer(200, "text/plain", b"found")

    with StatusServer(found) as served:
        served.asked = asked
        threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield served
        served.shutdown()


def get(server, path, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    connection.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response, body


def test_the_page_is_below_a_secret_path_of_the_loopback_interface(server):
    assert server.server_address[0] == "127.0.0.1"
    response, body = get(server, f"/{server.secret}/api/tasks?status=RUNNING")
    assert (response.status, body, server.asked) == (200, b"found", ["api/tasks?status=RUNNING"])
    policy = response.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert response.headers["Referrer-Policy"] == "no-referrer"
    assert response.headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize("path", ["/", "/x/", "/{}x/", "/{}", "/x/{}/", "/%2e/{}/"])
def test_another_path_gets_nothing(server, path):
    response, body = get(server, path.format(server.secret))
    assert (response.status, server.asked) == (404, [])
    assert server.secret.encode() not in body


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
)
def test_another_site_gets_nothing_even_with_the_path(server, headers):
    response, _ = get(server, f"/{server.secret}/", **headers)
    assert (response.status, server.asked) == (404, [])


def test_each_start_has_another_path():
    with StatusServer(lambda _t: None) as one, StatusServer(lambda _t: None) as other:
        assert one.secret != other.secret
        assert len(one.secret) >= 32


def test_the_files_load_nothing_else_and_write_no_html():
    names = ("index.html", "app.js", "catalog.js", "style.css")
    texts = {name: (ASSETS / name).read_text(encoding="utf-8") for name in names}
    assert [name for name, text in texts.items() if "http://" in text or "https://" in text] == []
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "localStorage", "cookie"):
        assert word not in texts["app.js"] + texts["catalog.js"]
    for word in ("onclick=", "style=", "<script>"):
        assert word not in texts["index.html"]


def test_a_list_passes_its_filters_on_and_says_the_table(service):
    service.answer("GET", TASKS, json_answer(200, {"tasks": [record(result_summary=EVIL)], "unreadable": []}))
    found = answer(service.client, "api/tasks?status=RUNNING&table=lake.a&evil=1", lambda: NOW, NO_READS)
    document = json.loads(found.body)
    assert (found.status, document["tasks"][0]["table"]) == (200, "lake.sales.eu.orders")
    assert document["tasks"][0]["result_summary"] == EVIL
    assert found.content_type.startswith("application/json")
    query = service.requests[-1].url.query.decode()
    assert set(query.split("&")) == {"status=RUNNING", "table=lake.a", "page_size=50"}


OTHER = "f7e01fd5-dde8-5967-a554-376bc7b16244"


@pytest.mark.parametrize(
    ("by", "status", "asks"), [(TASK_ID, "SWEPT", True), (OTHER, "SWEPT", False), (OTHER, "INCOMPLETE", True)]
)
def test_a_plan_asks_for_approval_until_another_task_has_executed_it(service, by, status, asks):
    step = {"as_of": NOW.isoformat(), "next_step": "`delegation orphans approve 1`"}
    service.answer("GET", f"{TASKS}/{TASK_ID}", json_answer(200, record(status="SUCCESS", outlook=step)))
    service.answer("GET", f"{TASKS}/{TASK_ID}/versions", json_answer(200, {"versions": [], "next_page_token": None}))
    receipt = {"format": 1, "task_id": by, "status": status, "files_deleted": 3}
    service.answer("GET", f"{TASKS}/{TASK_ID}/receipt", json_answer(200, receipt))
    service.answer("GET", f"{ROOT}/v1/health", json_answer(200, HEALTH))
    why = json.loads(answer(service.client, f"api/tasks/{TASK_ID}", lambda: NOW, NO_READS).body)["why"]
    assert ("approve" in why["advice"], by in why["next"]) == (asks, not asks)


def test_a_task_has_its_timeline_and_works_without_a_receipt(service):
    service.answer("GET", f"{TASKS}/{TASK_ID}", json_answer(200, record()))
    versions = {"versions": [record(version=1, status="SUBMITTED"), record(version=2)], "next_page_token": None}
    service.answer("GET", f"{TASKS}/{TASK_ID}/versions", json_answer(200, versions))
    missing = {"error_code": "RECEIPT_NOT_FOUND", "message": "no receipt"}
    service.answer("GET", f"{TASKS}/{TASK_ID}/receipt", json_answer(404, missing))
    service.answer("GET", f"{ROOT}/v1/health", json_answer(200, HEALTH))
    document = json.loads(answer(service.client, f"api/tasks/{TASK_ID}", lambda: NOW, NO_READS).body)
    assert [one["status"] for one in document["versions"]] == ["SUBMITTED", "RUNNING"]
    assert (document["receipt"], document["why"]["task_id"]) == (None, TASK_ID)
    assert document["task"]["correlation_id"] is None
    receipt = {"format": 1, "task_id": TASK_ID, "status": "SUCCESS", "files_deleted": 3}
    service.answer("GET", f"{TASKS}/{TASK_ID}/receipt", json_answer(200, receipt))
    document = json.loads(answer(service.client, f"api/tasks/{TASK_ID}", lambda: NOW, NO_READS).body)
    assert document["receipt"]["files_deleted"] == 3


def test_an_error_names_the_next_step_and_no_credential(service):
    found = answer(service.client, "api/health", lambda: NOW, NO_READS)
    document = json.loads(found.body)
    assert found.status == 502
    assert set(document) == {"message", "next_step"}
    missing = {"error_code": "TASK_NOT_FOUND", "message": "there is no task"}
    service.answer("GET", f"{TASKS}/{TASK_ID}", json_answer(404, missing))
    assert answer(service.client, f"api/tasks/{TASK_ID}", lambda: NOW, NO_READS).status == 404
    for path in ("api/nothing", "api/tasks/../../etc/passwd", "assets/app.js", "..%2fpages.py"):
        assert answer(service.client, path, lambda: NOW, NO_READS).status == 502


def test_a_taken_port_is_named(run, service, server):
    done = run("ui", "--port", str(server.server_port))
    assert done.exit_code == 1
    assert f"port {server.server_port}" in done.stderr


def test_a_service_that_is_down_is_asked_once_since_the_page_asks_again_by_itself(run, service, monkeypatch):
    service.answer("GET", f"{ROOT}/v1/health", *[json_answer(503, {"error_code": "DOWN", "message": "down"})] * 4)
    answers = []
    monkeypatch.setattr(StatusServer, "serve_forever", lambda server: answers.append(server.answer("api/health")))
    assert run("ui").exit_code == 0
    assert ([one.status for one in answers], len(service.requests), service.slept) == ([502], 1, [])


def test_the_command_opens_the_file_and_not_the_address(run, service, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.setattr(StatusServer, "serve_forever", lambda server: opened.append(server.secret))
    assert run("ui", "--open").exit_code == 0
    page, secret = opened
    assert page.startswith("file:///")
    assert secret not in page
    assert run("ui").exit_code == 0
    assert len(opened) == 3, "without --open no browser is started"


def test_a_browser_is_not_given_the_secret_address_as_an_argument():
    """Every user of the machine can list the arguments of programs."""
    secret = "http://127.0.0.1:1/secret-path/"
    with redirecting(secret) as address:
        assert "secret-path" not in address
        file = Path(urlsplit(address).path)
        assert secret in file.read_text(encoding="utf-8")
        assert file.parent.stat().st_mode & 0o077 == 0
    assert not file.exists()


def test_an_audit_is_of_the_catalog_that_the_page_names(service):
    asked = []

    def audit(catalog):
        asked.append(catalog)
        return {"catalog": catalog, "findings": [{"name": f"t{number}"} for number in range(205)]}

    found = answer(service.client, "api/audit?catalog=la%26ke", lambda: NOW, OperatorReads(audit, not_asked))
    document = json.loads(found.body)
    assert (found.status, asked, document["catalog"]) == (200, ["la&ke"], "la&ke")
    assert [one["name"] for one in document["findings"]] == [f"t{number}" for number in range(200)]
    assert document["more"] == 5


def test_an_audit_that_cannot_be_made_says_what_to_do(service):
    def audit(catalog):
        raise CommandError(f"port 1 cannot be used: {catalog}", "Give another --port.")

    found = answer(service.client, "api/audit?catalog=lake", lambda: NOW, OperatorReads(audit, not_asked))
    assert (found.status, json.loads(found.body)["next_step"][:18]) == (502, "Give another --por")


def test_an_audit_joins_what_the_operator_can_read(service, monkeypatch):
    made = []
    audited = SimpleNamespace(document=lambda: {"findings": []})
    monkeypatch.setattr("delegation.cli.catalog.audit.audit_of", lambda *given: made.append(given) or audited)
    connection = object()
    assert operator_reads(connection).audit("lake") == {"findings": []}
    assert made[0][:2] == (connection, "lake")


@pytest.mark.parametrize("path", ["api/audit", "api/audit?catalog=", f"api/upkeep?name={'n' * 2001}", "api/upkeep"])
def test_a_read_names_what_is_missing_or_too_long_in_its_query(service, path):
    found = answer(service.client, path, lambda: NOW, NO_READS)
    assert found.status == 400
    assert "1 to 2,000" in json.loads(found.body)["message"]


def upkeep(service, name):
    reads = operator_reads(Connection(None))
    found = answer(service.client, f"api/upkeep?{urlencode({'name': name})}", lambda: NOW, reads)
    return found.status, json.loads(found.body)


def test_the_upkeep_of_a_catalog_has_the_tables_that_cost_most_first_and_how_many_more_there_are(service, healths):
    for number in range(203):
        table = TableIdentifier("lake", ("sales",), f"t{number}")
        freed = FreedBytes(number * GIB, None)
        healths.put(TableHealth(table, "uuid", "s3://b/m.json", NOW, bytes=GIB, expirable=1, freed=freed))
    status, document = upkeep(service, "lake")
    assert (status, len(document["tables"]), document["more"]) == (200, 200, 3)
    assert document["tables"][0]["table"] == "lake.sales.t202"
    assert upkeep(service, "other")[1]["tables"] == []


def test_the_upkeep_of_a_table_has_its_runs(service, healths):
    ran = PastRun("EXPIRY", TASK_ID, "lake.week", NOW, NOW, "SUCCESS", 3, 4096, 2)
    healths.put(TableHealth(TableIdentifier("la.ke", ("sales",), "orders"), "uuid", "s3://b/m.json", NOW, past=(ran,)))
    status, document = upkeep(service, "`la.ke`.sales.orders")
    assert (status, document["past"][0]["files_deleted"], document["under_way"]) == (200, 3, [])
    status, document = upkeep(service, "lake.sales.gone")
    assert (status, document["message"]) == (404, "the health of lake.sales.gone is not known")
    status, document = upkeep(service, "lake.`..`.orders")
    assert (status, document["next_step"]) == (400, "Write CATALOG or CATALOG.NAMESPACE.TABLE.")


def test_the_catalogs_are_those_of_the_recurring_tasks(service):
    tasks = [record(task_type="REFERENCE_INDEX", task_payload=text) for text in ('{"catalog": "sea"}', "{}")]
    service.answer("GET", TASKS, json_answer(200, {"tasks": tasks, "unreadable": [], "next_page_token": None}))
    assert json.loads(answer(service.client, "api/catalogs", lambda: NOW, NO_READS).body) == {"catalogs": ["sea"]}
    assert parse_qs(service.requests[-1].url.query.decode())["type"] == ["REFERENCE_INDEX"]


def test_tombstones_have_their_names_and_say_if_there_are_more(service):
    stone = {
        "tombstone_id": "ab-1", "state": "DROPPED", "catalog": "lake", "namespace": ["a"], "name": "t",
        "destination_namespace": ["gone"], "destination_name": "d", "caller": "principal:x",
        "created_at": NOW.isoformat(), "updated_at": NOW.isoformat(),
    }  # fmt: skip
    service.answer("GET", f"{ROOT}/v1/tombstones", json_answer(200, {"tombstones": [stone], "next_page_token": "t"}))
    found = json.loads(answer(service.client, "api/tombstones", lambda: NOW, NO_READS).body)
    [shown] = found["tombstones"]
    assert (shown["table"], shown["is_ended"], found["more"]) == ("lake.a.t", True, True)
