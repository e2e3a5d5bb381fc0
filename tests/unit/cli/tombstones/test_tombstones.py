"""`delegation tombstones …`, over a service with scripted answers."""

import io
import json

import pytest
from rich.console import Console

from delegation.cli.connection import Connection
from delegation.cli.tombstones.commands import tombstone_screen
from delegation.polaris.answers import NoSuchTable, PolarisForbidden, PolarisUnavailable, TableAlreadyExists
from delegation.wire.operators import ENDED, STATES, TombstoneRecord
from tests.unit.cli.conftest import lines
from tests.unit.client.service import ROOT, TASK_ID, TASKS, json_answer, record, refusal

TOMBSTONES = f"{ROOT}/v1/tombstones"
ID = "0123456789abcdef-1760000000000-aabbccdd"


def tombstone(**changes):
    return {
        "tombstone_id": ID,
        "state": "RENAMED",
        "realm": "POLARIS",
        "catalog": "lake",
        "namespace": ["sales", "eu"],
        "name": "orders",
        "destination_namespace": ["delegation_tombstones"],
        "destination_name": "dropped_1",
        "caller": "principal:ann",
        "created_at": "2026-11-20T11:00:00Z",
        "updated_at": "2026-11-20T11:00:05Z",
        "grace_until": "2026-11-21T11:00:00Z",
        "table_uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1",
        "task_id": TASK_ID,
        "added_by_a_later_release": 1,
    } | changes


@pytest.fixture
def shown(service):
    service.answer("GET", f"{TOMBSTONES}/{ID}", json_answer(200, tombstone()))
    return service


def answer_list(service, *pages):
    bodies = [{"tombstones": page, "next_page_token": None if page is pages[-1] else "t"} for page in pages]
    service.answer("GET", TOMBSTONES, *(json_answer(200, body) for body in bodies))


def test_the_list_has_all_pages_with_names_states_and_ids(run, service, stack):
    answer_list(service, [tombstone(), tombstone(tombstone_id="a1", name="gone", state="DROPPED")], [
        tombstone(tombstone_id="b1", name="bad", state="FAILED", problem="FILES_SHARED: 3 files"),
    ])  # fmt: skip
    text = run("tombstones", "list", "--stack", str(stack)).stdout
    for word in ("lake.sales.eu.orders", ID, "RENAMED", "can be restored until", "FAILED", "FILES_SHARED: 3 files"):
        assert word in text
    answer_list(service, [tombstone(), tombstone(tombstone_id="a1", state="DROPPED")], [tombstone(tombstone_id="b1")])
    (document,) = lines(run("tombstones", "list", "--open", "--json", "--stack", str(stack)).stdout)
    assert [one["tombstone_id"] for one in document["tombstones"]] == [ID, "b1"]
    assert document["more"] is False


def test_the_list_is_limited_and_says_that_there_are_more(run, service, stack):
    answer_list(service, [tombstone(tombstone_id=f"a{n}", name=f"t{n}") for n in range(3)])
    (document,) = lines(run("tombstones", "list", "--limit", "2", "--json", "--stack", str(stack)).stdout)
    assert (len(document["tombstones"]), document["more"]) == (2, True)
    assert "There are more" in run("tombstones", "list", "--limit", "2", "--stack", str(stack)).stdout
    (document,) = lines(run("tombstones", "list", "--table", "eu.t1", "--json", "--stack", str(stack)).stdout)
    assert [one["name"] for one in document["tombstones"]] == ["t1"]
    answer_list(service, [])
    assert "No tombstones." in run("tombstones", "list", "--stack", str(stack)).stdout


