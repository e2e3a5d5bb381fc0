"""Stores with one promise broken each; the contract suite is worth something only if it catches every one."""

import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from delegation.tasks.errors import RevisionConflict, StaleTask, StoreUnavailable, TaskExists
from delegation.tasks.memory import MemoryTaskStore
from delegation.tasks.model import Task
from delegation.tasks.store import Advance, Change, Create, DueEntry, Expect, Page, Revise, TaskStore
from tests.contract import task_store_checks as checks
from tests.contract.task_store_checks import Check


class UnconditionalPut(MemoryTaskStore):
    def _move(self, before: Task, after: Task, *, row: bool) -> Task:
        self._heads[before.task_id] = after
        if row:
            self._rows.setdefault(before.task_id, {})[after.version] = after.evolve(due_at=None)
        return after


class NoRow(MemoryTaskStore):
    def _move(self, before: Task, after: Task, *, row: bool) -> Task:
        return super()._move(before, after, row=False)


class OnlyTheLastRow(MemoryTaskStore):
    def apply(self, change: Change) -> Task:
        return super().apply(replace(change, via=()) if isinstance(change, Advance) else change)


class CreateWithoutRow(MemoryTaskStore):
    def _create(self, task: Task) -> Task:
        created = super()._create(task)
        if created is task:
            self._rows[task.task_id] = {}
        return created


class RowBeforeTheCondition(MemoryTaskStore):
    def _move(self, before: Task, after: Task, *, row: bool) -> Task:
        if row:
            self._rows.setdefault(before.task_id, {}).setdefault(after.version, after.evolve(due_at=None))
        return super()._move(before, after, row=row)


class ForgottenRevision(MemoryTaskStore):
    def _move(self, before: Task, after: Task, *, row: bool) -> Task:
        head = self._heads.get(before.task_id)
        known = head is not None and head.version == before.version and head.nonce != after.nonce
        return super()._move(head if known and head else before, after, row=row)


class ForgottenRevisionOfHeadWrites(MemoryTaskStore):
    def _move(self, before: Task, after: Task, *, row: bool) -> Task:
        head = self._heads.get(before.task_id)
        known = not row and head is not None and head.version == before.version and head.nonce != after.nonce
        return super()._move(head if known and head else before, after, row=row)


class ForgottenVersion(MemoryTaskStore):
    """Compares the revision alone, so it cannot say that a task moved on."""

    def _move(self, before: Task, after: Task, *, row: bool) -> Task:
        try:
            return super()._move(before, after, row=row)
        except StaleTask as stale:
            raise RevisionConflict(stale.task_id, stale.stored) from stale


class ForgottenNonce(MemoryTaskStore):
    def _move(self, before: Task, after: Task, *, row: bool) -> Task:
        head = self._heads.get(before.task_id)
        if head is not None and head.nonce == after.nonce:
            raise StaleTask(before.task_id, head)
        return super()._move(before, after, row=row)


class NonceOfTheHeadOnly(MemoryTaskStore):
    def _move(self, before: Task, after: Task, *, row: bool) -> Task:
        head = self._heads.get(before.task_id)
        if head is not None and head.version != before.version and head.nonce != after.nonce:
            raise StaleTask(before.task_id, head)
        return super()._move(before, after, row=row)


class OverwritingCreate(MemoryTaskStore):
    def _create(self, task: Task) -> Task:
        self._heads.pop(task.task_id, None)
        return super()._create(task)


class ForgetfulCreate(MemoryTaskStore):
    def _create(self, task: Task) -> Task:
        stored = self._heads.get(task.task_id)
        if stored is not None:
            raise TaskExists(task.task_id, stored)
        return super()._create(task)


class SilentCreate(MemoryTaskStore):
    def _create(self, task: Task) -> Task:
        return self._heads.get(task.task_id) or super()._create(task)


class WinnerNotShown(MemoryTaskStore):
    def apply(self, change: Change) -> Task:
        try:
            return super().apply(change)
        except (StaleTask, RevisionConflict, TaskExists) as refusal:
            raise type(refusal)(refusal.task_id, None) from refusal


class RevisedRow(MemoryTaskStore):
    def _move(self, before: Task, after: Task, *, row: bool) -> Task:
        return super()._move(before, after, row=True)


class ExpectsNothing(MemoryTaskStore):
    def apply(self, change: Change) -> Task:
        return change.task if isinstance(change, Expect) else super().apply(change)


class ExpectsTheRevision(MemoryTaskStore):
    def apply(self, change: Change) -> Task:
        if isinstance(change, Expect):
            head = self.get(change.task.task_id)
            if head is None or head.revision != change.task.revision:
                raise StaleTask(change.task.task_id, head)
        return super().apply(change)


