"""Iceberg's ExpireSnapshots action on the tables of the fixtures, as Spark's procedure runs it."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, Final

from delegation.iceberg.metadata import decode_metadata
from tests.expiry.action.questions import Json, Question
from tests.fixtures import corpus
from tests.fixtures.lakehouse import BUCKET, CATALOG, Lakehouse

_NAMESPACE: Final = "oracle"
_MOST_KEYS: Final = 1_000


def answers(lake: Lakehouse, asked: Sequence[Question]) -> Iterator[tuple[Question, Json]]:
    """Yield what the action leaves of each table and which objects it deletes; the objects are put back."""
    lake.sql(f"CREATE NAMESPACE {_NAMESPACE}")
    number = 0
    for scenario, group in groupby(asked, lambda one: one.scenario):
        objects = {uri: corpus.load(scenario).content.get(uri, b"") for uri in corpus.load(scenario).objects}
        for uri, data in objects.items():
            lake.put(uri, data)
        for question in group:
            number += 1
            yield question, _answer(lake, question, f"{_NAMESPACE}.t{number}", objects)
        _clear(lake, set(lake.listing()))


def _answer(lake: Lakehouse, question: Question, name: str, objects: dict[str, bytes]) -> Json:
    if question.is_altered:
        lake.put(question.begins_with, question.content())
    before = set(lake.listing())
    lake.register(name, question.begins_with)
    now_ms = int(datetime.now(UTC).timestamp() * 1000)
    error: str | None = None
    try:
        lake.sql(_call(question, name))
    except Exception as failed:  # noqa: BLE001 - whatever Iceberg or Spark raise is the answer
        error = " ".join(str(failed).split("\tat ")[0].split())[:300]
    left = dict(decode_metadata(name, lake.read(_s3(lake.metadata_location(name)))))
    after = set(lake.listing())
    lake.sql(f"DROP TABLE {name}")
    _clear(lake, after - objects.keys())
    for uri in (before - after) & objects.keys():
        lake.put(uri, objects[uri])
    return {
        "question": question.key,
        "now_ms": now_ms,
        "error": error,
        "deleted": sorted(before - after),
        **state(left),
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


def _s3(path: str) -> str:
    return f"s3://{path.partition('://')[2]}"


def _clear(lake: Lakehouse, uris: set[str]) -> None:
    keys = [uri.removeprefix(f"s3://{BUCKET}/") for uri in sorted(uris)]
    for at in range(0, len(keys), _MOST_KEYS):
        some: list[Any] = [{"Key": key} for key in keys[at : at + _MOST_KEYS]]
        lake.s3.delete_objects(Bucket=BUCKET, Delete={"Objects": some})
