"""Screens of 80 columns: no word is broken, and no line is wider unless it is one that the terminal wraps."""

import json
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from rich.console import Console, RenderableType
from rich.text import Text

from delegation.cli.catalog.health import StoragePrices, healths_screens, rows_of
from delegation.cli.catalog.references import BlockingRow, blocking_screens
from delegation.cli.deployment.costs import BUNDLED, Workload, document_of, monthly, monthly_screens, prices_of
from delegation.cli.doctor.checks import failed, findings_screen, passed
from delegation.cli.output import Output
from delegation.cli.screens import LabelledLines, Rows, fitting, plain
from delegation.cli.tasks.screens import history_table, task_list, task_screen
from delegation.cli.tasks.source import COLUMNS, TaskPage, table
from delegation.edge.codes import codes
from delegation.identifiers import TableIdentifier
from delegation.references.blocking import Blocking, Subject
from delegation.references.model import CatalogPass
from delegation.upkeep.health.model import TableHealth
from delegation.wire.tasks import TaskRecord

NAMES = ["lake.shop.orders", f"lake.delegation_tombstones.dropped_{'9f' * 16}", f"lake.{'n' * 60}.{'t' * 40}"]
CODES = sorted({code for chapter in codes().values() for code in chapter}, key=lambda code: (len(code), code))
WHEN = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
METADATA = "s3://warehouse/lake/shop/orders/metadata/00005-da010d5a-6b08-4aa3-b3bb-d96f8843bad9.metadata.json"


def words_of(screen: RenderableType, width: int) -> list[str]:
    console = Console(width=width, color_system=None, highlight=False)
    with console.capture() as capture:
        console.print(screen, crop=False)
    return capture.get().split()


def task(name: str, code: str, **fields: object) -> TaskRecord:
    *levels, table_name = name.split(".")
    identity = {"catalog_name": levels[0], "namespace_levels": levels[1:], "table_name": table_name}
    payload = json.dumps({"operation_parameters": {"table_identity": identity}})
    values = {
        "task_id": "84a71fd7-d6d2-599d-b6f0-9a3ba1255f8e",
        "version": 4,
        "task_type": "TABLE_PURGE",
        "task_payload": payload,
        "status": "RETRY_SCHEDULED",
        "last_status_change_ts": WHEN,
        "error_code": code,
        "attempt_count": 2,
        "files_planned": 1_200_000,
        "files_deleted": 1_100_000,
        **fields,
    }
    return TaskRecord.model_validate(values)


@pytest.mark.parametrize("name", NAMES, ids=len)
@pytest.mark.parametrize("code", CODES[-3:])
@pytest.mark.parametrize("width", [80, 160])
def test_a_list_of_tasks_has_whole_names_ids_and_codes(name, code, width):
    found = TaskPage((task(name, code), task(NAMES[0], code, partly_deleted=True)), more=False)
    words = words_of(task_list(found, width), width)
    assert {name, code, "84a71fd7-d6d2-599d-b6f0-9a3ba1255f8e", "1,100,000/1,200,000"} <= {
        word.strip(",") for word in words
    }


@pytest.mark.parametrize("name", NAMES, ids=len)
def test_chosen_columns_are_whole_or_on_lines_of_their_own(name):
    found = TaskPage((task(name, CODES[-1]),), more=False)
    words = words_of(table(found, tuple(COLUMNS)), 80)
    assert {name, CODES[-1], "84a71fd7-d6d2-599d-b6f0-9a3ba1255f8e", "1100000/1200000"} <= set(words)


def test_a_task_shows_addresses_that_can_be_copied():
    view = task(NAMES[2], CODES[-1], purged_metadata_location=METADATA, result_summary=f"{METADATA} is gone")
    words = words_of(task_screen(view), 80)
    assert words.count(METADATA) == 2
    assert NAMES[2] in words


@pytest.mark.parametrize("width", [80, 160])
@pytest.mark.parametrize("place", [METADATA, f"{METADATA}{'9' * 100}"], ids=len)
def test_a_history_has_whole_codes_and_addresses(width, place):
    versions = [task(NAMES[0], CODES[-1], result_summary=f"{place} is gone"), task(NAMES[0], "X", version=5)]
    words = words_of(history_table(versions, width), width)
    assert {"RETRY_SCHEDULED", f"{CODES[-1]}:", place, "1,100,000/1,200,000"} <= set(words)