class ExpectWrites(MemoryTaskStore):
    def apply(self, change: Change) -> Task:
        task = super().apply(change)
        if isinstance(change, Expect):
            self._heads[task.task_id] = task.evolve(revision=task.revision + 1)
        return task


class HistoryWithoutStart(MemoryTaskStore):
    def history(self, task_id: str, *, after: int = 0, limit: int = 100) -> tuple[Task, ...]:
        return super().history(task_id, limit=limit)


class HistoryWithoutLimit(MemoryTaskStore):
    def history(self, task_id: str, *, after: int = 0, limit: int = 100) -> tuple[Task, ...]:
        return super().history(task_id, after=after)


class HistoryBackwards(MemoryTaskStore):
    def history(self, task_id: str, *, after: int = 0, limit: int = 100) -> tuple[Task, ...]:
        return super().history(task_id, after=after, limit=limit)[::-1]


class HeadAsAVersion(MemoryTaskStore):
    def get_version(self, task_id: str, version: int) -> Task | None:
        return self.get(task_id) if version == 0 else super().get_version(task_id, version)


class TerminalStaysDue(MemoryTaskStore):
    def __init__(self) -> None:
        super().__init__()
        self.last: dict[str, datetime] = {}

    def apply(self, change: Change) -> Task:
        task = super().apply(change)
        if task.due_at is not None:
            self.last[task.task_id] = task.due_at
        return task

    def due(self, now: datetime, *, limit: int = 100, shards: Collection[str] | None = None) -> Sequence[DueEntry]:
        found = [DueEntry(task_id, at) for task_id, at in self.last.items() if at <= now]
        return sorted(found, key=lambda entry: (entry.due_at, entry.task_id))[:limit]


class DueUnordered(MemoryTaskStore):
    def due(self, now: datetime, *, limit: int = 100, shards: Collection[str] | None = None) -> Sequence[DueEntry]:
        return sorted(super().due(now, limit=10**6, shards=shards), key=lambda entry: entry.task_id)[:limit]


class DueTooEarly(MemoryTaskStore):
    def due(self, now: datetime, *, limit: int = 100, shards: Collection[str] | None = None) -> Sequence[DueEntry]:
        return super().due(datetime.max.replace(tzinfo=now.tzinfo), limit=limit, shards=shards)


class DueTooLate(MemoryTaskStore):
    def due(self, now: datetime, *, limit: int = 100, shards: Collection[str] | None = None) -> Sequence[DueEntry]:
        return [entry for entry in super().due(now, limit=limit, shards=shards) if entry.due_at < now]


class DueWithoutLimit(MemoryTaskStore):
    def due(self, now: datetime, *, limit: int = 100, shards: Collection[str] | None = None) -> Sequence[DueEntry]:
        return super().due(now, limit=10**6, shards=shards)


class DueOfAllShards(MemoryTaskStore):
    def due(self, now: datetime, *, limit: int = 100, shards: Collection[str] | None = None) -> Sequence[DueEntry]:
        return super().due(now, limit=limit)


class HeadsWithoutCursor(MemoryTaskStore):
    def heads(self, *, cursor: str | None = None, limit: int = 100) -> Page:
        return super().heads(limit=limit)


class HeadsLoseThePageEnd(MemoryTaskStore):
    def heads(self, *, cursor: str | None = None, limit: int = 100) -> Page:
        page = super().heads(cursor=cursor, limit=limit + 1)
        return Page(page.tasks[:limit], page.tasks[-1].task_id if len(page.tasks) > limit else None)


class HeadsWithADanglingCursor(MemoryTaskStore):
    def heads(self, *, cursor: str | None = None, limit: int = 100) -> Page:
        page = super().heads(cursor=cursor, limit=limit)
        return Page(page.tasks, page.tasks[-1].task_id if page.tasks else None)


class HeadsBreakOnOne(MemoryTaskStore):
    """A page that holds a record of a newer release raises, as any read of that record does."""

    def heads(self, *, cursor: str | None = None, limit: int = 100) -> Page:
        page = super().heads(cursor=cursor, limit=limit)
        for one in page.unreadable:
            self.get(one.task_id)
        return page


class HeadsHideWhatTheyCannotRead(MemoryTaskStore):
    def heads(self, *, cursor: str | None = None, limit: int = 100) -> Page:
        page = super().heads(cursor=cursor, limit=limit)
        return Page(page.tasks, page.cursor)


