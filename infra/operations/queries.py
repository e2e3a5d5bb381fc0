"""Saved queries of CloudWatch Logs Insights, which follow a request, a task, or a kind of trouble through all logs.

Every line of the service is a JSON object; docs/operations.md states which fields it has.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class SavedQuery:
    """One query over all log groups of the service; `answers` is the question, PASTE_… what to replace in it."""

    name: str
    answers: str
    text: str


_SHOWN: Final = "fields @timestamp, @log, level, action, message, task_id, attempt, status, error_code, reason"

QUERIES: Final = (
    SavedQuery(
        "one request",
        "What happened to a request of Polaris, from the API over queue, execution and steps to the Spark job?",
        f"{_SHOWN}\n| filter correlation_id = 'PASTE_CORRELATION_ID'\n| sort @timestamp asc\n| limit 1000",
    ),
    SavedQuery(
        "one task",
        "What did every process do with one task?",
        f"{_SHOWN}\n| filter task_id = 'PASTE_TASK_ID' or @message like 'PASTE_TASK_ID'\n| sort @timestamp asc\n"
        "| limit 1000",
    ),
    SavedQuery(
        "failures by code and table",
        "Which tables failed, and why?",
        "filter action = 'end' and status = 'FAILURE'\n"
        "| stats count(*) as failures, latest(summary) as last by error_code, table\n| sort failures desc\n| limit 100",
    ),
    SavedQuery(
        "throttled attempts by table",
        "The deletes of which tables does the object store throttle?",
        "filter action = 'attempt' and @message like 'AttemptsThrottled'\n"
        "| stats count(*) as attempts, latest(@timestamp) as last, latest(task_id) as task by table\n"
        "| sort attempts desc\n| limit 100",
    ),
    SavedQuery(
        "largest purges",
        "Which purges deleted most, and how long did they take?",
        "filter action = 'end' and status = 'SUCCESS'\n"
        "| fields table, engine, attempt, seconds, files_deleted, bytes_deleted\n| sort bytes_deleted desc\n| limit 50",
    ),
    SavedQuery(
        "errors of the service",
        "What does the service itself complain about?",
        "filter level in ['ERROR', 'CRITICAL', 'WARNING'] and action != 'end'\n"
        "| stats count(*) as lines, latest(@timestamp) as last by @log, message, error_code\n| sort lines desc\n"
        "| limit 100",
    ),
    SavedQuery(
        "slow and large invocations",
        "Which function is at its limit of time or memory?",
        "filter type = 'platform.report'\n"
        "| stats count(*) as invocations, pct(record.metrics.durationMs, 99) as ms_99,"
        " max(record.metrics.maxMemoryUsedMB) as mb, max(record.metrics.memorySizeMB) as mb_of,"
        " max(record.metrics.initDurationMs) as cold_ms by @log\n| sort ms_99 desc",
    ),
    SavedQuery(
        "refused callers",
        "Who is refused, and why?",
        "filter action = 'authorize'\n| stats count(*) as refusals by error_code, reason\n| sort refusals desc\n"
        "| limit 100",
    ),
)
