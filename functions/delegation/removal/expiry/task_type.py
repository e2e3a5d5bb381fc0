"""The task types of expiries as values (tasks.life.declared), their names and the fields of their records."""

from dataclasses import replace
from typing import Final

from pydantic import Field

from delegation.metrics import BYTES_DELETED, FILES_DELETED
from delegation.references import LOST_REFS
from delegation.removal.details import HandedDetails, PlanDetailRules, task_types_of
from delegation.tasks.life.lanes import Traits

TASK_TYPE: Final = "TABLE_EXPIRE_SNAPSHOTS"
"""The stored `task_type` of an expiry of snapshots."""

PLAN_TASK_TYPE: Final = "TABLE_EXPIRE_SNAPSHOTS_PLAN"
"""A dry run: it makes a plan, commits and deletes nothing, and has an id of its own."""

PREFIX: Final = "delegation.expiry."
"""The prefix of the operator's properties of expiries."""

ENDS_PLAN: Final = frozenset({"REF_LOST", "REFS_UNKNOWN", "EARLIER_PLAN_LOST", "COMMITS_FORESTALLED", "COMMIT_REFUSED"})
"""The codes of errors after which the files of a plan stay, and the next request makes another plan. After the last
two, whose commits were all refused, the table is unchanged."""

UPKEEP_PRIORITY: Final = 1
"""The priority of every expiry, below every purge's default, so that no drop waits for upkeep."""

UPKEEP: Final = Traits(priority=UPKEEP_PRIORITY)
"""What admission knows of every expiry."""

TASK_TYPES: Final = frozenset({TASK_TYPE, PLAN_TASK_TYPE})

BY_POLICY: Final = 2
"""The payload version of an expiry by policy. A release without policies does not run it."""


class ExpiryDetails(HandedDetails):
    """The published plan, its progress, and how many snapshots and refs the table no longer has."""

    snapshots_expired: int = Field(default=0, ge=0)
    refs_expired: int = Field(default=0, ge=0)


_work, _plan = task_types_of(
    PlanDetailRules(lambda: ExpiryDetails, ends_plan=ENDS_PLAN),
    TASK_TYPE,
    PLAN_TASK_TYPE,
    properties=PREFIX,
    requests="delegation.removal.expiry.requests:EXPIRY_FORM",
    known=UPKEEP,
    payload_version=BY_POLICY,
    counted={
        "snapshots_expired": None,
        "refs_expired": None,
        "files_deleted": FILES_DELETED,
        "bytes_deleted": BYTES_DELETED,
        "files_kept": None,
    },
)
EXPIRY: Final = replace(_work, folders=(LOST_REFS,))
EXPIRY_PLAN: Final = _plan