class HeadsStopAtWhatTheyCannotRead(MemoryTaskStore):
    """Takes the cursor from the last task that it could read, so the page after it never comes, or comes twice."""

    def heads(self, *, cursor: str | None = None, limit: int = 100) -> Page:
        page = super().heads(cursor=cursor, limit=limit)
        more = page.cursor is not None and bool(page.tasks)
        return Page(page.entries, page.tasks[-1].task_id if more else None)


class DropsWhatItDoesNotKnow(MemoryTaskStore):
    def apply(self, change: Change) -> Task:
        if isinstance(change, Advance | Revise):
            change = type(change)(change.before, change.after.evolve(carried={}))
        return super().apply(change)


class RemovesTheHeadOnly(MemoryTaskStore):
    """Leaves the rows of a removed task behind."""

    def remove(self, task: Task) -> bool:
        with self.lock:
            return self._heads.pop(task.task_id, None) is not None


class RemovesWhateverStands(MemoryTaskStore):
    """Asks neither for the version nor for an outcome."""

    def remove(self, task: Task) -> bool:
        with self.lock:
            self._rows.pop(task.task_id, None)
            return self._heads.pop(task.task_id, None) is not None


class ForgetsTheLastRowToo(MemoryTaskStore):
    """Takes whatever is below, the head's own row with it."""

    def forget(self, task_id: str, below: int) -> int:
        with self.lock:
            rows = self._rows.get(task_id, {})
            return sum(rows.pop(version, None) is not None for version in range(below))


class ForgetsNothing(MemoryTaskStore):
    def forget(self, task_id: str, below: int) -> int:
        return max(0, min(below, len(self._rows.get(task_id, {}))) - 1)


class AsksForAnEmptyRange(MemoryTaskStore):
    """As DynamoDB refuses a BETWEEN whose ends are the wrong way round."""

    def forget(self, task_id: str, below: int) -> int:
        head = self.get(task_id)
        if head is not None and min(below, head.version) <= 1:
            raise StoreUnavailable("the table could not be read: ValidationException")
        return super().forget(task_id, below)


class SharedHeads(MemoryTaskStore):
    """Every task under one key."""

    def apply(self, change: Change) -> Task:
        task = super().apply(change)
        for task_id in self._heads if isinstance(change, Advance) else ():
            self._heads[task_id] = task
        return task


class ChecksThenActs(MemoryTaskStore):
    """Looks at the head outside the lock; a meeting point makes racing threads look before any of them writes."""

    def __init__(self) -> None:
        super().__init__()
        self.meeting = threading.Barrier(checks.THREADS)

    def apply(self, change: Change) -> Task:
        task = change.after if isinstance(change, Advance | Revise) else change.task
        head = self.get(task.task_id)
        self._meet()
        if isinstance(change, Create) and head is not None:
            raise TaskExists(task.task_id, head)
        if isinstance(change, Advance | Revise):
            if head is None or head.version != change.before.version:
                raise StaleTask(task.task_id, head)
            if head.revision != change.before.revision:
                raise RevisionConflict(task.task_id, head)
        with self.lock:
            self._heads[task.task_id] = task
            if isinstance(change, Create | Advance):
                self._rows.setdefault(task.task_id, {})[task.version] = task.evolve(due_at=None)
        return task

    def _meet(self) -> None:
        if threading.current_thread() is threading.main_thread():
            return
        try:
            self.meeting.wait(10)
        except threading.BrokenBarrierError:
            return


@dataclass(frozen=True)
class Broken:
    """A broken store and the promises that it breaks; the suite must notice each of them."""

    store: type[Any]
    breaks: tuple[Check, ...]

    def build(self) -> TaskStore:
        built: TaskStore = self.store()
        return built


