"""The record of all writes and deletes, and the invariants checked after each."""

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime, timedelta

from delegation.idempotency.store import StoredAnswer
from delegation.tasks.errors import RevisionConflict, StaleTask, TaskExists
from delegation.tasks.life.model import Status, Task
from delegation.tasks.life.policy import Policies
from delegation.tasks.pauses import PAUSED
from delegation.tasks.stores.base import Adopt, Advance, Expect, Revise, TaskChange
from delegation.tasks.work import maintenance
from delegation.tasks.work.attempt_context import CHECK_EVERY
from delegation.tasks.work.maintenance import MaintenanceReport
from tests.faults.simulator.scheduler import Simulation
from tests.faults.simulator.stores import SharedStore
from tests.faults.simulator.work import Job

ARROWS = {
    "SUBMITTED": {"ACQUIRING_RESOURCES", "RUNNING", "FAILURE"},
    "ACQUIRING_RESOURCES": {"RUNNING", "RETRY_SCHEDULED", "FAILURE"},
    "RUNNING": {"SUCCESS", "RETRY_SCHEDULED", "FAILURE"},
    "RETRY_SCHEDULED": {"ACQUIRING_RESOURCES", "RUNNING", "FAILURE"},
    "SUCCESS": {"SUBMITTED"},
    "FAILURE": {"SUBMITTED"},
}
"""The transitions of docs/architecture/tasks.md, independent of the code under test."""

HELD = (Status.ACQUIRING_RESOURCES, Status.RUNNING)
LONGEST_UNSEEN = timedelta(minutes=15)


class Violation(BaseException):
    """An invariant does not hold. No Exception: what a behavior records as the failure of its work must not hide it."""


