"""The parameters of an expiry, stored as `task_payload`, and the task id made from them."""

from typing import ClassVar

from delegation.operations.behaviors.parameters import TableWork
from delegation.operations.expiry.behavior.kinds import KIND, PLAN_KIND
from delegation.wire.expiries import OPERATION


class TableExpiry(TableWork):
    """An expiry of a known table's snapshots, with the table's state when the request was accepted."""

    operation: ClassVar[str] = OPERATION
    work_kind: ClassVar[str] = KIND
    plan_kind: ClassVar[str] = PLAN_KIND