def printed(monkeypatch, capsys, screens):
    """Return the words that a command prints on 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    Output().show(*screens)
    return capsys.readouterr().out.split()


def test_findings_of_the_doctor_have_whole_addresses():
    found = [failed("plan bucket", f"{METADATA} is gone", "fix it"), passed("queue", "word " * 30)]
    words = words_of(findings_screen(found), 80)
    assert METADATA in words
    assert words.count("word") == 30


def test_tables_health_has_whole_names_and_numbers(monkeypatch, capsys):
    problem = f"CORRUPT_MANIFEST: {METADATA} is corrupt"
    health = TableHealth(
        TableIdentifier("lake", ("n" * 60,), "t" * 40), "uuid", METADATA, WHEN, files=1_234_567, problem=problem
    )
    prices = StoragePrices.model_validate(document_of(BUNDLED))
    words = printed(monkeypatch, capsys, healths_screens("lake", rows_of([health], prices), prices, 5))
    assert {f"{'n' * 60}.{'t' * 40}", "1,234,567", METADATA} <= set(words)


def test_what_holds_purges_back_can_be_copied(monkeypatch, capsys):
    subject = Subject("lake", ("n" * 60,), "t" * 40)
    row = BlockingRow(Blocking(subject, f"TABLE_METADATA_MISSING: {METADATA} is gone", WHEN, "uuid"), None)
    words = printed(monkeypatch, capsys, blocking_screens("lake", [row], 1, WHEN, CatalogPass("lake")))
    assert METADATA in words
    assert words.count(f"lake.{'n' * 60}.{'t' * 40}") == 2  # the last time in the command that exempts it


def test_costs_of_a_month_have_whole_words(monkeypatch, capsys):
    found = []
    for width in ("200", "80"):
        monkeypatch.setenv("COLUMNS", width)
        work, prices = Workload(100, 10_000), prices_of(None)
        Output().show(*monthly_screens(work, prices, monthly(work, prices)))
        found.append(set(capsys.readouterr().out.split()))
    assert found[0] == found[1]


SCREENS: dict[str, Callable[[], RenderableType]] = {
    "narrow rows": lambda: _rows("a", "b c d"),
    "long words": lambda: _rows("x" * 50, "y" * 50),
    "a word beyond the terminal": lambda: _rows("x" * 50, METADATA),
    "fields": lambda: LabelledLines([("place", METADATA), ("reason", "word " * 40), ("empty", "")]),
}


def _rows(*cells: str) -> Rows:
    rows = Rows("first", "second")
    rows.add(*cells)
    rows.add("one", Text("two three"))
    return rows


@pytest.mark.parametrize("name", SCREENS)
@pytest.mark.parametrize("width", [40, 80, 160])
def test_no_word_is_broken(name, width):
    assert {*words_of(SCREENS[name](), 1000)} - {"first", "second"} <= {*words_of(SCREENS[name](), width)}


@pytest.mark.parametrize(
    ("natural", "least", "room", "expected"),
    [
        ([5, 5], [5, 5], 12, [5, 5]),
        ([5, 5], [5, 5], 11, None),
        ([40, 10], [6, 10], 32, [20, 10]),
        ([40, 30], [6, 6], 42, [20, 20]),
        ([40, 10], [40, 10], 51, None),
    ],
)
def test_the_widest_column_is_narrowed_first(natural, least, room, expected):
    found = fitting(natural, least, room)
    assert (found is None) == (expected is None)
    assert found is None or (sum(found) + 2 <= room and all(a >= b for a, b in zip(found, least, strict=True)))
    assert expected is None or sum(found) == sum(expected)


def test_brackets_of_others_are_no_markup():
    rows = Rows("name")
    rows.add("[bold]x[/bold]")
    assert "[bold]x[/bold]" in words_of(rows, 80)


@pytest.mark.parametrize(
    "text", ["a\x1b[2Jb", "a\x07b", "a\u202eb", "a\u2066\u2069b", "a\u200e\u200fb", "a\u061cb", "a\nb"]
)
def test_what_a_terminal_would_obey_is_a_blank(text):
    shown = plain(text)
    assert shown.isprintable()
    assert (shown[0], shown[-1]) == ("a", "b")


@pytest.mark.parametrize("text", ["orders", "bestellungen_ä", "注文", "الطلبات", "🙂 ok"])
def test_other_text_stays(text):
    assert plain(text) == text
