"""The applier accepts what Iceberg Java accepted, with the same documents: a recorded sample of `make applier-fuzz`.

python -m tests.persistence.applier.fuzz --sequences 300 --seed 900000 --record FILE
"""

import collections
import functools
import json
import lzma
from typing import Any

import pytest

from polaris_persistence.errors import IcebergUpdateError
from polaris_persistence.iceberg.layout import LAYOUTS, Json, in_order
from polaris_persistence.iceberg.metadata import ManagedMetadata
from polaris_persistence.iceberg.updates.managed import update_table, update_view
from tests.paths import ROOT
from tests.persistence.applier.compare import compared, outcome_of
from tests.persistence.applier.fixtures import spark_metadata
from tests.persistence.iceberg.iceberg_fixtures import NOW, Held, as_json

RECORDED = ROOT / "tests" / "persistence" / "applier" / "recorded.jsonl.xz"


@functools.cache
def recorded() -> list[tuple[Json, Json]]:
    with lzma.open(RECORDED, "rt", encoding="utf-8") as lines:
        return [(line["asked"], line["answer"]) for line in map(json.loads, lines)]


def test_what_iceberg_accepted_is_accepted_with_the_same_document() -> None:
    totals: collections.Counter[str] = collections.Counter()
    differences = [line for asked, answer in recorded() for line in compared(asked, answer, totals)]
    assert not differences, differences[0]
    assert min(totals[f"{kind}s {how}"] for kind in ("table", "view") for how in ("accepted", "refused")) >= 50
    assert totals["messages equal"] >= 10 * totals["messages other"]


def test_a_difference_is_noticed() -> None:
    """Of each recorded outcome the opposite, and a document with another snapshot log, is a difference."""
    noticed = 0
    for asked, answer in recorded()[:40]:
        for number, commit in enumerate(answer.get("commits", [])):
            if "document" in commit and asked["kind"] == "table" and commit["document"]["snapshot-log"]:
                other = {**commit["document"], "snapshot-log": commit["document"]["snapshot-log"][1:]}
                commits = [*answer["commits"][:number], {**commit, "document": other}]
            else:
                commits = [*answer["commits"][:number], {**commit, "ok": not commit["ok"], "message": "", "stage": ""}]
            shorter = {**asked, "commits": asked["commits"][: len(commits)]}
            assert list(compared(shorter, {**answer, "commits": commits}, collections.Counter()))
            noticed += 1
    assert noticed >= 40


def commit_to(metadata: ManagedMetadata, kind: str, commit: Json) -> None:
    requirements, updates = commit["requirements"], commit["updates"]
    if kind == "view":
        update_view(metadata, requirements, updates, now_ms=NOW)
    else:
        update_table(metadata, requirements, updates, now_ms=NOW, previous_file=commit["file"])


def test_managed_metadata_and_documents_are_changed_alike() -> None:
    """One contract of both sources of a commit: a plain document, and one that is stored and read in parts."""
    bases = 0
    for asked, answer in recorded()[::5]:
        made = (one["document"] for one in answer["commits"] if "document" in one)
        base = next(made, None) if answer["base"] is None else answer["base"]
        if base is None:
            continue
        bases += 1
        held = Held().imported(base, LAYOUTS[asked["kind"]])
        for commit in asked["commits"]:
            expected = outcome_of(asked["kind"], held.document(), commit, NOW)
            metadata = held.load()
            if not expected.ok:
                with pytest.raises(IcebergUpdateError) as refused:
                    commit_to(metadata, asked["kind"], commit)
                assert refused.value.reason == expected.reason
                assert not metadata.changed
                continue
            commit_to(metadata, asked["kind"], commit)
            held.save(metadata)
            assert as_json(held.document()) == as_json(expected.document)
    assert bases >= 50


def test_documents_that_spark_wrote_go_in_and_out_unchanged() -> None:
    property_: Any = {"action": "set-properties", "updates": {"read.split.target-size": "7"}}
    count = 0
    for location, document in spark_metadata():
        held = Held().imported(document)
        assert list(held.document()) == list(in_order(document, LAYOUTS["table"])), location
        assert as_json(held.document()) == as_json(document), location
        table = held.load()
        assert not update_table(table, [], [{"action": "set-properties", "updates": {}}], now_ms=NOW)
        assert update_table(table, [], [property_], now_ms=NOW)
        held.save(table)
        changed = held.document()
        assert changed["properties"].pop("read.split.target-size") == "7"
        assert as_json(changed | {"last-updated-ms": document["last-updated-ms"]}) == as_json(document), location
        count += 1
    assert count >= 500
