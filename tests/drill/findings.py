"""Checks a drill's task table and its log of the work for violations."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from delegation.tasks.life.model import Status, Task
from delegation.tasks.submit import Submitted
from delegation.tasks.work.service import TaskService
from tests.drill.observed import END, START, Done, Line
from tests.faults.shared.histories import broken_rules, rows_of


@dataclass(frozen=True, slots=True)
class Findings:
    """The totals of a drill, and a text for every violation."""

    tasks: int
    outcomes: int
    succeeded: int
    attempts: int
    most_attempts: int
    interrupted: int
    duplicates: int
    violations: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"{self.tasks} tasks, {self.outcomes} outcomes, {self.succeeded} with exactly one SUCCESS; "
            f"{self.attempts} attempts, at most {self.most_attempts} of one task, {self.interrupted} "
            f"interrupted, {self.duplicates} begun twice; {len(self.violations)} violations"
        )


def examine(tasks: TaskService, submitted: Sequence[Submitted[Done]], lines: Iterable[Line], *, kills: int) -> Findings:
    """Check every submitted task against its history and the log; `kills` counts what was killed or stopped."""
    seen = list(lines)
    by_task: defaultdict[str, list[Line]] = defaultdict(list)
    for line in seen:
        by_task[line.task_id].append(line)
    violations: list[str] = []
    heads: list[Task] = []
    succeeded = 0
    for each in submitted:
        head = tasks.reads.get(each.task_id)
        rows = rows_of(tasks, each.task_id)
        wrong = [*_history(head, rows), *_work(by_task[each.task_id]), *_result(head, each, by_task[each.task_id])]
        violations += [f"{each.task_id}: {what}" for what in wrong]
        succeeded += sum(row.status is Status.SUCCESS for row in rows) == 1
        heads.append(head)
    attempts = sum(head.attempt_count for head in heads)
    if attempts - len(heads) > kills:
        violations.append(f"{attempts - len(heads)} attempts too many for {kills} kills")
    ours = {head.task_id for head in heads}
    later = tasks.clock() + timedelta(days=1)
    violations += [
        f"{entry.task_id}: still due" for entry in tasks.reads.store.due(later, limit=1_000) if entry.task_id in ours
    ]
    violations += [f"{task_id}: has work but was not submitted" for task_id in by_task.keys() - ours]
    starts = Counter((line.task_id, line.attempt) for line in seen if line.what == START)
    ends = {(line.task_id, line.attempt) for line in seen if line.what == END}
    return Findings(
        tasks=len(submitted),
        outcomes=sum(head.is_terminal for head in heads),
        succeeded=succeeded,
        attempts=attempts,
        most_attempts=max(head.attempt_count for head in heads),
        interrupted=len(starts.keys() - ends),
        duplicates=sum(count > 1 for count in starts.values()),
        violations=tuple(violations),
    )


def _history(head: Task, rows: Sequence[Task]) -> Iterator[str]:
    """Check that a history breaks no rule and ends with a SUCCESS."""
    if head.status is not Status.SUCCESS:
        yield f"ended as {head.status} {head.error_code}"
    yield from broken_rules(head, rows)


def _work(lines: Sequence[Line]) -> Iterator[str]:
    """Check that each attempt begins once, runs in one process, and ends before the next one begins."""
    for attempt, starts in Counter(line.attempt for line in lines if line.what == START).items():
        if starts > 1:
            yield f"attempt {attempt} began {starts} times"
    processes = {(line.attempt, line.pid) for line in lines}
    if len(processes) != len({line.attempt for line in lines}):
        yield f"more than one process ran an attempt: {sorted(processes)}"
    order = [line.attempt for line in lines]
    if order != sorted(order):
        yield f"attempts overlap: {order}"


def _result(head: Task, submitted: Submitted[Done], lines: Sequence[Line]) -> Iterator[str]:
    """Check that the caller gets the result of the attempt in the record, and that this attempt did the work."""
    if submitted.handle.outcome() is None:
        yield "its completion has no outcome"
        return
    done = submitted.handle.wait()
    if done is None or done.attempt != head.attempt_count:
        yield f"the result {done} is not of attempt {head.attempt_count}"
    elif Line(head.task_id, done.attempt, done.pid, END) not in lines:
        yield f"the result {done} has no END line"
