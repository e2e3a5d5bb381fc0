"""IdempotencyStore in memory, under the lock of the task store whose changes it joins."""

from delegation.idempotency.errors import RecordConflict
from delegation.idempotency.record import Record
from delegation.idempotency.store import RecordWrite
from delegation.tasks.memory import MemoryTaskStore
from delegation.tasks.model import Task
from delegation.tasks.store import Change


class MemoryIdempotencyStore:
    """Records in a dictionary; faults are injected through the task store's hook."""

    def __init__(self, tasks: MemoryTaskStore) -> None:
        self._tasks = tasks
        self._records: dict[str, Record] = {}

    def get(self, scope: str) -> Record | None:
        """See IdempotencyStore.get."""
        self._tasks.fault("before get record")
        with self._tasks.lock:
            return self._records.get(scope)

    def put(self, write: RecordWrite) -> Record:
        """See IdempotencyStore.put."""
        self._tasks.fault("before put record")
        with self._tasks.lock:
            self._check(write)
            self._records[write.record.scope] = write.record
        self._tasks.fault("after put record")
        return write.record

    def accept(self, change: Change, write: RecordWrite) -> Task:
        """See IdempotencyStore.accept."""
        self._tasks.fault("before accept")
        with self._tasks.lock:
            if self._check(write):
                stored = self._tasks.get(write.record.task_id)
                if stored is not None:
                    return stored
            task = self._tasks.apply_locked(change)
            self._records[write.record.scope] = write.record
        self._tasks.fault("after accept")
        return task

    def _check(self, write: RecordWrite) -> bool:
        """Whether this very write was applied before; RecordConflict if another one was."""
        stored = self._records.get(write.record.scope)
        if stored is None:
            return False
        if stored.nonce == write.record.nonce:
            return True
        if write.replaces is None or stored.nonce != write.replaces.nonce:
            raise RecordConflict(stored)
        return False
