"""A worker is killed at each call of the catalog, before it and after it; the next attempt ends the work."""

from dataclasses import dataclass, field

import httpx
import pytest

from delegation.rewrites.commits import own_commits
from delegation.rewrites.context import DataFilesRewrite
from delegation.tasks.errors import LeaseLost
from delegation.tasks.life.model import Status
from polaris_common.errors import DelegationError
from tests.rewrites.world import PlainAttempt, RewriteWorld

pytestmark = [
    pytest.mark.long,
    pytest.mark.spark,
    pytest.mark.timeout(3600),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
# One group at a time, so that each life has the same calls.
REWRITE = DataFilesRewrite(
    options={"min-input-files": "2", "partial-progress.max-commits": "2", "max-concurrent-file-group-rewrites": "1"}
)
# A commit, the look whether it was made, and two loads that Iceberg sends three times; each is sent four times.
MOST_UNANSWERED = 32


@dataclass
class Life:
    """The way of one attempt to the catalog; it ends at call `at`, before or `after` the catalog did what was asked."""

    at: int | None = None
    after: bool = False
    calls: list[str] = field(default_factory=list)
    unanswered: int = 0
    is_dead: bool = False

    def check(self) -> None:
        if self.is_dead:
            raise LeaseLost("task-1", attempt=1, current=2, status=Status.RUNNING)


class Wire(httpx.BaseTransport):
    def __init__(self, life: Life) -> None:
        self._life = life
        self._real = httpx.HTTPTransport()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        life = self._life
        if life.is_dead:
            life.unanswered += 1
            raise httpx.ConnectError("killed", request=request)
        life.calls.append(request.method)
        is_last = life.at == len(life.calls)
        if is_last and not life.after:
            life.is_dead = True
            raise httpx.ConnectError("killed", request=request)
        answer = self._real.handle_request(request)
        answer.read()
        if is_last:
            life.is_dead = True
            raise httpx.ReadError("killed", request=request)
        return answer


def check_killed(world: RewriteWorld, name: str, at: int, *, after: bool) -> list[int]:
    """Kill attempt 1 and let attempt 2 end the work; return which attempts committed."""
    table = world.filled(name)
    rows, before = world.rows(table), world.every_snapshot(table)
    life = Life(at, after)
    with pytest.raises(DelegationError):
        world.run(name, PlainAttempt(on_checkpoint=life.check), REWRITE, wire=Wire(life))
    assert life.is_dead
    # The attempt ends while Iceberg still asks: it must not ask for long.
    assert life.unanswered <= MOST_UNANSWERED
    result = world.run(name, PlainAttempt(attempt=2), REWRITE)
    own = own_commits(world.metadata(name), "task-1")
    assert world.files(table) == (2, 0)
    assert world.rows(table) == rows
    now = world.every_snapshot(table)
    assert {number: now[number] for number in before} == before
    # Each file was rewritten once, by one of the attempts.
    assert (result.files_rewritten, result.files_added) == (8, 2)
    assert [one.snapshot_id for one in own] == list(result.snapshot_ids)
    assert len(now) == len(before) + len(own)
    return [one.attempt for one in own]


def test_a_worker_killed_at_any_call_loses_no_row_and_commits_nothing_twice(world: RewriteWorld) -> None:
    life = Life()
    world.filled("unkilled")
    world.run("unkilled", PlainAttempt(), REWRITE, wire=Wire(life))
    assert life.calls.count("POST") >= 2
    # A call that only reads leaves the catalog the same before it and after it.
    moments = [
        (at, after)
        for at, method in enumerate(life.calls, start=1)
        for after in ((False, True) if method == "POST" else (False,))
    ]
    by = [check_killed(world, f"killed{at}{'after' if after else 'before'}", at, after=after) for at, after in moments]
    # Some were killed before all commits, some between them.
    assert {tuple(one) for one in by} >= {(2, 2), (1, 2)}