class Ledger:
    """Checks one store."""

    def __init__(self, store: SharedStore, policies: Policies, world: Simulation, jobs: Mapping[str, Job]) -> None:
        self.store = store
        self.policies = policies
        self.world = world
        self.jobs = jobs
        self.written: dict[str, list[Task]] = defaultdict(list)
        self.rows: dict[str, list[Task]] = defaultdict(list)
        self.forgotten: dict[str, int] = defaultdict(int)
        self.nonces: set[str] = set()
        self.deletes: dict[str, int] = defaultdict(int)
        self.accepted: set[str] = set()
        self.seen: list[Task] = []
        self.moved_at: dict[str, datetime] = {}
        self.removed_ids: set[str] = set()
        self.final: dict[str, StoredAnswer] = {}
        self.lives: list[list[Task]] = []
        self.happened: set[str] = set()
        self.newer: Task | None = None
        self.refused_starts: set[tuple[str, int]] = set()
        self.worked: set[tuple[str, int]] = set()
        self.began: dict[tuple[str, datetime], int] = {}

    # ---- writes

    def applied(self, change: TaskChange, now: datetime) -> None:
        """Check a change that was applied, unless it is a repetition."""
        if isinstance(change, Expect):
            return
        task = change.after
        if task.nonce in self.nonces:
            return
        self.nonces.add(task.nonce)
        former = self.written[task.task_id]
        before = former[-1] if former else None
        revision = before.revision + 1 if before else 1
        self._require(task.revision == revision, task, f"revision {task.revision} instead of {revision}")
        former.append(task)
        steps = change.rows if isinstance(change, Advance) else (task,)
        if not isinstance(change, Revise | Adopt):
            self.moved_at[task.task_id] = now
            self.rows[task.task_id] += [step.row for step in steps]
        for step in steps:
            self._check_step(before, step)
            self._check_jobs(step)
            self._check_refusal(before, step)
            self._check_pause(before, step)
            self._check_budget(step)
            self._check_family(step)
            self._check_maintenance(step)
            before = step
        self._check_stored(task, now)

    def refused(self, change: TaskChange, error: Exception) -> None:
        """Check a change that was refused."""
        task = change.after
        only_expects = isinstance(change, Expect) or (isinstance(change, Adopt) and change.only_expects)
        if only_expects or task.nonce not in self.nonces:
            return
        if isinstance(change, Revise | Adopt) and self.written[task.task_id][-1].nonce != task.nonce:
            return  # overwritten since; the writer reads the task again
        if isinstance(error, TaskExists | StaleTask | RevisionConflict):
            raise Violation(f"write {task.nonce} was applied and answered as {type(error).__name__}")

    def _check_step(self, before: Task | None, after: Task) -> None:
        if before is None:
            self._require(after.version == 1, after, "the first version is not 1")
            return
        moved = after.version != before.version
        self._require(after.version - before.version in (0, 1), after, f"version {before.version} → {after.version}")
        if moved:
            legal = after.status.value in ARROWS[before.status.value]
            self._require(legal, after, f"{before.status} → {after.status} is not a legal transition")
        else:
            self._require(after.status is before.status, after, f"{before.status} → {after.status} without a version")
            self._require(not after.is_terminal, after, "an outcome was rewritten")
        if moved and before.is_terminal and after.recurrence_seconds is not None:
            self.happened.add("recurred")
        if not moved and before.lease.owner != after.lease.owner:
            self.happened.add("continued")
        acquired = moved and after.status is Status.ACQUIRING_RESOURCES
        grown = after.attempt_count - before.attempt_count
        self._require(grown == (1 if acquired else 0), after, f"attempt {before.attempt_count} → {after.attempt_count}")
        self._require(after.dispatches.count >= before.dispatches.count, after, "the dispatch count decreased")
        if before.is_terminal and moved:
            self.deletes[after.task_id] = 0 if after.effects_began_ts is None else self.deletes[after.task_id]

    def _check_jobs(self, task: Task) -> None:
        """The job of an attempt that ends without an outcome has ended, or was cancelled before."""
        if task.is_held or task.error_code not in {"LOST", "EXECUTION_INTERRUPTED", "JOB_FAILED", "ATTEMPT_ENDED"}:
            return
        job = self.jobs.get(f"{task.task_id}-{task.attempt_count}")
        is_left = job is not None and job.is_active and not job.late
        self._require(not is_left, task, f"{task.error_code}, and job run {job and job.name} is active")
        if job is not None and job.state == "CANCELLING":
            self.happened.add("job ended")

    def _check_refusal(self, before: Task | None, task: Task) -> None:
        """A start that Lambda refused is excused, and no attempt that worked is taken for one."""
        attempt = (task.task_id, task.attempt_count)
        if before is None or task.error_code == before.error_code:
            return
        if task.error_code == "START_REFUSED":
            self._require(attempt not in self.worked, task, "excused as a refused start, after it had worked")
            grown = (task.attempts_excused - before.attempts_excused, task.starts_refused - before.starts_refused)
            self._require(grown == (1, 1), task, "a refused start is not excused and counted")
        counted = task.error_code == "EXECUTION_INTERRUPTED" and attempt in self.refused_starts
        # An earlier try of the state may have begun the attempt, without an answer.
        begun = before.status is Status.RUNNING or attempt in self.worked
        self._require(not counted or begun, task, "a refused start counts")

    def _check_pause(self, before: Task | None, task: Task) -> None:
        """No task fails by a pause, and an attempt that a pause ended is excused."""
        if before is None or not before.is_held or task.is_held or task.error_code != PAUSED:
            return
        self.happened.add("paused")
        self._require(not task.is_terminal, task, "failed by a pause")
        grown = task.attempts_excused - before.attempts_excused
        self._require(grown == 1, task, "an attempt that a pause ended is not excused")

    def _check_budget(self, task: Task) -> None:
        limit = self.policies.retry(task.task_type).max_attempts
        self._require(task.unexcused_attempts <= limit, task, f"{task.unexcused_attempts} unexcused attempts")

    def _check_stored(self, task: Task, now: datetime) -> None:
        if task.status is Status.SUCCESS and task.task_type == "TABLE_PURGE":
            summary = f"attempt {task.attempt_count}"
            self._require(task.result_summary == summary, task, f"success without the summary of {summary}")
        if task.status is Status.FAILURE and task.effects_began_ts is None:
            self._require(self.deletes[task.task_id] == 0, task, "failed without effects, after deletes")
        if task.error_code == "DEADLINE_EXCEEDED":
            self._require(task.effects_began_ts is None, task, "stopped by a deadline after its work had effects")
        if not task.is_terminal:
            seen = task.due_at is not None and task.due_at <= now + LONGEST_UNSEEN
            self._require(seen, task, f"not due before {task.due_at}")
        self.check_store(task.task_id)

    def check_store(self, task_id: str) -> None:
        """Check that the head and the rows of a task are those written last."""
        first = self.forgotten[task_id] + 1
        written, rows = self.written[task_id], self.rows[task_id][first - 1 :]
        head = self.store._heads[task_id]
        self._require(head == written[-1], head, "the head is not the last write")
        stored = [row for _, row in sorted(self.store._rows[task_id].items())]
        self._require(stored == rows, head, "rows were lost or rewritten")
        versions = [row.version for row in stored]
        self._require(versions == list(range(first, first + len(stored))), head, "versions have a gap")
        self._require(head.version == versions[-1], head, f"the head has no row among {versions}")
        self._require(head.status is stored[-1].status, head, "the head and its row have two statuses")

    def _check_family(self, task: Task) -> None:
        """A parent ends after its children, with their result."""
        if (
            not task.family.children
            or task.error_code not in {None, "CHILD_FAILED", "CANCELLED"}
            or not task.is_terminal
        ):
            return
        adopted = self._adopted(task)
        children = [self.store._heads[child] for child in adopted if child in self.store._heads]
        lost = [
            child
            for child, attempt in adopted.items()
            if attempt == task.result_attempt and child not in self.store._heads and child not in self.removed_ids
        ]
        self._require(not lost or task.status is not Status.SUCCESS, task, f"succeeded without its children {lost}")
        open_ = [child.task_id for child in children if not child.is_terminal]
        self._require(not open_, task, f"ended before its children {open_}")
        failed = any(child.status is Status.FAILURE for child in children)
        self.happened.add("reunited")
        if task.error_code != "CANCELLED":
            self._require(failed == (task.status is Status.FAILURE), task, "its result is not its children's")

    def _adopted(self, task: Task) -> dict[str, int]:
        """The children of a task's present submission, and the attempt that adopted each last."""
        linked = self.store._children.get(task.task_id, {}).values()
        return {child.task_id: child.attempt for child in linked if child.attempt > (task.family.attempts_before or 0)}

    def _check_maintenance(self, task: Task) -> None:
        """Maintenance reports the tasks that it could not read, and succeeds."""
        if task.task_type == maintenance.TASK_TYPE and task.status is Status.SUCCESS:
            report = MaintenanceReport.model_validate_json(task.result_extended or "")
            unreadable = () if self.newer is None else (self.newer.task_id,)
            self._require(report.unreadable_ids == unreadable, task, f"reported {report.unreadable_ids} as unreadable")
            self.happened.update({"passed over"} if unreadable else ())

    def removed(self, task: Task, now: datetime) -> None:
        """Check a removed task: it had ended before its retention began, and its parent has read the outcome."""
        task_id = task.task_id
        self._require(task == self.written[task_id][-1], task, "removed although it had changed")
        self._require(task.is_terminal, task, "removed without an outcome")
        age = now - task.last_status_change_ts + self.world.drift
        self._require(age >= self.policies.maintenance.retention, task, f"removed after {age}")
        parent = None if task.parent_id is None else self.store._heads.get(task.parent_id)
        is_read = parent is None or parent.is_terminal or task_id not in self._adopted(parent)
        self._require(is_read, task, "removed before its parent read the outcome")
        self._require(task_id not in self.store._rows, task, "removed without its rows")
        self.lives.append(self.rows.pop(task_id))
        self.nonces -= {version.nonce for version in self.written.pop(task_id)}
        self.removed_ids.add(task_id)
        self.happened.add("removed")

    def forgot(self, task_id: str, below: int, now: datetime) -> None:
        """Check removed rows: only of a recurring task, past retention, and never the newest."""
        for row in self.rows[task_id][self.forgotten[task_id] : below - 1]:
            self._require(row.recurrence_seconds is not None, row, "forgotten although it does not recur")
            age = now - row.last_status_change_ts + self.world.drift
            self._require(age >= self.policies.maintenance.retention, row, f"forgotten after {age}")
            self.forgotten[task_id] = row.version
            self.happened.add("forgotten")
        self.check_store(task_id)

    # ---- work and answers

    def begins(self, task: Task) -> None:
        """Check that work that never runs twice begins once in a submission, or again after it was handed over."""
        key = (task.task_id, task.received_timestamp)
        former = self.began.setdefault(key, task.attempt_count)
        self.began[key] = task.attempt_count
        ended = [row.error_code for row in self.rows[task.task_id] if row.attempt_count == former and not row.is_held]
        handed_over = ended in (["HANDED_OVER"], [PAUSED])  # a pause makes work hand itself over
        self._require(former == task.attempt_count or handed_over, task, f"runs again after {ended}")

    def works(self, task_id: str, attempt: int, who: str) -> Task:
        """Check work for a task: by the one lease holder, and never after its attempt was found lost.

        A holder may notice another end of its attempt a second later.
        """
        head = self.store._heads.get(task_id)
        if head is None:
            raise Violation(f"{who} works for {task_id}, which was removed")
        self._require(head.attempt_count == attempt, head, f"{who} works as attempt {attempt}: two holders")
        self._require(head.status in HELD or head.error_code != "LOST", head, f"{who} works for a lost attempt")
        self.worked.add((task_id, attempt))
        late = self.world.now - self.moved_at[task_id]
        self._require(head.status in HELD or late <= CHECK_EVERY, head, f"{who} works {late} after its attempt ended")
        return head

    def delete(self, task_id: str, attempt: int, who: str) -> None:
        """Check a delete: the task recorded the beginning of deletes before."""
        head = self.works(task_id, attempt, who)
        self._require(head.effects_began_ts is not None, head, f"{who} deletes before effects_began_ts")
        self.deletes[task_id] += 1

    def reported(self, outcome: Task) -> None:
        """Check an outcome that a caller read."""
        self._require(outcome.is_terminal, outcome, "reported as an outcome")
        self._require_stored(outcome)
        self.seen.append(outcome)

    def answered(self, key: str, task_id: str, answer: StoredAnswer, *, terminal: bool) -> None:
        """Check a final answer of a key: always the same, and that of an outcome of the task."""
        self.happened.add("replayed" if key in self.final else "answered")
        former = self.final.setdefault(key, answer)
        if former != answer:
            raise Violation(f"key {key[:8]} was answered {former} and then {answer}")
        rows = self.rows.get(task_id, [])
        recorded = {answer_of(row) for row in rows if row.is_terminal}
        if terminal and answer not in recorded and task_id not in self.removed_ids:
            raise Violation(f"key {key[:8]} was answered {answer}, which is not an outcome of {task_id}")

    # ---- at the end

    def check_end(self) -> None:
        """Check that no accepted task is lost, and that every reported outcome is stored."""
        for task_id in sorted(self.accepted):
            if task_id in self.removed_ids and task_id not in self.written:
                continue
            self._require(bool(self.written[task_id]), None, f"{task_id} was accepted and is not stored")
            head = self.store._heads[task_id]
            self._require(head.is_terminal, head, "did not end")
            self.check_store(task_id)
        for outcome in self.seen:
            self._require_stored(outcome)
        if self.newer is not None:
            kept = self.store._heads.get(self.newer.task_id)
            self._require(kept is self.newer, kept, "the unreadable task was changed")

    def _require_stored(self, outcome: Task) -> None:
        if outcome.task_id in self.removed_ids or outcome.version <= self.forgotten[outcome.task_id]:
            return
        row = self.store._rows[outcome.task_id].get(outcome.version)
        same = row is not None and row == outcome.evolve(due_at=None)
        self._require(same, row, f"the outcome {outcome.status} of version {outcome.version} is not stored")

    @staticmethod
    def _require(holds: bool, task: Task | None, what: str) -> None:
        if not holds:
            where = f"{task.task_id} v{task.version} r{task.revision} {task.status}: " if task else ""
            raise Violation(where + what)


def answer_of(outcome: Task) -> StoredAnswer:
    """Return the HTTP answer of an outcome; a transient error is a 5xx, which is not stored."""
    body = f"{outcome.task_id} v{outcome.version} {outcome.error_code}"
    if outcome.status is Status.SUCCESS:
        return StoredAnswer(200, body)
    return StoredAnswer(409 if outcome.error_code in {"CANCELLED", "PERMANENT"} else 502, body)
