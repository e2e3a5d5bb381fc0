"""`delegation health`, over the healths that the service stored."""

import json
from datetime import UTC, datetime

from delegation.cli.catalog.health import GIB
from delegation.cli.deployment.costs import BUNDLED, document_of
from delegation.identifiers import TableIdentifier
from delegation.upkeep.health.model import FreedBytes, LastRun, PastRun, TableHealth
from tests.kit.dynamodb import MemoryHealthStore
from tests.unit.cli.references.test_lost import lost_refs

NOW = datetime(2026, 11, 23, tzinfo=UTC)
PRICE = document_of(BUNDLED)["s3_gb_month"]


def put(store: MemoryHealthStore, name: str, **fields: object) -> None:
    store.put(TableHealth(TableIdentifier("lake", ("sales",), name), "uuid", "s3://b/m.json", NOW, **fields))  # type: ignore[arg-type]


def test_the_worst_table_is_first_and_each_has_its_cost(run, healths, stack):
    put(healths, "tidy", files=10, bytes=1000 * GIB, expirable=0)
    put(healths, "small", files=99, small_files=98)
    put(healths, "old", bytes=10 * GIB, expirable=7, freed=FreedBytes(100 * GIB, 200 * GIB))
    put(healths, "unknown", expirable=3, freed=FreedBytes(150 * GIB, None))
    text = run("health", "lake", "--stack", str(stack)).stdout
    lines = [line.split()[0] for line in text.splitlines() if line.startswith("sales.")]
    assert lines == ["sales.old", "sales.unknown", "sales.small", "sales.tidy"]
    assert f"{100 * PRICE:.2f}–{200 * PRICE:.2f}" in text
    assert f"{150 * PRICE:.2f} or more" in text
    assert "no rule" in text
    assert f"4 tables, {1010 * PRICE:,.2f} USD a month" in text


def test_json_has_all_tables_and_exact_numbers(run, healths, stack):
    made = LastRun("EXPIRY", "task-1", "weekly", NOW, ended=NOW, outcome="SUCCESS")
    put(healths, "old", bytes=10 * GIB, expirable=7, freed=FreedBytes(GIB, None), runs={"EXPIRY": made})
    found = json.loads(run("health", "lake", "--limit", "1", "--json", "--stack", str(stack)).stdout)
    [table] = found["tables"]
    assert found["currency"] == "USD"
    assert table["freed_bytes"] == {"at_least": GIB, "at_most": None}
    assert table["cost_month"] == round(10 * PRICE, 4)
    assert table["runs"][0]["outcome"] == "SUCCESS"


def test_what_could_not_be_read_is_said_without_control_characters(run, healths, stack):
    put(healths, "torn", problem="CORRUPT_MANIFEST: s3://b/\x1b[31mm0.avro is corrupt")
    text = run("health", "lake", "--stack", str(stack)).stdout
    assert "lake.sales.torn could not be read: CORRUPT_MANIFEST" in text
    assert "\x1b" not in text


def test_small_and_oversized_files_have_their_bytes(run, healths, stack):
    put(healths, "both", files=9, small_files=2, small_bytes=3 * 1024, oversized_files=1, oversized_bytes=2 * GIB)
    put(healths, "former", files=9, small_files=4)
    lines = run("health", "lake", "--stack", str(stack)).stdout.splitlines()
    [both] = [line for line in lines if "sales.both" in line]
    [former] = [line for line in lines if "sales.former" in line]
    assert ("2 (3.0 KiB)" in both, "1 (2.0 GiB)" in both) == (True, True)
    assert former.split()[1:4] == ["9", "4", "–"]
    tables = json.loads(run("health", "lake", "--json", "--stack", str(stack)).stdout)["tables"]
    by_name = {one["name"]: one for one in tables}
    assert (by_name["both"]["small_bytes"], by_name["both"]["oversized_bytes"]) == (3 * 1024, 2 * GIB)
    assert (by_name["former"]["small_bytes"], by_name["former"]["oversized_files"]) == (None, None)


