"""The page that says what is where leads a newcomer to files that exist."""

import re
import tomllib

import pytest

from tests.kit.sources import tree_of
from tests.paths import DOCS, ROOT

PACKAGES = (DOCS / "architecture" / "packages.md").read_text(encoding="utf-8").partition("## Decisions")[0]
CODE = ROOT / "functions" / "delegation"
QUESTIONS = [
    ("What is a task type?", "tasks/life/declared.py", "TaskType"),
    ("Which status may follow which?", "tasks/life/transitions.py", "transition"),
    ("When is an attempt lost or retried?", "tasks/life/outcomes.py", "after_error"),
    ("What runs an attempt?", "tasks/work/attempt_context.py", "AttemptRunner"),
    ("How is a task written?", "tasks/work/writes.py", "WriteLoop"),
    ("What is stored for a task?", "tasks/stores/codec.py", "head_item"),
    ("How does an attempt delete files?", "removal/run.py", "RemovalRun"),
    ("What may a purge delete?", "removal/path_guard.py", "PathGuard"),
    ("In which order does a purge delete?", "removal/purge/run.py", "Execution"),
    ("Which engine does a purge use?", "removal/purge/behavior.py", "estimate"),
    ("Which neighbour tables are read?", "removal/neighbours.py", "neighbours_of"),
    ("How does a process get a table's credentials?", "wiring/table_access.py", "vended_store"),
    ("Which files does a table reference?", "iceberg/reach.py", "read_manifest_lists"),
    ("What does the sweeper do?", "orchestration/sweep.py", "sweep"),
    ("Which errors return 409?", "edge/answers.py", "status_of"),
    ("Who may call an operation?", "edge/api/endpoints.py", "admitted"),
    ("When does a request get the stored answer?", "idempotency/keys.py", "KeyRecord"),
    ("Which requests does the gateway handle?", "gateway/routing.py", "route_of"),
    ("In which order does the gateway drop a table?", "gateway/drop/sequence.py", "TableDrops"),
    ("Which alarms are there?", "infra/operations/alarms.py", "AlarmRule"),
]


def rows_of(columns: int) -> list[list[str]]:
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in PACKAGES.splitlines() if line[:1] == "|"]
    return [row for row in rows if len(row) == columns]


def file_at(path: str):
    return next(root / path for root in (CODE, ROOT) if (root / path).is_file())


def packages() -> list[str]:
    """The paths that the table of packages names; `edge` and `trust`, say, are one cell and one sentence."""
    return [name.rstrip("/") for row in rows_of(3) for name in re.findall(r"`([\w/]+)`", row[0])]


@pytest.mark.parametrize(("question", "path", "name"), QUESTIONS, ids=[question for question, *_ in QUESTIONS])
def test_a_question_leads_to_the_file_that_answers_it(question, path, name):
    assert [question, f"`{path}`", f"`{name}`"] in rows_of(3)
    defined = {getattr(node, "name", None) for node in tree_of(file_at(path)).body}
    assert name in defined
    assert any(path.startswith((f"{package}/", f"{package}.py")) for package in packages())


def test_the_page_asks_no_question_that_this_test_does_not_hold():
    asked = [row[0] for row in rows_of(3) if row[0].endswith("?")]
    assert asked == [question for question, *_ in QUESTIONS]
    assert len(asked) >= 20


def test_every_package_of_the_service_has_a_row_and_every_row_a_package():
    found = {file.relative_to(CODE).parts[0].removesuffix(".py") for file in CODE.rglob("*.py")} - {"__init__"}
    named = [name for name in packages() if not name.endswith(("?", ".py"))]
    ours = {name.split("/")[0] for name in named if name.split("/")[0] not in {"spark", "infra"}}
    assert ours == found
    assert [
        name
        for name in named
        if not any((root / name).exists() or (root / f"{name}.py").exists() for root in (CODE, ROOT))
    ] == []


def test_the_diagram_has_the_layers_that_imports_are_checked_by():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    [layers] = [one["layers"] for one in settings["contracts"] if one["type"] == "layers" and "containers" not in one]
    checked = [{name.strip().removeprefix("delegation.") for name in layer.split("|")} for layer in layers]
    drawn = re.findall(
        r'(?:^    |--> )(\w+)(?:\["(.+?)"\])?', PACKAGES.partition("```mermaid")[2].partition("```")[0], re.MULTILINE
    )
    nodes = [label or name for name, label in drawn if label or name not in {found for found, text in drawn if text}]
    named = [set(re.split(r",\s*", node.replace("<br/>", " ").partition(":")[0])) for node in dict.fromkeys(nodes)]
    # The page names the leaves together, and the contracts of stores in its table alone.
    assert named == [*checked[1 : len(named)], {"leaves"}]
    assert all("tasks" not in layer for layer in checked[len(named) :])


def test_no_folder_has_more_than_twenty_five_modules():
    folders = [folder for top in ("functions", "infra", "spark", "tests") for folder in (ROOT / top).rglob("*")]
    crowded = {str(f.relative_to(ROOT)): n for f in folders if f.is_dir() and (n := len(list(f.glob("*.py")))) > 25}
    assert crowded == {}