BROKEN: tuple[Broken, ...] = (
    Broken(
        UnconditionalPut,
        (
            checks.advance_from_a_former_version_is_stale,
            checks.advance_from_a_version_that_does_not_exist_yet_is_stale,
            checks.advance_over_a_touched_head_is_a_revision_conflict,
            checks.advance_of_an_unknown_task_is_stale,
            checks.revise_of_a_touched_head_is_a_revision_conflict,
            checks.revise_of_a_former_version_is_stale,
            checks.revise_of_an_unknown_task_is_stale,
            checks.one_winner_per_version,
            checks.heartbeats_and_a_finish_do_not_overwrite_each_other,
        ),
    ),
    Broken(CreateWithoutRow, (checks.create_stores_head_and_first_version,)),
    Broken(OnlyTheLastRow, (checks.advance_over_several_versions_keeps_each_of_them,)),
    Broken(NoRow, (checks.advance_moves_the_head_and_keeps_every_row,)),
    Broken(RowBeforeTheCondition, (checks.advance_over_a_touched_head_is_a_revision_conflict,)),
    Broken(
        ForgottenRevision,
        (
            checks.advance_over_a_touched_head_is_a_revision_conflict,
            checks.revise_of_a_touched_head_is_a_revision_conflict,
        ),
    ),
    Broken(ForgottenRevisionOfHeadWrites, (checks.revise_of_a_touched_head_is_a_revision_conflict,)),
    Broken(ForgottenVersion, (checks.advance_from_a_former_version_is_stale,)),
    Broken(
        ForgottenNonce,
        (
            checks.advance_repeated_with_its_nonce_answers_as_before,
            checks.revise_repeated_with_its_nonce_answers_as_before,
        ),
    ),
    Broken(NonceOfTheHeadOnly, (checks.advance_is_recognised_below_a_later_head,)),
    Broken(
        OverwritingCreate,
        (
            checks.create_is_refused_with_the_task_that_exists,
            checks.create_is_refused_after_the_task_moved_on,
            checks.one_creator_per_task,
        ),
    ),
    Broken(ForgetfulCreate, (checks.create_repeated_with_its_nonce_answers_as_before,)),
    Broken(SilentCreate, (checks.create_is_refused_with_the_task_that_exists, checks.one_creator_per_task)),
    Broken(WinnerNotShown, (checks.advance_from_a_former_version_is_stale,)),
    Broken(RevisedRow, (checks.revise_rewrites_the_head_and_keeps_the_rows,)),
    Broken(ExpectsNothing, (checks.expect_refuses_another_version,)),
    Broken(ExpectsTheRevision, (checks.expect_asks_for_the_version_whatever_the_revision,)),
    Broken(ExpectWrites, (checks.expect_asks_for_the_version_whatever_the_revision,)),
    Broken(HistoryWithoutStart, (checks.history_pages_in_order_while_the_task_runs,)),
    Broken(HistoryWithoutLimit, (checks.history_pages_in_order_while_the_task_runs,)),
    Broken(HistoryBackwards, (checks.history_pages_in_order_while_the_task_runs,)),
    Broken(HeadAsAVersion, (checks.a_version_is_a_row_never_the_head,)),
    Broken(
        TerminalStaysDue,
        (checks.a_terminal_task_leaves_the_index, checks.due_follows_the_head_and_forgets_the_rows),
    ),
    Broken(
        DueUnordered,
        (
            checks.due_lists_what_is_due_oldest_first,
            checks.due_answers_at_most_the_limit_and_the_oldest_of_all_shards,
        ),
    ),
    Broken(DueTooEarly, (checks.a_rewritten_head_moves_within_the_index,)),
    Broken(DueTooLate, (checks.due_lists_what_is_due_oldest_first,)),
    Broken(DueWithoutLimit, (checks.due_answers_at_most_the_limit_and_the_oldest_of_all_shards,)),
    Broken(DueOfAllShards, (checks.due_of_some_shards_is_the_oldest_of_these,)),
    Broken(HeadsWithoutCursor, (checks.heads_pages_over_every_task_once,)),
    Broken(HeadsLoseThePageEnd, (checks.heads_pages_over_every_task_once,)),
    Broken(HeadsWithADanglingCursor, (checks.heads_of_an_exact_page_have_no_cursor,)),
    Broken(HeadsBreakOnOne, (checks.heads_tell_what_they_cannot_read,)),
    Broken(HeadsHideWhatTheyCannotRead, (checks.heads_tell_what_they_cannot_read,)),
    Broken(HeadsStopAtWhatTheyCannotRead, (checks.heads_tell_what_they_cannot_read,)),
    Broken(DropsWhatItDoesNotKnow, (checks.unknown_attributes_survive_every_rewrite,)),
    Broken(RemovesTheHeadOnly, (checks.remove_takes_rows_and_head_of_that_task_only,)),
    Broken(
        RemovesWhateverStands,
        (checks.remove_of_a_task_that_moved_on_is_refused, checks.remove_of_a_live_task_is_refused),
    ),
    Broken(ForgetsTheLastRowToo, (checks.forget_leaves_the_row_of_the_head,)),
    Broken(ForgetsNothing, (checks.forget_takes_old_rows_of_that_task_and_nothing_else,)),
    Broken(AsksForAnEmptyRange, (checks.forget_of_a_first_version_takes_nothing,)),
    Broken(SharedHeads, (checks.tasks_do_not_touch_each_other,)),
    Broken(
        ChecksThenActs,
        (checks.one_winner_per_version, checks.one_creator_per_task, checks.no_acknowledged_revision_is_lost),
    ),
)
