"""Errors in what an operator or a policy says about when upkeep may run."""

from typing import ClassVar

from delegation.errors import DelegationError


class ScheduleInvalid(DelegationError):
    """A window or a budget of upkeep cannot be used; the policy that it belongs to runs nothing."""

    code: ClassVar[str] = "UPKEEP_SCHEDULE_INVALID"
