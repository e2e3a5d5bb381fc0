"""Stores that each break one promise of writing."""

import json
import threading
from dataclasses import replace
from decimal import Decimal

from delegation.tasks.contract.support import THREADS
from delegation.tasks.errors import RevisionConflict, StaleTask, TaskExists
from delegation.tasks.life.model import Task
from delegation.tasks.stores.base import Advance, Create, Expect, Revise, TaskChange
from delegation.tasks.stores.memory import MemoryTaskStore


class UnconditionalPut(MemoryTaskStore):
    def _move(self, before: Task, after: Task, *, row: bool) -> Task:
        self._heads[before.task_id] = after
        if row:
            self._rows.setdefault(before.task_id, {})[after.version] = after.evolve(due_at=None)
        return after


class NoRow(MemoryTaskStore):
    def _move(self, before: Task, after: Task, *, row: bool) -> Task:
        return super()._move(before, after, row=False)


class NumbersWithinDetails(MemoryTaskStore):
    """Returns numbers within a detail as DynamoDB's client has them."""

    def get(self, task_id: str) -> Task | None:
        task = super().get(task_id)
        if task is None:
            return None
        return task.evolve(details=json.loads(json.dumps(dict(task.details)), parse_int=Decimal))


class OnlyTheLastRow(MemoryTaskStore):
    def apply(self, change: TaskChange) -> Task:
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
    """Compares the revision alone, so it cannot report that the version changed."""

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
    def apply(self, change: TaskChange) -> Task:
        try:
            return super().apply(change)
        except (StaleTask, RevisionConflict, TaskExists) as refusal:
            raise type(refusal)(refusal.task_id, None) from refusal


class RevisedRow(MemoryTaskStore):
    def _move(self, before: Task, after: Task, *, row: bool) -> Task:
        return super()._move(before, after, row=True)


class ExpectsNothing(MemoryTaskStore):
    def apply(self, change: TaskChange) -> Task:
        return change.after if isinstance(change, Expect) else super().apply(change)


class ExpectsTheRevision(MemoryTaskStore):
    def apply(self, change: TaskChange) -> Task:
        if isinstance(change, Expect):
            head = self.get(change.after.task_id)
            if head is None or head.revision != change.after.revision:
                raise StaleTask(change.after.task_id, head)
        return super().apply(change)


class ExpectWrites(MemoryTaskStore):
    def apply(self, change: TaskChange) -> Task:
        task = super().apply(change)
        if isinstance(change, Expect):
            self._heads[task.task_id] = task.evolve(revision=task.revision + 1)
        return task


class DropsUnknownDetails(MemoryTaskStore):
    def apply(self, change: TaskChange) -> Task:
        if isinstance(change, Advance | Revise):
            change = type(change)(change.before, change.after.evolve(details={}))
        return super().apply(change)


class SharedHeads(MemoryTaskStore):
    """Stores every task under one key."""

    def apply(self, change: TaskChange) -> Task:
        task = super().apply(change)
        for task_id in self._heads if isinstance(change, Advance) else ():
            self._heads[task_id] = task
        return task


class ChecksThenActs(MemoryTaskStore):
    """Reads the head outside the lock; a barrier makes racing threads read before any of them writes."""

    def __init__(self) -> None:
        super().__init__()
        self.meeting = threading.Barrier(THREADS)

    def apply(self, change: TaskChange) -> Task:
        task = change.after
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
