"""The drill finds every violation that a test plants in the store or in the log."""

import pytest

from delegation.tasks.life.policy import Lease
from delegation.tasks.stores.memory import MemoryTaskStore
from delegation.tasks.submit import Tasks
from tests.drill.findings import examine
from tests.drill.observed import END, PIECE, START, STEP, Done, Line, Piece
from tests.kit.tasks.builders import HOUR, MINUTE, Clock
from tests.kit.tasks.services import task_service


class LoggedTask:
    """One task, whose first attempt is lost and whose second succeeds, with the matching log lines."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.store = MemoryTaskStore()
        self.tasks = task_service(self.store, {"delegation.retry.default.max-attempts": "9"}, clock=self.clock)
        self.submitted = Tasks(self.tasks).submit(PIECE, Piece(name="a"))
        self.task_id = self.submitted.task_id
        self.lines = [self.line(1, START), self.line(1, STEP), self.line(2, START), self.line(2, END)]

    def line(self, attempt: int, what: str, pid: int | None = None) -> Line:
        return Line(self.task_id, attempt, pid or attempt, what)

    def run(self, *, attempt: int = 2) -> None:
        for holder in ("one", "two"):
            self.tasks.leases.acquire(self.task_id, holder, lambda now: Lease.lasting(MINUTE, now))
            self.clock.advance(HOUR)
        result = Done(attempt=attempt, pid=2).model_dump_json()
        self.tasks.leases.succeed(self.task_id, 2, "done", result_extended=result)

    def examine(self, kills: int = 1):
        return examine(self.tasks, [self.submitted], self.lines, kills=kills)


@pytest.fixture
def site() -> LoggedTask:
    return LoggedTask()


def test_a_correct_run_is_counted_without_violations(site):
    site.run()
    found = site.examine()
    assert found.violations == ()
    counted = (found.tasks, found.outcomes, found.succeeded, found.attempts, found.most_attempts)
    assert counted == (1, 1, 1, 2, 2)
    assert (found.interrupted, found.duplicates) == (1, 0)


def test_more_attempts_than_kills_are_found(site):
    site.run()
    assert "1 attempts too many for 0 kills" in site.examine(kills=0).violations


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ((2, START, 2), "attempt 2 began 2 times"),
        ((1, STEP, 1), "attempts overlap: [1, 1, 2, 2, 1]"),
        ((2, STEP, 7), "more than one process ran an attempt"),
    ],
)
def test_repeated_overlapping_or_shared_attempts_are_found(site, more, text):
    site.run()
    attempt, what, pid = more
    site.lines.append(site.line(attempt, what, pid))
    assert any(text in violation for violation in site.examine().violations)


def test_work_on_a_task_that_was_not_submitted_is_found(site):
    site.run()
    site.lines.append(Line("stranger", 1, 1, START))
    assert "stranger: has work but was not submitted" in site.examine().violations


def test_a_task_without_an_outcome_is_found(site):
    violations = site.examine().violations
    assert any("ended as SUBMITTED" in violation for violation in violations)
    assert any("its completion has no outcome" in violation for violation in violations)
    assert any("still due" in violation for violation in violations)


def test_a_result_of_another_attempt_or_without_its_work_is_found(site):
    site.run(attempt=1)
    assert any("is not of attempt 2" in violation for violation in site.examine().violations)
    other = LoggedTask()
    other.run()
    other.lines.pop()
    assert any("has no END line" in violation for violation in other.examine().violations)


def test_a_gap_in_the_history_and_a_second_success_are_found(site):
    site.run()
    rows = site.store._rows[site.task_id]
    last = max(rows)
    rows[last + 2] = rows[last].evolve(version=last + 2)
    site.store._heads[site.task_id] = rows[last + 2]
    text = " ".join(site.examine().violations)
    assert f"but the head has version {last + 2}" in text
    assert "SUCCESS became SUCCESS" in text
    assert "2 SUCCESS versions" in text