PAST = (
    PastRun("EXPIRY", "task-1", "lake.gov.week", NOW, NOW, "SUCCESS", 1_234, 5 * GIB, 17),
    PastRun("ORPHANS", "", "lake.gov.\x1b[31msweep", NOW, NOW, "GC_DISABLED"),
)


def test_one_table_has_the_runs_that_ended_and_those_under_way(run, healths, stack):
    runs = {"ORPHANS": LastRun("ORPHANS", "task-2", "lake.gov.sweep", NOW)}
    put(healths, "old", bytes=10 * GIB, expirable=7, past=PAST, runs=runs)
    put(healths, "other")
    text = run("health", "lake.sales.old", "--stack", str(stack)).stdout
    assert "other" not in text
    assert "\x1b" not in text
    [expiry] = [line.split() for line in text.splitlines() if "1,234" in line]
    assert expiry[1:] == ["EXPIRY", "SUCCESS", "17", "1,234", "5.0", "GiB", "lake.gov.week"]
    assert all(text.count(task) == 1 for task in ("task-1", "task-2"))
    [under_way] = [line for line in text.splitlines() if "under way" in line]
    assert under_way.split()[:2] == ["2026-11-23T00:00Z", "ORPHANS"]
    assert any("GC_DISABLED" in line and "–" in line for line in text.splitlines())
    found = json.loads(run("health", "lake.sales.old", "--json", "--stack", str(stack)).stdout)
    assert [one["snapshots_removed"] for one in found["past"]] == [17, None]
    assert [one["task_id"] for one in (*found["past"], *found["under_way"])] == ["task-1", None, "task-2"]
    assert found["expirable_snapshots"] == 7


def test_a_plan_that_waits_is_shown_with_the_command_that_approves_it(run, healths, stack):
    plan = "01234567-89ab-cdef-0123-456789abcdef/1/ab"
    swept = LastRun("ORPHAN_FILES", "task-2", "lake.gov.sweep", NOW, ended=NOW, outcome="WAITING", waiting=plan)
    put(healths, "orders", runs={"ORPHAN_FILES": swept})
    put(healths, "other")
    command = f"delegation orphans approve {plan}"
    catalog = run("health", "lake", "--stack", str(stack)).stdout
    assert f"lake.sales.orders waits for approval: {command}" in catalog
    table = run("health", "lake.sales.orders", "--stack", str(stack)).stdout
    assert f"\nA plan waits for approval: {command}\n" in table
    found = json.loads(run("health", "lake.sales.orders", "--json", "--stack", str(stack)).stdout)
    assert (found["waiting_plans"], found["runs"][0]["waiting_plan"]) == ([plan], plan)


def test_a_table_without_upkeep_and_one_that_is_not_known_say_so(run, healths, stack):
    put(healths, "new")
    assert "No policy has run" in run("health", "lake.sales.new", "--stack", str(stack)).stdout
    unknown = run("health", "lake.sales.gone", "--stack", str(stack))
    assert unknown.exit_code != 0
    assert "the health of lake.sales.gone" in unknown.output


def test_more_tables_than_the_limit_are_counted(run, healths, stack):
    for number in range(5):
        put(healths, f"t{number}")
    text = run("health", "lake", "--limit", "2", "--stack", str(stack)).stdout
    assert "3 more" in text


def test_a_catalog_that_was_never_read_says_what_starts_it(run, healths, stack):
    assert "first pass of the reference index" in run("health", "lake", "--stack", str(stack)).stdout


def test_lost_refs_are_named_with_the_command_that_lists_them(run, healths, index, stack):
    put(healths, "orders")
    index.put_lost_refs(lost_refs())
    text = run("health", "lake", "--stack", str(stack)).stdout
    assert "lake.sales.orders: an expiry lost 2 refs (audit, …)" in text
    assert "delegation references lost lake" in text
    found = json.loads(run("health", "lake", "--json", "--stack", str(stack)).stdout)
    assert [one["table"] for one in found["lost_refs"]] == ["lake.sales.orders"]
