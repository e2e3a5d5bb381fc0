"""The table of a run's totals, from what was observed: text for a person."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from tests.chaos.findings import Call, Observed
from tests.chaos.load import Make

_WIDTH = 22


def totals(observed: Observed, *, kills: Mapping[str, int], throttled: Mapping[str, int]) -> Iterator[str]:
    """Yield the lines of the table."""
    yield from _rows("tasks", _of_tasks(observed))
    yield from _rows("kills", {"in all": sum(kills.values()), **kills})
    yield from _rows("throttled requests", throttled)
    yield from _rows("requests of callers", _of_calls(observed.calls))
    yield from _rows("files", _of_files(observed))


def _rows(title: str, counts: Mapping[str, int]) -> Iterator[str]:
    cells = ", ".join(f"{count:,} {name}" for name, count in counts.items())
    yield f"{title:<{_WIDTH}}{cells or 'none'}"


def _of_tasks(observed: Observed) -> dict[str, int]:
    tables = [table for table in observed.tables if table.asked.make is not Make.LIVE]
    ends = Counter(
        "not accepted"
        if each.head is None
        else str(each.head.status) + (f" {each.head.error_code}" * (each.head.status == "FAILURE"))
        for each in tables
    )
    heads = [each.head for each in tables if each.head is not None]
    attempts = {
        "attempts": sum(head.attempt_count for head in heads),
        "at most of one task": max((head.attempt_count for head in heads), default=0),
    }
    return {**dict(sorted(ends.items())), **attempts}


def _of_calls(calls: Sequence[Call]) -> dict[str, int]:
    """Count the answers: those of a failing server and lost ones, and how many requests had one and then another."""
    failed = {call.key for call in calls if call.failed}
    last = {call.key: call for call in calls}
    return {
        "in all": len(calls),
        "answered 5xx": sum(call.failed and call.status is not None for call in calls),
        "without an answer": sum(call.status is None for call in calls),
        "repeated until they worked": sum(not last[key].failed for key in failed),
        "not": sum(last[key].failed for key in failed),
    }


def _of_files(observed: Observed) -> dict[str, int]:
    gone = sum(len(table.must_go - observed.content) for table in observed.tables)
    left = sum(len(table.must_go & observed.content) for table in observed.tables)
    kept = sum(len(table.must_stay & observed.content) for table in observed.tables)
    lost = sum(len(table.must_stay - observed.content) for table in observed.tables)
    return {
        "deleted": gone,
        "left that should be gone": left,
        "kept for live tables": kept,
        "gone that should be there": lost + len(observed.strangers - observed.content),
        "foreign and untouched": len(observed.strangers & observed.content),
    }
