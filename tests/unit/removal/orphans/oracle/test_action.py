"""Removals of orphan files of the tables of Spark, as Iceberg's DeleteOrphanFiles made them (`make orphans-oracle`)."""

import collections
from dataclasses import replace
from typing import Any

import pytest

from delegation.removal.orphans import needed_rows
from tests.actions.records import recorded
from tests.effort import every
from tests.orphans.compare import RECORDED, compared
from tests.orphans.plants import OLD
from tests.orphans.questions import SweepQuestion, questions

KNOWN = recorded(RECORDED)
ANSWERED: list[tuple[SweepQuestion, dict[str, Any]]] = [
    (one, KNOWN[one.key]) for one in questions() if one.key in KNOWN
]
KINDS = {one.kind for question in questions() for one in question.planted}


@pytest.mark.parametrize(("question", "answer"), every(4, ANSWERED), ids=[one.key for one, _ in ANSWERED])
def test_the_same_are_orphans_as_by_icebergs_action(question: SweepQuestion, answer: dict[str, Any]) -> None:
    assert list(compared(question, answer, collections.Counter())) == []


def test_every_question_is_recorded_and_every_kind_is_planted() -> None:
    assert {one.key for one in questions()} == KNOWN.keys()
    assert len(KINDS) == 38


@pytest.mark.long
def test_nearly_all_tables_are_swept_by_both() -> None:
    totals: collections.Counter[str] = collections.Counter()
    for one, answer in ANSWERED:
        if one.options.name == "planted":
            assert list(compared(one, answer, totals)) == []
    assert totals["tables swept by both"] >= 85
    assert totals["refused by us: LOCATION_SHARED"] == 9
    assert totals["Iceberg deletes what another table needs: files"] > 0


@pytest.fixture
def example() -> tuple[SweepQuestion, dict[str, Any]]:
    return next((one, found) for one, found in ANSWERED if one.key == "rewritten.v2: planted")


def test_an_orphan_that_iceberg_alone_finds_is_noticed(example: tuple[SweepQuestion, dict[str, Any]]) -> None:
    question, answer = example
    young = [replace(one, age=OLD / 1000) if one.uri in answer["found"] else one for one in question.planted]
    lines = list(compared(replace(question, planted=tuple(young)), answer, collections.Counter()))
    assert any("is an orphan by Iceberg, and we leave it" in line for line in lines)
    assert any(line.startswith("we leave ") for line in lines)


def test_an_orphan_that_iceberg_does_not_find_is_noticed(example: tuple[SweepQuestion, dict[str, Any]]) -> None:
    question, answer = example
    lines = list(compared(question, {**answer, "found": []}, collections.Counter()))
    assert any("which is no orphan by Iceberg" in line for line in lines)


def test_a_needed_file_that_is_deleted_is_noticed(
    example: tuple[SweepQuestion, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(needed_rows, "all_entries", lambda *_: iter(()))
    lines = list(compared(*example, collections.Counter()))
    assert any("which a table needs" in line for line in lines)
    assert any("does not read" in line for line in lines)
