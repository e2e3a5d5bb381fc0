"""What `delegation recover` prints: one summary, however many tasks there are."""

import json

import pytest

from delegation.cli.deployment.recover import print_report, records_unread
from delegation.cli.output import Output
from delegation.tasks.recovery import RecoveryReport

IDS = [f"0a0a0a0a-0000-4000-8000-{number:012d}" for number in range(60)]


def printed(capsys: pytest.CaptureFixture[str], report: RecoveryReport, *, dry_run: bool = False) -> list[str]:
    print_report(Output(), report, dry_run=dry_run)
    return capsys.readouterr().out.splitlines()


def test_the_summary_is_a_line_for_each_number_with_its_nouns(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    report = RecoveryReport(tasks=1, rebuilt=0, kept=1200, versions=2, links=1, records=1)
    assert printed(capsys, report) == [
        "Recovered:",
        "      1  task",
        "      2  versions",
        "      1  link or notification",
        "      1  idempotency record",
        "  1,200  tasks are live and stay as they are",
    ]


def test_tasks_that_will_run_are_counted_and_how_to_see_them_is_one_line(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    report = RecoveryReport(tasks=60, rebuilt=3, versions=180, waiting=IDS, unreadable=IDS[:7])
    lines = printed(capsys, report, dry_run=True)
    assert lines[0] == "Would be recovered; nothing was copied:"
    assert "     60  tasks, 3 of them from versions that the live table still has" in lines
    assert "      7  tasks in the copy that this release cannot read" in lines
    assert lines[-2:] == [
        "60 of these tasks run after `delegation resume`; look at them first:",
        "  delegation tasks list --open",
    ]
    assert len(lines) <= 10, "one summary, not a line for each task"
    assert max(map(len, lines)) <= 80


def test_json_is_one_document_with_every_member(capsys):
    report = RecoveryReport(tasks=1, waiting=IDS[:1], unreadable=IDS[1:2])
    print_report(Output(as_json=True), report, dry_run=False)
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line) == {
        "tasks": 1,
        "rebuilt": 0,
        "kept": 0,
        "versions": 0,
        "links": 0,
        "records": 0,
        "waiting": IDS[:1],
        "unreadable": IDS[1:2],
        "dry_run": False,
    }


@pytest.mark.parametrize(("ids", "words"), [(IDS[:1], "1 task was not recovered"), (IDS[:2], "2 tasks were not")])
def test_tasks_that_cannot_be_read_are_counted(ids, words):
    assert str(records_unread(ids)).startswith(words)
