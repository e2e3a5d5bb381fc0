"""The parameters of a removal of orphan files, stored as `task_payload`, and the task id made from them."""

from typing import ClassVar

from delegation.operations.orphans.behavior.names import PLAN_TASK_TYPE, TASK_TYPE
from delegation.removal.requests import TableWork
from delegation.wire.tables import ORPHAN_FILES


class TableOrphans(TableWork):
    """A removal of a known table's orphan files, with the table's state when the request was accepted."""

    operation: ClassVar[str] = ORPHAN_FILES
    work_task_type: ClassVar[str] = TASK_TYPE
    plan_task_type: ClassVar[str] = PLAN_TASK_TYPE
