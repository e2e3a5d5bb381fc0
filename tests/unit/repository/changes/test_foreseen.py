"""How many files two changes touch; that of a whole new task type is `tests/unit/wiring/test_table_touch.py`."""

from pathlib import Path

import pytest

from tests.unit.repository.changes.foreseen import CHANGES, changed


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_touches_few_files(name: str, tmp_path: Path) -> None:
    change = CHANGES[name]
    touched = changed(change, tmp_path)
    assert set(touched) >= set(change.edits)
    assert len(touched) <= change.most, touched


@pytest.mark.parametrize("name", CHANGES)
def test_what_has_to_hold_then_does_not_hold_before(name: str) -> None:
    with pytest.raises((AssertionError, AttributeError, KeyError)):
        CHANGES[name].check()