@pytest.mark.parametrize("columns", ["80", "200"])
def test_an_id_is_never_cut(run, service, stack, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    answer_list(service, [tombstone(name="a_table_with_a_very_long_name_" * 3)])
    text = run("tombstones", "list", "--stack", str(stack)).stdout
    assert ID in text
    wide = [line for line in text.splitlines() if len(line) > int(columns)]
    assert all(len(line.split()) == 1 for line in wide), "a name that is longer than the terminal is whole"


def test_a_tombstone_is_shown_with_the_commands_that_its_state_permits(run, shown, stack):
    text = run("tombstones", "show", ID, "--stack", str(stack)).stdout
    for word in ("waits for its purge", "lake.delegation_tombstones.dropped_1", "ann", TASK_ID, f"restore {ID}"):
        assert word in text
    (document,) = lines(run("tombstones", "show", ID, "--json", "--stack", str(stack)).stdout)
    assert (document["state"], document["added_by_a_later_release"]) == ("RENAMED", 1)


@pytest.mark.parametrize("state", [*STATES, "LATER"])
def test_every_state_has_a_screen_without_control_characters(state):
    console = Console(width=100, record=True, file=io.StringIO())
    one = TombstoneRecord.model_validate(tombstone(state=state, problem="\x1b[31mred", name="a\x07b"))
    console.print(tombstone_screen(one))
    text = console.export_text()
    assert state in text
    assert "\x1b" not in text
    assert "\x07" not in text


def test_a_restore_gives_the_former_name_or_another_one(run, shown, stack):
    path = f"{TOMBSTONES}/{ID}/restore"
    restored = tombstone(state="RESTORED", restore_namespace=["sales", "eu"], restore_name="orders_2")
    shown.answer("POST", path, json_answer(200, restored))
    result = run("tombstones", "restore", ID, "--stack", str(stack))
    assert (result.exit_code, result.stdout) == (0, "Restored: lake.sales.eu.orders_2 can be loaded again.\n")
    run("tombstones", "restore", ID, "--to", "orders_2", "--stack", str(stack))
    run("tombstones", "restore", ID, "--to", "old.`or.ders`", "--json", "--stack", str(stack))
    assert [json.loads(request.content) for request in shown.asked("POST", path)] == [
        {},
        {"to": {"namespace": ["sales", "eu"], "name": "orders_2"}},
        {"to": {"namespace": ["old"], "name": "or.ders"}},
    ]
    assert run("tombstones", "restore", ID, "--to", "a..b", "--stack", str(stack)).exit_code == 2


def test_a_taken_name_is_refused_with_the_command_for_another_one(run, shown, stack):
    shown.answer("POST", f"{TOMBSTONES}/{ID}/restore", refusal(409, "NAME_TAKEN"))
    result = run("tombstones", "restore", ID, "--json", "--stack", str(stack))
    error = json.loads(result.stderr)
    assert (result.exit_code, error["error_code"]) == (1, "NAME_TAKEN")
    assert f"`delegation tombstones restore {ID} --to orders_restored`" in error["next_step"]


def test_a_refused_restore_says_where_to_look(run, shown, stack):
    shown.answer("POST", f"{TOMBSTONES}/{ID}/restore", refusal(409, "RESTORE_REFUSED"))
    error = json.loads(run("tombstones", "restore", ID, "--json", "--stack", str(stack)).stderr)
    assert (error["error_code"], error["message"]) == ("RESTORE_REFUSED", "as scripted")
    assert f"tombstones show {ID}" in error["next_step"]


def test_a_purge_is_confirmed_and_followed(run, shown, stack, monkeypatch):
    path = f"{TOMBSTONES}/{ID}/purge"
    shown.answer("POST", path, json_answer(200, tombstone(state="PURGING")))
    shown.answer("GET", f"{TASKS}/{TASK_ID}", json_answer(200, record(status="SUCCESS")))
    monkeypatch.setattr("delegation.cli.calls.at_a_terminal", lambda: True)
    assert run("tombstones", "purge", ID, "--stack", str(stack), given="n\n").exit_code == 1
    assert shown.asked("POST", path) == []
    result = run("tombstones", "purge", ID, "--yes", "--wait", "--stack", str(stack))
    assert result.exit_code == 0
    assert "files are being deleted" in result.stdout
    assert "SUCCESS" in result.stdout
    shown.answer("POST", path, refusal(409, "PURGE_NOT_POSSIBLE"))
    assert "PURGE_NOT_POSSIBLE" in run("tombstones", "purge", ID, "--yes", "--json", "--stack", str(stack)).stderr


def test_a_dismissal_is_confirmed_and_names_the_command_that_finishes(run, shown, stack, monkeypatch):
    path, problem = f"{TOMBSTONES}/{ID}/dismiss", "dismissed: `delegation purge s3://b/m.json` deletes what is left"
    shown.answer("POST", path, json_answer(200, tombstone(state="DISMISSED", problem=problem)))
    monkeypatch.setattr("delegation.cli.calls.at_a_terminal", lambda: True)
    refused = run("tombstones", "dismiss", ID, "--stack", str(stack), given="n\n")
    assert (refused.exit_code, shown.asked("POST", path)) == (1, [])
    assert "files stay" in refused.stderr
    result = run("tombstones", "dismiss", ID, "--yes", "--stack", str(stack))
    assert (result.exit_code, "delegation purge s3://b/m.json" in result.stdout) == (0, True)
    shown.answer("POST", path, refusal(409, "DISMISSAL_REFUSED"))
    assert "DISMISSAL_REFUSED" in run("tombstones", "dismiss", ID, "--yes", "--json", "--stack", str(stack)).stderr


class GatewayOfMine:
    """The gateway, which knows two tombstones of the caller on two pages."""

    def __init__(self):
        self.restored, self.error = [], None

    def own_tombstones(self, page_token=None):
        one = tombstone() if page_token is None else tombstone(tombstone_id="b1", name="other")
        return {"tombstones": [one], "next_page_token": "t" if page_token is None else None}

    def restore_own_tombstone(self, tombstone_id, document):
        if self.error is not None:
            raise self.error
        self.restored.append((tombstone_id, document))
        return tombstone(tombstone_id=tombstone_id, state="RESTORED")


@pytest.fixture
def gateway(monkeypatch):
    found = GatewayOfMine()
    monkeypatch.setattr(Connection, "catalog_through_gateway", lambda _self: found)
    return found


def test_owners_list_and_restore_what_they_dropped_without_an_operator(run, gateway, stack):
    (document,) = lines(run("tombstones", "list", "--mine", "--json", "--stack", str(stack)).stdout)
    assert [one["tombstone_id"] for one in document["tombstones"]] == [ID, "b1"]
    result = run("tombstones", "restore", "b1", "--mine", "--to", "again", "--stack", str(stack))
    assert (result.exit_code, "can be loaded again" in result.stdout) == (0, True)
    assert gateway.restored == [("b1", {"to": {"namespace": ["sales", "eu"], "name": "again"}})]
    run("tombstones", "restore", ID, "--mine", "--stack", str(stack))
    assert gateway.restored[1] == (ID, {})


@pytest.mark.parametrize(
    ("error", "code", "step"),
    [
        (TableAlreadyExists("taken", status=409), "RESTORE_REFUSED", "--mine --to orders_restored"),
        (PolarisForbidden("no", status=403), "RESTORE_REFUSED", "TABLE_CREATE"),
        (PolarisUnavailable("away", status=503), "RESTORE_REFUSED", "again"),
        (NoSuchTable("gone", status=404), "TOMBSTONE_NOT_FOUND", "list --mine"),
    ],
)
def test_a_refused_restore_of_an_owner_says_what_to_do(run, gateway, stack, error, code, step):
    gateway.error = error
    shown = json.loads(run("tombstones", "restore", ID, "--mine", "--json", "--stack", str(stack)).stderr)
    assert (shown["error_code"], step in shown["next_step"]) == (code, True)
    unknown = run("tombstones", "restore", "a9", "--mine", "--json", "--stack", str(stack))
    assert json.loads(unknown.stderr)["error_code"] == "TOMBSTONE_NOT_FOUND"


def test_the_help_of_open_names_every_state_that_it_leaves_out(run):
    text = run("tombstones", "list", "--help").stdout
    assert [state for state in sorted(ENDED) if state not in text] == []


def test_a_troubled_tombstone_is_listed_with_its_reason(run, service, stack):
    answer_list(service, [tombstone(state="PENDING", attempts=7, trouble="POLARIS_FORBIDDEN: not authorized")])
    text = " ".join(run("tombstones", "list", "--stack", str(stack)).stdout.split())
    assert "failed 7 times: POLARIS_FORBIDDEN: not authorized" in text


def test_an_unknown_id_and_a_deployment_without_a_gateway_have_different_errors(run, service, stack):
    service.answer("GET", f"{TOMBSTONES}/{ID}", refusal(404, "TOMBSTONE_NOT_FOUND"))
    error = json.loads(run("tombstones", "show", ID, "--json", "--stack", str(stack)).stderr)
    assert error["error_code"] == "TOMBSTONE_NOT_FOUND"
    for path, words in ((f"{TOMBSTONES}/{ID}", ("purge", ID, "--yes")), (TOMBSTONES, ("list",))):
        service.answer("GET", path, refusal(404, "NO_TOMBSTONES"))
        error = json.loads(run("tombstones", *words, "--json", "--stack", str(stack)).stderr)
        assert (error["error_code"], "--gateway" in error["next_step"]) == ("NO_TOMBSTONES", True)
