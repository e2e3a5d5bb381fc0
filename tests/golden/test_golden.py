"""What is stored and answered stays byte for byte what it was: tasks, records, plans, marks, receipts, API answers.

The texts for people are left out: `message`, `details`, `result_summary`, `result_extended`.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract.task_tables import moto
from tests.golden.record import FOLDER, STALE, text_of
from tests.golden.stories import STORIES


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with moto() as found:
        yield found


@pytest.mark.parametrize("name", STORIES)
def test_every_byte_is_as_it_was(name: str, client: Any) -> None:
    played = text_of(name, client)
    recorded = (FOLDER / f"{name}.json").read_text(encoding="utf-8")
    assert json.loads(played) == json.loads(recorded), STALE
    assert played == recorded, STALE


def test_every_story_is_recorded_and_most_end_with_a_receipt() -> None:
    recorded = {path.stem: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.json")}
    assert recorded.keys() == STORIES.keys()
    assert sum("/receipt.json" in text for text in recorded.values()) >= 6
