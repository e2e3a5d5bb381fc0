"""Errors of upkeep.

UpkeepError
  HealthUnavailable, HealthOutcomeUnknown, HealthChanged    the store of tables' health
  ScheduleInvalid                                           a window or a budget
"""

from polaris_common.errors import DelegationError


class UpkeepError(DelegationError):
    """Maintenance by policy could not be prepared."""

    code = "UPKEEP_FAILED"


class HealthUnavailable(UpkeepError):
    """The table with the health of tables did not answer; nothing was changed."""

    code = "HEALTH_UNAVAILABLE"
    retryable = True


class HealthOutcomeUnknown(UpkeepError):
    """A write of a table's health got no clear answer; repeating it is safe."""

    code = "HEALTH_OUTCOME_UNKNOWN"
    retryable = True


class HealthChanged(UpkeepError):
    """Another process wrote a table's health after it was read; read it again."""

    code = "HEALTH_CHANGED"
    retryable = True


class TooManyManifests(UpkeepError):
    """A table has more manifests that were not read before than one look reads; its health is not known."""

    code = "HEALTH_TABLE_TOO_LARGE"


class ScheduleInvalid(UpkeepError):
    """A window or a budget of upkeep cannot be used; the policy that it belongs to runs nothing."""

    code = "UPKEEP_SCHEDULE_INVALID"
