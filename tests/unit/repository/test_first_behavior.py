"""The path of docs/workers.md from nothing to a recurring task with children, followed as it is written."""

import re

import pytest

from tests.paths import DOCS


@pytest.mark.xfail(
    strict=True, reason="issue 13, line 19: docs/workers.md has no path from nothing to a tested behavior"
)
def test_the_path_of_ten_minutes_can_be_followed() -> None:
    page = (DOCS / "workers.md").read_text(encoding="utf-8")
    assert re.search(r"^## Ten minutes", page, re.MULTILINE)
