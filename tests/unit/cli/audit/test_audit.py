"""`delegation audit`, over healths, a reference index and plans in memory."""

import csv
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from delegation.cli.catalog.findings import MOST_NAMED, overlapping
from delegation.cli.catalog.health import GIB
from delegation.cli.deployment.costs import BUNDLED, document_of
from delegation.identifiers import TableIdentifier
from delegation.references.model import CatalogPass, TableEntry
from delegation.removal.chunks import Chunk, Phase, Total
from delegation.removal.index import store_index
from delegation.storage.memory import MemoryPlanStore
from delegation.upkeep.health.model import FreedBytes, TableHealth
from tests.kit.dynamodb import MemoryHealthStore, MemoryReferenceStore
from tests.unit.cli.orphans.plans import orphan_index
from tests.unit.client.service import TASK_ID, TASKS, json_answer, record

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
PRICE = document_of(BUNDLED)["s3_gb_month"]


class Ledger:
    """What the service stored of the catalog `lake`."""

    def __init__(self, service: Any, healths: MemoryHealthStore, references: MemoryReferenceStore) -> None:
        self.healths, self.references = healths, references
        self.plans = MemoryPlanStore()
        self.service = service
        self.tasks: dict[str, list[dict[str, Any]]] = {"ORPHAN_FILES": [], "ORPHAN_FILES_PLAN": []}
        self.answer()

    def answer(self) -> None:
        # The command asks for removals first, and then for dry runs.
        pages = [{"tasks": found, "unreadable": [], "next_page_token": None} for found in self.tasks.values()]
        self.service.answer("GET", TASKS, *(json_answer(200, page) for page in pages))

    def table(self, name: str, *areas: str, problem: str | None = None, **health: Any) -> None:
        identifier = TableIdentifier("lake", ("sales",), name)
        where = tuple(areas) or (f"s3://b/{name}/",)
        self.references.put(TableEntry(identifier, f"uuid-{name}", "s3://b/m.json", where, problem=problem))
        if health:
            self.healths.put(TableHealth(identifier, f"uuid-{name}", "s3://b/m.json", NOW, **health))

    def look(
        self, name: str, files: int, size: int, *, kind: str = "ORPHAN_FILES", days: int = 1, **changed: Any
    ) -> str:
        """Let a look have ended some days ago."""
        at = NOW - timedelta(days=days)
        plan_id = f"{TASK_ID}/{len(self.plans.objects) + 1}/ab"
        chunk = Chunk(
            name="DATA-00000.jsonl.gz", kind=Phase.DATA, count=files, bytes=size, sha256="00", first="a", last="b"
        )
        about = {"table_uuid": f"uuid-{name}", "identifier": f"lake.sales.{name}", "roots": (f"s3://b/{name}/",)}
        listed = {"listed": Total(files=100, bytes=10_000), "listed_at": int(at.timestamp())}
        chunks = (chunk,) if files else ()
        segment = store_index(
            self.plans, orphan_index(plan_id=plan_id, task_id=TASK_ID, chunks=chunks, **about, **listed)
        )
        payload = {
            "common_payload": {"operation_type": kind, "realm_identifier": "POLARIS"},
            "operation_parameters": {
                "table_identity": {"catalog_name": "lake", "namespace_levels": ["sales"], "table_name": name},
                "metadata_location": "s3://b/m.json",
                "metadata": {"location": f"s3://b/{name}", "table-uuid": f"UUID-{name}", "format-version": 2},
                "properties": {},
            },
        }
        found = {
            "task_type": kind,
            "status": "SUCCESS",
            "task_payload": json.dumps(payload),
            "plan_segments": [{"id": segment.id, "sha256": segment.sha256}],
            "last_status_change_ts": at.isoformat(),
            **changed,
        }
        self.tasks[kind].append(record(**found))
        self.answer()
        return plan_id


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch, service: Any, healths: Any, index: Any) -> Ledger:
    made = Ledger(service, healths, index)
    monkeypatch.setattr("delegation.cli.catalog.audit.plans_of", lambda _connection, _bucket: made.plans)
    return made


def document(run: Any, *words: str) -> dict[str, Any]:
    return json.loads(run("audit", "lake", "--json", *words).stdout)


