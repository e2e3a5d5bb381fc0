from datetime import UTC, datetime

import pytest
from rich.console import Console

from delegation.cli.screens import TaskWatch, duration_text, outcome_text, size_text, summary_text
from delegation.wire.tasks import TaskRecord
from tests.unit.client.service import record

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def drawn(*views):
    watch = TaskWatch(clock=lambda: NOW)
    for view in views:
        watch.show(TaskRecord.of(view))
    console = Console(width=120, color_system=None)
    with console.capture() as capture:
        console.print(watch)
    return capture.get()


def test_before_the_first_answer_no_status_is_shown():
    assert drawn().strip() == "Waiting for the first answer …"


LATER = record(version=5, status="SUCCESS", files_deleted=400)


@pytest.mark.parametrize(
    ("views", "shown"),
    [
        ([record(eta_ts="2026-11-20T12:01:30Z")], ["lake.sales.eu.orders", "100 of 400 files, 1.2 KiB"]),
        (
            [record(eta_ts="2026-11-20T12:01:30Z")],
            ["RUNNING · version 3 · attempt 1 · spark", "1 min 30 s left"],
        ),
        ([record(version=1, status="SUBMITTED"), LATER], ["SUBMITTED", "3 more versions", "400 of 400 files"]),
        ([record(files_planned=None, files_deleted=0)], ["0 of ? files"]),
        ([record(status="FAILURE", result_summary="access denied", files_failed=3)], ["access denied", "3 failed"]),
        ([record(status="PAUSED")], ["PAUSED"]),
    ],
)
def test_what_is_watched_has_its_status_progress_and_reason(views, shown):
    text = drawn(*views)
    assert [word for word in shown if word not in text] == []


def test_line_has_the_same_content_for_output_without_a_terminal():
    line = TaskWatch(clock=lambda: NOW).line(TaskRecord.of(record(status="RETRY_SCHEDULED", error_code="TIMEOUT")))
    assert line.plain == ("RETRY_SCHEDULED · version 3 · attempt 1 · spark engine: 100 of 400 files, 1.2 KiB (TIMEOUT)")


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 * 1024**4, "3.0 TiB"), (1024**6, "1048576.0 TiB")],
)
def test_sizes_are_in_binary_units(count, text):
    assert size_text(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.04, "0.0 s"), (59.9, "59.9 s"), (185, "3 min 05 s"), (7_620, "2 h 07 min")]
)
def test_durations_are_in_two_units(seconds, text):
    assert duration_text(seconds) == text


@pytest.mark.parametrize(
    ("stored", "printed"),
    [
        ("deleted 7 files, 97862 bytes in 33.1 s", "deleted 7 files, 95.6 KiB in 33.1 s"),
        (
            "deleted 2 files, 512 bytes in 192.4 s; kept 1 file; nothing was freed",
            "deleted 2 files, 512 B in 3 min 12 s; kept 1 file; nothing was freed",
        ),
        ("planned 3 files, 1610612736 bytes; nothing was deleted", "planned 3 files, 1.5 GiB; nothing was deleted"),
        ("kept in 7 of 12 bytes2, s3://b/12 bytesize", "kept in 7 of 12 bytes2, s3://b/12 bytesize"),
        ("line\x1b[31m\n1024 bytes", "line [31m 1.0 KiB"),
    ],
)
def test_a_summary_is_printed_with_sizes_and_durations_as_everywhere_else(stored, printed):
    assert summary_text(stored) == printed
    view = TaskRecord.of(record(status="SUCCESS", error_code="CODE", result_summary=stored))
    assert outcome_text(view) == f"CODE: {printed}"
    assert view.result_summary == stored
