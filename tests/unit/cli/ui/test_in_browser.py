"""The status page as a browser shows it: what an operator must see of tasks, and of a service that does not answer."""

import html
import json
import re
import shutil
import struct
import subprocess
import threading
import zlib
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from delegation.cli.ui import OperatorReads, PageAnswer, StatusServer, answer
from tests.unit.client.service import TASK_ID, record

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed"),
]
HEALTH = {"status": "up", "version": "0.1.0", "realm": "POLARIS", "paused": []}
NO_READS = OperatorReads(lambda _catalog: {}, lambda _name: {})
WHY = {
    "next": "Nothing by itself.",
    "advice": f"Remove the cause, then `delegation tasks retry {TASK_ID}`.",
    "last_error": "DELETE_INCOMPLETE: 17 of 400 files could not be deleted",
    "attempt": "5",
    "holder": "none",
}
PARTLY = record(
    status="FAILURE",
    table="lake.sales.eu.orders",
    error_code="DELETE_INCOMPLETE",
    result_summary="17 of 400 files could not be deleted",
    files_failed=17,
    partly_deleted=True,
    attempt_count=5,
    correlation_id="query-42",
)


def shown(tmp_path, answers, fragment=""):
    """Return the text that Chromium shows of each element that has an id and is not hidden, after two seconds."""
    return Page(serve(tmp_path, answers, fragment, "--dump-dom"))


def serve(tmp_path, answers, fragment, *what, script=b""):
    """Have Chromium read the page from a server with these answers, and run a script at its end; return its output."""

    def found(target):
        path = target.partition("?")[0]
        status, body = answers.get(path, (404, {"message": "scripted", "next_step": ""}))
        if path.startswith("api/"):
            return PageAnswer(status, "application/json", json.dumps(body).encode())
        found = answer(None, target, lambda: datetime.now(UTC), NO_READS)
        return replace(found, body=found.body + script) if path == "app.js" else found

    with StatusServer(found) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}", *what]
        command = [BROWSER, *options, "--virtual-time-budget=2000", server.url + fragment]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
        server.shutdown()
    return done.stdout


def right_margin(tmp_path, answers, width, fragment=""):
    """Return the colors in the last ten columns of what Chromium draws in a window of a width."""
    picture = tmp_path / "page.png"
    serve(tmp_path, answers, fragment, "--hide-scrollbars", f"--window-size={width},1200", f"--screenshot={picture}")
    size, rows, channels = decoded(picture.read_bytes())
    assert size == width
    return {bytes(row[at : at + channels]) for row in rows for at in range((width - 10) * channels, len(row), channels)}


