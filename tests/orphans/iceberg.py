"""Iceberg's DeleteOrphanFiles action on the tables of the fixtures, as Spark's procedure runs it."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from tests.actions.copies import TableCopies
from tests.actions.records import Json
from tests.fixtures.corpus import plain
from tests.fixtures.lakehouse import CATALOG, Lakehouse
from tests.orphans.plants import LIMIT, OLD
from tests.orphans.questions import SweepQuestion


def answers(lake: Lakehouse, asked: Sequence[SweepQuestion]) -> Iterator[tuple[SweepQuestion, Json]]:
    """Yield which files the action calls orphans and which objects it deletes; the objects are put back."""
    copies = TableCopies(lake)
    for question in copies.by_scenario(asked):
        yield question, _answer(lake, copies, question)


def _answer(lake: Lakehouse, copies: TableCopies, question: SweepQuestion) -> Json:
    with copies.registered(question.begins_with, question.added()) as name:
        now = datetime.now(UTC).replace(microsecond=0)
        ages = {one.uri: one.age for one in question.planted}
        for uri in lake.listing():
            lake.date(uri, now - ages.get(uri, OLD))
        ran = copies.run(name, _call(question, name, now))
    return {
        "question": question.key,
        "now_ms": int(now.timestamp() * 1000),
        "error": ran.error,
        "found": sorted(plain(row["orphan_file_location"]) for row in ran.rows),
        "deleted": sorted(ran.deleted),
    }


def _call(question: SweepQuestion, name: str, now: datetime) -> str:
    options = question.options
    given = {
        "table": _text(name),
        "older_than": f"TIMESTAMP '{(now - LIMIT).strftime('%Y-%m-%d %H:%M:%S')}'",
        # By the table's FileIO: the listing through Hadoop takes its connector for S3.
        "prefix_listing": "true",
    }
    if options.scheme:
        path = question.document["location"].partition("://")[2]
        given["location"] = _text(f"{options.scheme}://{path}")
    if options.mismatch is not None:
        given["prefix_mismatch_mode"] = _text(options.mismatch.value)
    if options.authorities:
        given["equal_authorities"] = _map(options.authorities)
    return f"CALL {CATALOG}.system.remove_orphan_files({', '.join(f'{key} => {one}' for key, one in given.items())})"


def _map(names: Mapping[str, str]) -> str:
    return f"map({', '.join(_text(one) for pair in names.items() for one in pair)})"


def _text(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
