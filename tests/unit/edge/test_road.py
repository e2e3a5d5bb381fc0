"""The road of a submission: through which files one `POST /v1/tasks` runs, and where it comes back.

What is counted: the files below functions/delegation of which a function is called while the Lambda handler answers one
request, for a table that the service does not know yet, over stores in memory. An equal request for another table ran
before, so what a process does once is not counted. The road begins where the parsed body is validated and ends with
the answer that is sent; the files that were entered before are the front, which is HTTP and the log.

A file is entered when a function of another file calls one of its functions. A leaf calls no other file, or only files
that call none: values and their rules. The stores are leaves too, because a store is read before it is written. Every
other file decides what follows, and is entered once.
"""

import json
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import pytest
from aws_lambda_powertools import Logger

from delegation.edge.api.app import create_app
from delegation.handlers import api as lambda_handler
from delegation.metrics import MetricLines
from tests.kit.lakes.lake import busy_table
from tests.kit.worlds.service import LIFETIME, REALM, World
from tests.paths import ROOT
from tests.unit.edge.conftest import dependencies
from tests.unit.edge.gateway import Context, request

CODE = f"{ROOT / 'functions' / 'delegation'}/"
STORES = ("idempotency/store.py", "tasks/stores/")
FIRST, LAST = "read_payload", "Submissions.submit"
MOST_FILES = 19
MOST_IN_ALL = 28


@dataclass
class Road:
    """The calls from one file into another, as (from, to, function), in order.

    `front` are the files that were entered before the road began; `steps` are the calls into others, until it ended.
    """

    calls: list[tuple[str, str, str]] = field(default_factory=list)
    front: set[str] = field(default_factory=set)
    steps: list[tuple[str, str, str]] = field(default_factory=list)
    _is_begun: bool = False
    _is_over: bool = False

    def profile(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event not in {"call", "return"} or not frame.f_code.co_filename.startswith(CODE):
            return
        name, file = frame.f_code.co_qualname, file_of(frame)
        if event == "return":
            self._is_over = self._is_over or name == LAST
            return
        self._is_begun = self._is_begun or name == FIRST
        caller = caller_of(frame)
        if caller == file:
            return
        self.calls.append((caller, file, name))
        if not self._is_begun:
            self.front.add(file)
        elif not self._is_over and file not in self.front:
            self.steps.append((caller, file, name))

    @property
    def files(self) -> list[str]:
        """The files of the road, in the order in which they are entered first."""
        return list(dict.fromkeys(file for _, file, _ in self.steps))

    @property
    def all_files(self) -> list[str]:
        return list(dict.fromkeys(file for _, file, _ in self.calls))

    @property
    def leaves(self) -> set[str]:
        called = {file: {to for caller, to, _ in self.calls if caller == file} for file in self.all_files}
        return {
            file for file in self.all_files if file.startswith(STORES) or all(not called[to] for to in called[file])
        }

    def entered_again(self) -> dict[str, list[str]]:
        """Return the files of the road that are entered more than once and are no leaves, with the calls of each."""
        entries = Counter(file for _, file, _ in self.steps)
        leaves = self.leaves
        return {
            file: [f"{caller} calls {name}" for caller, to, name in self.steps if to == file]
            for file, times in entries.items()
            if times > 1 and file not in leaves
        }


def file_of(frame: FrameType) -> str:
    return frame.f_code.co_filename.removeprefix(CODE)


def caller_of(frame: FrameType) -> str:
    """Return the nearest file of the service below a frame: pydantic and Powertools, say, may be in between."""
    at = frame.f_back
    while at is not None and not at.f_code.co_filename.startswith(CODE):
        at = at.f_back
    return "" if at is None else file_of(at)


def travelled(act: Callable[[], object]) -> Road:
    road = Road()
    before = sys.getprofile()
    sys.setprofile(road.profile)
    try:
        act()
    finally:
        sys.setprofile(before)
    return road


@pytest.fixture
def road(monkeypatch: pytest.MonkeyPatch) -> Road:
    world = World()
    deps = dependencies(world.submissions, world.tasks, realm=REALM, idempotency_lifetime=LIFETIME, clock=world.clock)
    handle = create_app(deps, logger=Logger(service="road"), metrics=MetricLines("Delegation", "road"))
    monkeypatch.setattr(lambda_handler, "_api", lambda: handle)
    events = []
    for table in ("warm", "orders"):
        busy_table(world.lake, table)
        body = world.body(table)
        events.append(request("POST", "/v1/tasks", body, headers={"Idempotency-Key": f"key-of-{table}-0123456789"}))
    answers = [json.loads(lambda_handler.handler(events[0], Context())["body"])]
    found = travelled(lambda: answers.append(json.loads(lambda_handler.handler(events[1], Context())["body"])))
    assert [one["status"] for one in answers] == ["QUEUED", "QUEUED"]
    assert [n for _, n in world.queue.sent] == [1, 1]
    return found


def test_a_submission_runs_through_few_files(road: Road) -> None:
    assert "edge/requests.py" in road.front
    assert "tasks/work/submission.py" in road.files
    assert len(road.files) <= MOST_FILES, road.files
    assert len(road.all_files) <= MOST_IN_ALL, road.all_files


def test_a_submission_comes_back_to_leaves_alone(road: Road) -> None:
    assert road.entered_again() == {}
