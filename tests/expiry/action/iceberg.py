"""Iceberg's ExpireSnapshots action on the tables of the fixtures, as Spark's procedure runs it."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from tests.actions.copies import TableCopies
from tests.actions.records import Json
from tests.expiry.action.questions import Question
from tests.fixtures.lakehouse import CATALOG, Lakehouse


def answers(lake: Lakehouse, asked: Sequence[Question]) -> Iterator[tuple[Question, Json]]:
    """Yield what the action leaves of each table and which objects it deletes; the objects are put back."""
    copies = TableCopies(lake)
    for question in copies.by_scenario(asked):
        yield question, _answer(copies, question)


def _answer(copies: TableCopies, question: Question) -> Json:
    altered = {question.begins_with: question.content()} if question.is_altered else {}
    with copies.registered(question.begins_with, altered) as name:
        now_ms = int(datetime.now(UTC).timestamp() * 1000)
        ran = copies.run(name, _call(question, name))
    return {
        "question": question.key,
        "now_ms": now_ms,
        "error": ran.error,
        "deleted": sorted(ran.deleted),
        **state(dict(ran.metadata)),
    }


def state(document: Json) -> Json:
    """Return what an expiry may remove from metadata, in a form to compare."""
    return {
        "snapshots": sorted(one["snapshot-id"] for one in document.get("snapshots") or ()),
        "refs": {name: ref["snapshot-id"] for name, ref in sorted((document.get("refs") or {}).items())},
        "schemas": sorted(one.get("schema-id", 0) for one in document.get("schemas") or ()),
        "specs": sorted(one["spec-id"] for one in document.get("partition-specs") or ()),
    }


def _call(question: Question, name: str) -> str:
    options = question.options
    older_than = datetime.fromtimestamp(options.older_than_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    given: dict[str, Any] = {"table": f"'{name}'", "older_than": f"TIMESTAMP '{older_than}'"}
    if options.retain_last is not None:
        given["retain_last"] = options.retain_last
    if options.snapshot_ids:
        given["snapshot_ids"] = f"ARRAY({', '.join(f'{one}L' for one in options.snapshot_ids)})"
    if options.clean:
        given["clean_expired_metadata"] = "true"
    return f"CALL {CATALOG}.system.expire_snapshots({', '.join(f'{key} => {value}' for key, value in given.items())})"