def decoded(png):
    """Return the width, the rows and the bytes of a pixel of a PNG without palette (PNG specification, 9)."""
    width, _, depth, color = struct.unpack(">IIBB", png[16:26])
    assert (depth, color in {2, 6}) == (8, True)
    channels, place, packed = (3 if color == 2 else 4), 8, b""
    while place < len(png):
        length, kind = struct.unpack(">I4s", png[place : place + 8])
        packed += png[place + 8 : place + 8 + length] if kind == b"IDAT" else b""
        place += 12 + length
    data, stride, rows = zlib.decompress(packed), width * channels, []
    before = bytearray(stride)
    for start in range(0, len(data), stride + 1):
        filtering, row = data[start], bytearray(data[start + 1 : start + 1 + stride])
        for at in range(stride):
            left = row[at - channels] if at >= channels else 0
            up, corner = before[at], before[at - channels] if at >= channels else 0
            guess = left + up - corner
            nearest = min((left, up, corner), key=lambda one: abs(guess - one))
            row[at] = (row[at] + (0, left, up, (left + up) // 2, nearest)[filtering]) & 255
        rows.append(row)
        before = row
    return width, rows, channels


class Page:
    def __init__(self, document):
        self.document = document

    def hidden(self, name):
        return " hidden" in re.search(rf'<\w+ [^>]*id="{name}"[^>]*>', self.document)[0]

    def text(self, name):
        tag, inner = re.search(rf'<(\w+) [^>]*id="{name}"[^>]*>(.*)', self.document, re.DOTALL).groups()
        return html.unescape(re.sub(r"<[^>]+>", "", inner.partition(f"</{tag}>")[0]))


def test_what_could_not_be_read_is_said_although_the_service_is_up(tmp_path):
    refused = (404, {"message": "There is no task.", "next_step": "`delegation tasks list` shows all tasks."})
    page = shown(tmp_path, {"api/health": (200, HEALTH), f"api/tasks/{TASK_ID}": refused}, f"#{TASK_ID}")
    assert not page.hidden("problem")
    assert page.text("problem") == "There is no task.delegation tasks list shows all tasks."
    assert "<code>delegation tasks list</code>" in page.document
    assert page.text("service") == "POLARIS · release 0.1.0 · up"
    assert page.hidden("found")


def test_a_service_that_does_not_answer_shows_no_empty_table(tmp_path):
    down = (502, {"message": "cannot be reached", "next_step": "Check that it runs."})
    page = shown(tmp_path, {"api/health": down, "api/tasks": down})
    assert page.text("problem") == "cannot be reachedCheck that it runs."
    assert (page.text("service"), page.text("read")) == ("no answer", "")
    assert page.hidden("tasks")
    assert page.hidden("empty")


def test_a_list_without_tasks_says_how_one_is_submitted(tmp_path):
    page = shown(tmp_path, {"api/health": (200, HEALTH), "api/tasks": (200, {"tasks": [], "unreadable": []})})
    assert page.text("empty").startswith("There are no tasks yet. delegation submit ")
    assert page.hidden("tasks")
    assert page.text("read").startswith("· read at ")


def test_a_list_shows_what_is_wrong_with_each_task(tmp_path):
    soon = (datetime.now(UTC) + timedelta(minutes=7, seconds=40)).isoformat()
    waiting = record(task_id=f"{TASK_ID[:-1]}1", status="RETRY_SCHEDULED", next_scheduled_run_ts=soon)
    stopping = record(task_id=f"{TASK_ID[:-1]}2", cancel_requested=True)
    unread = [{"task_id": f"{TASK_ID[:-1]}3", "reason": "status NEW is unknown"}]
    tasks = {"tasks": [PARTLY, waiting, stopping], "unreadable": unread, "next_page_token": None}
    text = shown(tmp_path, {"api/health": (200, HEALTH), "api/tasks": (200, tasks)}).text("rows")
    assert "table incomplete: files were deleted before the failure" in text
    assert "DELETE_INCOMPLETE: 17 of 400 files" in text
    assert "17 failed" in text
    assert "next attempt in 7 min" in text
    assert "cancelling" in text
    assert "cannot be read by this release: status NEW is unknown" in text


def test_a_task_shows_first_what_happened_and_what_to_do(tmp_path):
    found = {"task": PARTLY, "versions": [PARTLY], "why": WHY, "receipt": None}
    page = shown(tmp_path, {"api/health": (200, HEALTH), f"api/tasks/{TASK_ID}": (200, found)}, f"#{TASK_ID}")
    assert not page.hidden("whole")
    text = page.text("why")
    assert "NextNothing by itself.DoRemove the cause, then delegation tasks retry" in text
    assert "Last errorDELETE_INCOMPLETE: 17 of 400 files could not be deleted" in text
    assert "Correlation idquery-42" in text
    assert "Held by" not in text
    assert page.text("counts").startswith("100 of 400 files, 17 failed")
    assert page.text("no-receipt") == "This task has no receipt."


@pytest.mark.parametrize(("deleted", "hidden"), [(0, True), (400, False)])
def test_a_plan_that_waits_for_a_person_has_no_empty_bar(tmp_path, deleted, hidden):
    task = record(status="SUCCESS", files_planned=400, files_deleted=deleted)
    why = WHY | {"next": "A person decides.", "advice": "Have them removed with `delegation orphans approve 1`."}
    found = {"task": task, "versions": [task], "receipt": None, "why": why}
    page = shown(tmp_path, {"api/health": (200, HEALTH), f"api/tasks/{TASK_ID}": (200, found)}, f"#{TASK_ID}")
    assert page.hidden("done") is hidden
    assert "<code>delegation orphans approve 1</code>" in page.document


def test_a_plan_that_waits_is_a_state_of_its_task(tmp_path):
    plan = {"id": f"{TASK_ID}/1/ab", "sha256": "0" * 64}
    by = {"client_id": "alice", "subject": "alice"}
    approval = {"plan": plan["id"], "sha256": plan["sha256"], "by": by, "at": "2026-11-21T12:00:00Z"}
    waiting = record(status="SUCCESS", files_planned=5, waits="first-run", waiting_plan=plan)
    approved = {**waiting, "approval": {**approval, "until": "2999-12-05T12:00:00Z", "including": []}}
    over = {**waiting, "approval": {**approval, "until": "2000-12-05T12:00:00Z", "including": []}}
    tasks = {"tasks": [waiting, approved, over], "unreadable": [], "next_page_token": None}
    rows = shown(tmp_path, {"api/health": (200, HEALTH), "api/tasks": (200, tasks)}).text("rows")
    assert rows.count("waits for approval (first-run)") == 2
    assert rows.count("approved by alice until 2999-12-05") == 1


def test_files_that_were_tagged_are_not_said_to_be_planned(tmp_path):
    task = record(status="SUCCESS", files_planned=5, files_deleted=0, files_quarantined=4)
    found = {"task": task, "versions": [task], "receipt": None, "why": WHY}
    page = shown(tmp_path, {"api/health": (200, HEALTH), f"api/tasks/{TASK_ID}": (200, found)}, f"#{TASK_ID}")
    assert page.text("counts").startswith("4 of 5 files tagged")
    assert page.hidden("done")


@pytest.mark.parametrize(("freed", "shown_back"), [(None, True), (13263, False)])
def test_the_receipt_of_a_versioned_bucket_has_the_way_back(tmp_path, freed, shown_back):
    task = record(status="SUCCESS", files_planned=5, files_deleted=5)
    receipt = {"task_id": TASK_ID, "status": "SWEPT", "files_deleted": 5, "bytes_freed": freed, "attempts": 1}
    found = {"task": task, "versions": [task], "receipt": receipt, "why": WHY}
    page = shown(tmp_path, {"api/health": (200, HEALTH), f"api/tasks/{TASK_ID}": (200, found)}, f"#{TASK_ID}")
    assert (f"<code>delegation orphans restore {TASK_ID}</code>" in page.document) is shown_back


def test_text_that_would_be_drawn_backwards_is_shown_as_it_is(tmp_path):
    """U+202E turns what follows around: a name could look like another table's."""
    odd = record(table="lake.sales.\u202esredro", status="FAILURE", error_code="X\u2066Y\u200f")
    listed = {"tasks": [odd], "unreadable": [], "next_page_token": None}
    text = shown(tmp_path, {"api/tasks": (200, listed), "api/health": (200, HEALTH)}).text("rows")
    assert not set("\u202e\u2066\u200f") & set(text)
    assert "lake.sales.\ufffdsredro" in text


@pytest.mark.parametrize("fragment", ["#%", "#%E0%A4%A", "#no-task"])
def test_an_address_that_names_no_task_says_so(tmp_path, fragment):
    """`%` alone ended the page's program."""
    page = shown(tmp_path, {"api/health": (200, HEALTH)}, fragment)
    assert page.text("problem") == "The address names no task.Choose Tasks to see all tasks."
    assert page.text("service") == "POLARIS · release 0.1.0 · up"


BY_KEYBOARD = b"""
(async () => {
  const noted = [], note = () => noted.push(document.activeElement.getAttribute("href") ?? document.activeElement.id);
  const until = async (there) => { while (!there()) await new Promise((done) => setTimeout(done, 20)); };
  await until(() => $("rows").querySelector("a"));
  $("rows").querySelector("a").focus();
  await list(shown); // as every few seconds
  note();
  location.hash = $("rows").querySelector("a").getAttribute("href");
  await until(() => !$("found").hidden);
  note();
  location.hash = "";
  await until(() => $("task").hidden);
  await list(shown);
  note();
  document.body.dataset.focused = noted.join(" ");
})();
"""


def test_the_keyboard_continues_where_the_view_begins_and_after_a_task_at_its_row(tmp_path):
    """A task's heading was focused while it was hidden, so the focus was lost."""
    task = record(table="lake.sales.orders")
    answers = {
        "api/health": (200, HEALTH),
        "api/tasks": (200, {"tasks": [task], "unreadable": [], "next_page_token": None}),
        f"api/tasks/{TASK_ID}": (200, {"task": task, "why": WHY, "versions": [task]}),
    }
    document = serve(tmp_path, answers, "", "--dump-dom", script=BY_KEYBOARD)
    assert f'data-focused="#{TASK_ID} what #{TASK_ID}"' in document


LONG = f"lake.{'n' * 60}.{'t' * 60}"


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("fragment", ["", f"#{TASK_ID}"], ids=["list", "task"])
def test_long_names_stay_within_the_page(tmp_path, width, fragment):
    """Also in the notice of a pause, whose table name ran out of a phone's page."""
    by = {"client_id": "ops", "subject": "ops"}
    pause = {"scope": "table", "table": LONG, "realm": None, "mode": "stop", "by": by, "reason": "r" * 200}
    health = {**HEALTH, "paused": [{**pause, "since": "2026-11-20T12:00:00Z"}]}
    task = record(table=LONG, error_code="DELETE_INCOMPLETE", result_summary="s" * 300, status="FAILURE")
    answers = {
        "api/health": (200, health),
        "api/tasks": (200, {"tasks": [task], "unreadable": [], "next_page_token": None}),
        f"api/tasks/{TASK_ID}": (200, {"task": task, "why": WHY, "versions": [task]}),
    }
    assert len(right_margin(tmp_path, answers, width, fragment)) == 1, "something is drawn in the margin"


def test_an_audit_shows_what_could_go_and_why(tmp_path):
    extent = {"count": 2, "bytes": {"at_least": 1024, "at_most": None}, "month": {"at_least": 0.5, "at_most": 1.25}}
    looked = {"at": "2026-11-21T12:00:00+00:00", "plan": "task/1/2"}
    table = {"namespace": ["sales"], "name": "orders", "problem": "X: <b>torn</b>", "overlaps": None}
    found = {
        "catalog": "la/ke",
        "references_as_of": None,
        "prices": {"region": "us-east-1", "as_of": "2026-11-01", "currency": "USD"},
        "tables": 3,
        "never_looked_for_orphans": 1,
        "plans_unreadable": [],
        "totals": {"unreachable": {"tables": 1, **extent}, "oversized": {"tables": 1, **extent}},
        "findings": [{**table, "looked_for_orphans": looked, "unreachable": extent, "oversized": extent}],
        "more": 7,
    }
    page = shown(tmp_path, {"api/health": (200, HEALTH), "api/audit": (200, found)}, "#audit/la%2Fke")
    assert page.text("audited") == "Audit of la/ke"
    assert not any(page.hidden(name) for name in ("audit", "audit-found", "totals", "findings"))
    assert (page.hidden("list"), page.hidden("task")) == (True, True)
    assert "oversized121.0 KiB or more0.50–1.25" in page.text("total-rows")
    assert "sales.ordersunreachable2" in page.text("finding-rows")
    assert "plan task/1/2" in page.text("finding-rows")
    assert "no complete pass" in page.text("audit-notes")
    assert page.text("audit-more").startswith("7 more tables")


def test_an_audit_that_failed_says_why_and_shows_no_table(tmp_path):
    problem = {"message": "no index table is known", "next_step": "Name it."}
    page = shown(tmp_path, {"api/health": (200, HEALTH), "api/audit": (502, problem)}, "#audit/lake")
    assert "no index table is known" in page.text("problem")
    assert page.hidden("audit-found")


HEALTH_OF_TABLE = {
    "table": "lake.sales.orders",
    "namespace": ["sales"],
    "name": "orders",
    "as_of": "2026-11-21T12:00:00+00:00",
    "prices_region": "us-east-1",
    "prices_as_of": "2026-11-01",
    "currency": "USD",
    "files": 1234,
    "bytes": 5 * 1024**3,
    "small_files": 7,
    "delete_files": 1,
    "deletion_vectors": 2,
    "snapshots": 40,
    "expirable_snapshots": 12,
    "cost_month": 3.5,
    "saved_month": {"at_least": 0.5, "at_most": 1.25},
    "problem": None,
}
POLICY = f"lake.gov.{'p' * 60}"
RUN = {"task_type": "EXPIRY", "task_id": TASK_ID, "policy": POLICY, "began": "2026-11-20T12:00:00+00:00"}
DONE = {"outcome": "SUCCESS", "snapshots_removed": 17, "files_deleted": 1234, "bytes_deleted": 2048}
ORPHANS = {"task_type": "<b>ORPHANS"}
REFUSED = {"outcome": "GC_DISABLED", "snapshots_removed": None, "files_deleted": 0, "bytes_deleted": 0, "task_id": None}
UPKEEP = {**HEALTH_OF_TABLE, "under_way": [RUN], "past": [{**RUN, **DONE}, {**RUN, **REFUSED, **ORPHANS}]}
NO_RULE = {
    "expirable_snapshots": None,
    "problem": "CORRUPT_MANIFEST: torn",
    "name": "torn",
    "table": "lake.`sa.les`.torn",
}
LAKE = {
    **{name: HEALTH_OF_TABLE[name] for name in ("prices_region", "prices_as_of", "currency")},
    "catalog": "lake",
    "tables": [HEALTH_OF_TABLE, {**HEALTH_OF_TABLE, **NO_RULE, "namespace": ["sa.les"]}],
    "lost_refs": [
        {"id": "1-a", "table_uuid": "1"},
        {"id": "1-b", "table_uuid": "1"},
        {"id": "2-a", "table_uuid": "2"},
        {"id": "3-a", "table_uuid": ""},
    ],
    "more": 7,
}


def test_the_upkeep_of_a_catalog_shows_its_tables_with_a_link_to_each(tmp_path):
    page = shown(tmp_path, {"api/health": (200, HEALTH), "api/upkeep": (200, LAKE)}, "#upkeep/lake")
    assert page.text("kept") == "Upkeep of lake"
    assert not any(page.hidden(name) for name in ("upkeep", "healths"))
    assert all(page.hidden(name) for name in ("runs", "list", "audit"))
    assert "sales.orders1,2345.0 GiB740123.500.50–1.25" in page.text("health-rows")
    assert "could not be read: CORRUPT_MANIFEST: torn" in page.text("health-rows")
    assert "no rule3.50–" in page.text("health-rows")
    assert 'data-label="USD a month"' in page.document
    assert 'href="#upkeep/lake.%60sa.les%60.torn"' in page.document
    shown_cost = "9 tables; the files of the current snapshots of those shown cost 7.00 USD"
    assert page.text("upkeep-notes").startswith(shown_cost)
    assert "expiries lost refs of 3 tables: " in page.text("upkeep-notes")
    assert "<code>delegation references lost CATALOG</code>" in page.document
    assert page.text("upkeep-more").startswith("7 more tables")


def test_the_upkeep_of_a_table_shows_what_ran_with_a_link_to_its_task(tmp_path):
    page = shown(tmp_path, {"api/health": (200, HEALTH), "api/upkeep": (200, UPKEEP)}, "#upkeep/lake.sales.orders")
    assert [page.hidden(name) for name in ("upkeep", "healths", "runs")] == [False, True, False]
    assert "3.50 USD a month; an expiry saves 0.50–1.25" in page.text("health")
    rows = page.text("run-rows")
    assert f"EXPIRYunder way{RUN['policy']}" in rows
    assert f"EXPIRYSUCCESS171,2342.0 KiB{RUN['policy']}" in rows
    assert "<b>ORPHANSGC_DISABLED–00 B" in rows
    assert page.document.count(f'href="#{TASK_ID}"') == 2


def test_a_plan_that_waits_is_in_the_upkeep_of_its_table_and_of_its_catalog(tmp_path):
    plan = f"{TASK_ID}/1/ab"
    run = {"task_type": "ORPHAN_FILES", "waiting_plan": plan}
    table = {**UPKEEP, "waiting_plans": [plan], "past": [{**RUN, **DONE, "outcome": "WAITING"}]}
    page = shown(tmp_path, {"api/health": (200, HEALTH), "api/upkeep": (200, table)}, "#upkeep/lake.sales.orders")
    assert f"for approval: delegation orphans approve {plan}" in page.text("health")
    assert "<span>WAITING</span>" in page.document, "it is no failure"
    catalog = {**LAKE, "tables": [{**HEALTH_OF_TABLE, "runs": [run]}]}
    page = shown(tmp_path, {"api/health": (200, HEALTH), "api/upkeep": (200, catalog)}, "#upkeep/lake")
    assert "ORPHAN_FILES waits for approval" in page.text("health-rows")


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("found", [LAKE, UPKEEP], ids=["catalog", "table"])
def test_upkeep_stays_within_the_page(tmp_path, width, found):
    answers = {"api/health": (200, HEALTH), "api/upkeep": (200, found)}
    assert len(right_margin(tmp_path, answers, width, "#upkeep/x")) == 1, "something is drawn in the margin"


VIEWS = ("list", "task", "choose", "audit", "upkeep", "tombstones", "pauses")


@pytest.mark.parametrize("view", ["upkeep", "audit"])
def test_the_only_catalog_needs_no_choice(tmp_path, view):
    catalogs = {"api/health": (200, HEALTH), "api/catalogs": (200, {"catalogs": ["lake"]})}
    page = shown(tmp_path, {**catalogs, f"api/{view}": (404, {"message": "read", "next_step": ""})}, f"#{view}")
    assert [page.hidden(name) for name in VIEWS] == [name != view for name in VIEWS]
    assert page.text("problem") == "read"


def test_of_several_catalogs_one_is_chosen(tmp_path):
    catalogs = (200, {"catalogs": ["lake", "<b>sea"]})
    page = shown(tmp_path, {"api/health": (200, HEALTH), "api/catalogs": catalogs}, "#audit")
    assert [page.hidden(name) for name in VIEWS] == [name != "choose" for name in VIEWS]
    assert (page.text("chosen"), page.document.count("<option value=")) == ("Audit of a catalog", 3)
    assert "<b>sea" not in page.document.partition("<body>")[2].replace('value="<b>sea"', "")


def test_tombstones_are_a_view_with_their_tasks_and_troubles(tmp_path):
    stone = {
        "table": "lake.shop.orders", "state": "FAILED", "is_ended": False, "caller": "principal:owner",
        "created_at": "2026-11-21T12:00:00Z", "grace_until": None, "task_id": TASK_ID, "problem": "<b>denied",
    }  # fmt: skip
    answers = {"api/health": (200, HEALTH), "api/tombstones": (200, {"tombstones": [stone], "more": False})}
    page = shown(tmp_path, answers, "#tombstones")
    assert [page.hidden(name) for name in VIEWS] == [name != "tombstones" for name in VIEWS]
    assert "lake.shop.orders<b>deniedFAILEDprincipal:owner" in page.text("stone-rows")
    assert f'href="#{TASK_ID}"' in page.document
    nobody = {"message": "this deployment has no gateway", "next_step": "Switch it on."}
    page = shown(tmp_path, {**answers, "api/tombstones": (404, nobody)}, "#tombstones")
    assert "no gateway" in page.text("problem")


def test_pauses_are_a_view_and_none_is_said(tmp_path):
    page = shown(tmp_path, {"api/health": (200, HEALTH)}, "#pauses")
    assert "Nothing is paused" in page.text("no-pauses")
    by = {"client_id": "ops", "subject": "ops"}
    pause = {"scope": "all", "table": None, "realm": None, "mode": "stop", "by": by, "reason": "fire"}
    paused = {**HEALTH, "paused": [{**pause, "since": "2026-11-20T12:00:00Z"}]}
    assert "all tasksstoppedops" in shown(tmp_path, {"api/health": (200, paused)}, "#pauses").text("pause-rows")


TOPS = b"""
setTimeout(() => {
  const found = [...$("pause-rows").querySelectorAll("td")];
  document.body.dataset.tops = found.map((one) => one.getBoundingClientRect().top);
}, 1000);
"""


def test_a_narrow_page_has_what_is_paused_before_the_reason(tmp_path):
    """The reason was the first line of each pause, and its table the second, beside the mode."""
    by = {"client_id": "ops", "subject": "ops"}
    pause = {"scope": "all", "table": None, "realm": None, "mode": "stop", "by": by, "reason": "fire " * 20}
    answers = {"api/health": (200, {**HEALTH, "paused": [{**pause, "since": "2026-11-20T12:00:00Z"}]})}
    document = serve(tmp_path, answers, "#pauses", "--window-size=390,1200", "--dump-dom", script=TOPS)
    tops = [float(one) for one in re.findall(r'data-tops="([^"]+)"', document)[0].split(",")]
    assert len(tops) == 5
    assert tops == sorted(set(tops))


def test_no_finding_of_an_audit_is_without_its_reason(tmp_path):
    extent = {"count": 1, "bytes": {"at_least": 1, "at_most": 1}, "month": {"at_least": 0, "at_most": 0}}
    matters = ("unreachable", "expirable", "small", "oversized", "unreadable", "overlapping")
    looked = {"at": "2026-11-21T12:00:00+00:00", "plan": "task/1/2"}
    table = {"namespace": ["a"], "name": "t", "problem": "X: torn", "overlaps": None, "looked_for_orphans": looked}
    found = {
        "catalog": "lake", "references_as_of": None, "prices": {"currency": "USD"}, "tables": 1, "more": 0,
        "never_looked_for_orphans": 0, "plans_unreadable": [],
        "totals": {one: {"tables": 1, **extent} for one in matters},
        "findings": [{**table, **dict.fromkeys(matters, extent)}],
    }  # fmt: skip
    page = shown(tmp_path, {"api/health": (200, HEALTH), "api/audit": (200, found)}, "#audit/lake")
    rows = page.document.partition('id="finding-rows">')[2].partition("</tbody>")[0].split("</tr>")[:-1]
    assert len(rows) == len(matters)
    assert not [row for row in rows if row.endswith('<td class="what"></td>')]