def found(run: Any) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in document(run)["findings"]}


def test_every_matter_is_found_with_bytes_and_money(run, ledger):
    ledger.table("old", bytes=10 * GIB, expirable=7, freed=FreedBytes(GIB, 2 * GIB))
    ledger.table("small", small_files=9, small_bytes=4, bytes=5)
    ledger.table("large", oversized_files=2, oversized_bytes=3 * GIB, bytes=4 * GIB)
    ledger.table("torn", problem="CORRUPT_MANIFEST: m0.avro", bytes=3 * GIB)
    ledger.table("tidy", bytes=7)
    ledger.table("one", "s3://b/shared/one/", bytes=2)
    ledger.table("two", "s3://b/shared/", bytes=GIB)
    plan = ledger.look("old", 12, 4 * GIB)
    audit = document(run)
    assert audit["totals"]["unreachable"] == {
        "tables": 1,
        "count": 12,
        "bytes": {"at_least": 4 * GIB, "at_most": 4 * GIB},
        "month": {"at_least": round(4 * PRICE, 4), "at_most": round(4 * PRICE, 4)},
    }
    assert audit["totals"]["expirable"]["month"] == {"at_least": round(PRICE, 4), "at_most": round(2 * PRICE, 4)}
    assert (audit["totals"]["small"]["count"], audit["totals"]["small"]["bytes"]["at_least"]) == (9, 4)
    assert audit["totals"]["oversized"]["month"] == {"at_least": round(3 * PRICE, 4), "at_most": round(3 * PRICE, 4)}
    assert audit["totals"]["unreadable"]["bytes"]["at_most"] == 3 * GIB
    assert audit["totals"]["overlapping"]["tables"] == 2
    by_name = {one["name"]: one for one in audit["findings"]}
    assert audit["findings"][0]["name"] == "old"
    assert by_name["old"]["looked_for_orphans"]["plan"] == plan
    assert (by_name["one"]["overlaps"], by_name["two"]["overlaps"]) == (["lake.sales.two"], ["lake.sales.one"])
    assert by_name["torn"]["problem"] == "CORRUPT_MANIFEST: m0.avro"
    assert "tidy" not in by_name
    assert (audit["tables"], audit["never_looked_for_orphans"]) == (7, 6)


def test_the_last_look_counts_and_one_that_was_executed_left_nothing(run, ledger):
    for name in ("waits", "done", "found", "failed", "newer"):
        ledger.table(name)
    ledger.look("waits", 5, 50)
    ledger.look("waits", 9, 90, kind="ORPHAN_FILES_PLAN", days=3)
    ledger.look("done", 5, 50, first_delete_ts=NOW.isoformat(), files_deleted=5)
    ledger.look("found", 0, 0)
    ledger.look("failed", 5, 50, status="FAILURE")
    ledger.look("newer", 1, 10, kind="ORPHAN_FILES_PLAN", days=1)
    ledger.look("newer", 5, 50, first_delete_ts=NOW.isoformat(), days=2)
    audit = document(run)
    assert {one["name"]: one["unreachable"]["count"] for one in audit["findings"]} == {"waits": 5, "newer": 1}
    assert audit["never_looked_for_orphans"] == 1


def test_looks_of_other_catalogs_of_dropped_tables_and_of_newer_releases_are_left_out(run, ledger):
    ledger.table("t")
    ledger.look("dropped", 5, 50)
    ledger.tasks["ORPHAN_FILES"].append(record(status="SUCCESS", task_type="ORPHAN_FILES", task_payload="{}"))
    other = json.loads(ledger.tasks["ORPHAN_FILES"][0]["task_payload"])
    other["operation_parameters"]["table_identity"]["catalog_name"] = "pond"
    other["operation_parameters"]["metadata"]["table-uuid"] = "uuid-t"
    ledger.tasks["ORPHAN_FILES"].append({**ledger.tasks["ORPHAN_FILES"][0], "task_payload": json.dumps(other)})
    ledger.answer()
    audit = document(run)
    assert (audit["findings"], audit["never_looked_for_orphans"]) == ([], 1)


