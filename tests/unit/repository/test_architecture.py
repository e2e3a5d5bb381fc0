"""The page that says what is where leads a newcomer to files that exist."""

import re
import tomllib

import pytest

from tests.kit.sources import tree_of
from tests.paths import DOCS, ROOT

PACKAGES = (DOCS / "architecture" / "packages.md").read_text(encoding="utf-8").partition("## Decisions")[0]
CODE = ROOT / "functions" / "delegation"
QUESTIONS = [
    ("What does the service know of a task type?", "tasks/life/task_type.py", "TaskType"),
    ("Where is a lease lost?", "tasks/life/outcomes.py", "is_lost"),
    ("How does running work notice that it lost its lease?", "tasks/work/attempt_context.py", "AttemptContext"),
    ("What runs an attempt?", "tasks/work/work_errors.py", "AttemptRunner"),
    ("What reads and changes tasks?", "tasks/work/service.py", "TaskService"),
    ("Where is a task written?", "tasks/work/parts/writes.py", "WriteLoop"),
    ("Which status may follow which?", "tasks/life/transitions.py", "transition"),
    ("When is a failed attempt retried?", "tasks/life/outcomes.py", "after_error"),
    ("What reads and writes items of a table?", "stored_items.py", "Items"),
    ("What is stored for a task?", "tasks/stores/codec.py", "head_item"),
    ("What may a purge delete?", "removal/paths.py", "PathGuard"),
    ("How does an attempt delete, whatever the operation?", "removal/run.py", "RemovalRun"),
    ("In which order does a purge delete?", "removal/purge/run.py", "Execution"),
    ("Which engine does a purge use?", "removal/purge/choose.py", "estimate"),
    ("Which snapshots does an expiry remove?", "removal/expiry/retention.py", "decide"),
    ("In which order does an expiry delete?", "removal/expiry/run.py", "ExpiryRun"),
    ("Where are orphan files looked for?", "removal/orphans/place.py", "check_alone"),
    ("Which deleted files come back?", "removal/orphans/quarantine.py", "state_of"),
    ("Which spellings protect a file?", "removal/orphans/place.py", "joined"),
    ("Who writes the receipt?", "removal/marks.py", "store_receipt"),
    ("Which neighbour tables are read?", "removal/neighbours.py", "neighbours_of"),
    (
        "Which purges does an unreadable table hold back?",
        "removal/referencing.py",
        "ReferencingTables",
    ),
    ("Which tables are there that no catalog lists?", "removal/foreign.py", "find_foreign"),
    ("Which files does a table reach?", "iceberg/reach.py", "read_manifest_lists"),
    ("How is a manifest decoded?", "iceberg/avro/decoder.py", "compile_decoder"),
    ("How fast are keys deleted?", "storage/deleter.py", "AdaptiveRate"),
    ("How is the state machine's next wait computed?", "orchestration/steps.py", "wait_seconds"),
    ("What does the sweeper do?", "orchestration/sweep.py", "sweep"),
    ("Which waiting task starts next?", "tasks/life/lanes.py", "admitted"),
    ("Which error is a 409?", "edge/answers.py", "status_of"),
    ("Who may call an operation?", "edge/api/endpoints.py", "admitted"),
    ("How is a bearer token verified?", "edge/trust/tokens.py", "TokenVerifier"),
    ("When is a request answered with a replay?", "idempotency/keys.py", "KeyRecord"),
    ("When is a holder's key taken over?", "idempotency/mutations/service.py", "Mutations"),
    ("When does a client repeat a request?", "client/conversations.py", "same_key_wait"),
    ("How are tasks listed?", "tasks/work/parts/reads.py", "page_of"),
    ("How far is a task?", "edge/outlook.py", "outlook_of"),
    ("What does a process print when a task ends?", "tasks/endings.py", "EndingLines"),
    ("What does a caller send to have a table purged?", "wire/tables.py", "PurgeTableOperationParameters"),
    ("When are vended credentials refreshed?", "polaris/credentials.py", "refresh_at"),
    ("Which environment variables does a Lambda read?", "wiring/settings.py", "TaskSettings"),
    ("Which alarms are there?", "infra/operations/alarms.py", "AlarmRule"),
    ("Which requests does the gateway take?", "gateway/routing.py", "route_of"),
    ("How is a catalog mutation verified?", "gateway/keys/rules/choice.py", "rule_for"),
    ("Which answer may follow an unclear outcome?", "gateway/keys/calls.py", "denies"),
    ("Which answers are the catalog's own?", "gateway/keys/reading.py", "is_genuine"),
    ("Which paths are let through?", "gateway/routing.py", "check_target"),
    ("In which order is a table dropped with its files?", "gateway/drop/sequence.py", "TableDrops"),
    ("What is paused?", "tasks/pauses.py", "ReadPauses"),
    ("How is the secret in Polaris rotated?", "polaris/rotation.py", "SecretRotation"),
    ("Does the front answer?", "wiring/probe.py", "FrontProbe"),
    ("What does a month cost?", "cli/deployment/costs.py", "monthly"),
    ("What does a first deployment have to show?", "cli/doctor/aws.py", "DeployedCheck"),
    ("Is the gateway deployed as a whole?", "cli/doctor/aws.py", "DeployedGateway"),
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


@pytest.mark.parametrize("path", [path for _, path, _ in QUESTIONS])
def test_the_table_of_packages_has_a_row_for_each_of_these_files(path):
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
