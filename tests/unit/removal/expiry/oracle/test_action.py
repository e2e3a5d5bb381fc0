"""Expiries of Spark's tables as Iceberg's ExpireSnapshots action made them (`make expiry-oracle`)."""

import collections
from typing import Any

import pytest

from tests.actions.records import recorded
from tests.effort import every
from tests.expiry.action.compare import RECORDED, compared
from tests.expiry.action.questions import Question, questions

KNOWN = recorded(RECORDED)
ANSWERED: list[tuple[Question, dict[str, Any]]] = [(one, KNOWN[one.key]) for one in questions() if one.key in KNOWN]


@pytest.mark.parametrize(("question", "answer"), every(4, ANSWERED), ids=[one.key for one, _ in ANSWERED])
def test_the_same_goes_as_by_icebergs_action(question: Question, answer: dict[str, Any]) -> None:
    assert list(compared(question, answer, collections.Counter())) == []


def test_every_question_is_recorded() -> None:
    assert [one.key for one in questions() if one.key not in KNOWN] == []
    assert len({(one.scenario, one.table) for one, _ in ANSWERED}) >= 60


def test_a_difference_is_noticed() -> None:
    question, answer = next((one, found) for one, found in ANSWERED if found["deleted"])
    fewer = answer | {"deleted": answer["deleted"][1:], "snapshots": []}
    lines = list(compared(question, fewer, collections.Counter()))
    assert any("Iceberg does not" in line for line in lines)
    assert any(line.startswith("snapshots: ") for line in lines)