def test_a_plan_that_cannot_be_read_is_named_and_counts_as_no_look(run, ledger):
    ledger.table("t")
    plan = ledger.look("t", 5, 50)
    ledger.plans.objects.clear()
    audit = document(run)
    assert (audit["plans_unreadable"], audit["never_looked_for_orphans"]) == ([plan], 1)
    ledger.answer()
    assert "1 plan that could not be read" in run("audit", "lake").stdout


def test_an_audit_that_was_interrupted_reads_no_plan_twice(run, ledger, tmp_path):
    state = tmp_path / "audit.jsonl"
    for name in ("a", "b", "c"):
        ledger.table(name)
        ledger.look(name, 5, 50)
    first = document(run, "--state", str(state))
    whole = state.read_text()
    state.write_text(whole[:-10])
    ledger.answer()
    before = ledger.plans.faults.calls
    assert document(run, "--state", str(state))["totals"] == first["totals"]
    assert ledger.plans.faults.calls == before + 1
    state.write_text("no state\n")
    ledger.answer()
    refused = run("audit", "lake", "--json", "--state", str(state))
    assert (refused.exit_code, json.loads(refused.stderr)["error_code"]) == (1, "STATE_UNUSABLE")


def test_the_screen_has_a_summary_and_the_first_tables(run, ledger):
    for number in range(3):
        ledger.table(f"old{number}", bytes=10 * GIB, expirable=7, freed=FreedBytes((3 - number) * GIB, None))
    state = ledger.references.pass_of("lake")
    ledger.references.write_pass(state, CatalogPass("lake", complete_as_of=NOW, tables=3))
    text = run("audit", "lake", "--limit", "2").stdout
    assert text.index("sales.old0") < text.index("sales.old1")
    assert "sales.old2" not in text
    assert "1 more" in text
    assert "3.0 GiB or more" in text
    assert "reference index as of 2026-11-23 12:00 UTC" in text
    assert "delegation orphans scan TABLE" in text


def test_csv_has_a_line_for_each_finding_and_no_formula(run, ledger):
    ledger.table("=cmd|x", expirable=1, freed=FreedBytes(1, None), small_files=2, oversized_files=1, oversized_bytes=9)
    rows = list(csv.DictReader(run("audit", "lake", "--csv").stdout.splitlines()))
    assert [(one["table"], one["finding"], one["bytes_at_least"], one["bytes_at_most"]) for one in rows] == [
        ("'=cmd|x", "expirable", "1", ""),
        ("'=cmd|x", "small", "", ""),
        ("'=cmd|x", "oversized", "9", "9"),
    ]
    assert run("audit", "lake", "--csv", "--json").exit_code == 2


def test_a_catalog_of_which_nothing_is_known_says_so(run, ledger):
    text = run("audit", "lake").stdout
    assert "0 tables of lake, nothing found" in text
    assert "no complete pass" in text


def test_control_characters_of_a_name_or_a_problem_are_not_printed(run, ledger):
    ledger.table("t\x1b[31m", problem="X: \x1b[2J")
    assert "\x1b" not in run("audit", "lake").stdout


def test_tables_overlap_by_any_of_their_areas_and_few_are_named() -> None:
    many = [(f"t{number:02}", (f"s3://b/all/{number:02}/",)) for number in range(20)]
    tables = [
        *many,
        ("above", ("s3://b/all/", "s3://c/x/")),
        ("beside", ("s3://b/all2/",)),
        ("below", ("s3://c/x/y/",)),
    ]
    seen = overlapping([*tables, ("same", ("s3://c/x/y/",)), ("all", ("",))])
    assert seen["t07"] == ("above",)
    assert set(seen["below"] or ()) == {"same", "above"}
    assert len(seen["above"] or ()) == MOST_NAMED
    assert "beside" not in seen
    assert seen["all"] is None


def test_the_time_does_not_grow_with_the_number_of_pairs() -> None:
    """5,000 tables at one location are 25 million pairs."""
    seen = overlapping([(f"t{number}", ("s3://b/all/",)) for number in range(5_000)])
    assert len(seen) == 5_000
    assert all(len(others or ()) == MOST_NAMED for others in seen.values())
