"""The files that a submission runs through, from the parsed body to the dispatch: a road of few files."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from tests.paths import ROOT
from tests.unit.edge.world import World
from tests.unit.operations.purge.lake import busy_table

CODE = f"{ROOT / 'functions' / 'delegation'}/"
DRIVERS = ("edge/", "idempotency/", "operations/", "tasks/submission/", "tasks/work/")
"""Who decides what follows; the others are leaves, which are values, their rules, and the store."""
MOST_FILES = 33
MOST_DRIVERS = 15


def files_of(act: Callable[[], object]) -> set[str]:
    found: set[str] = set()

    def entered(frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(CODE):
            found.add(frame.f_code.co_filename.removeprefix(CODE))

    before = sys.getprofile()
    sys.setprofile(entered)
    try:
        act()
    finally:
        sys.setprofile(before)
    return found


def test_a_submission_is_a_road_through_few_files() -> None:
    world = World()
    for table in ("warm", "orders"):
        busy_table(world.lake, table)
    world.submit(world.body("warm"))
    body = world.body("orders")
    files = files_of(lambda: world.submit(body))
    # Each type in the list says which requests are its own.
    files = {one for one in files if not one.startswith("operations/") or one.startswith("operations/purge/")}
    assert "tasks/work/parts/submission.py" in files
    assert len(files) <= MOST_FILES, sorted(files)
    drivers = {one for one in files if one.startswith(DRIVERS)}
    assert len(drivers) <= MOST_DRIVERS, sorted(drivers)
