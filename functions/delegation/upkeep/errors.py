from polaris_common.errors import DelegationError


class UpkeepError(DelegationError):
    code = "UPKEEP_FAILED"


class HealthUnavailable(UpkeepError):
    """The health table did not answer. Nothing was changed."""

    code = "HEALTH_UNAVAILABLE"
    retryable = True


class HealthOutcomeUnknown(UpkeepError):
    """A write of a table's health got no clear answer. Repeating it is safe."""

    code = "HEALTH_OUTCOME_UNKNOWN"
    retryable = True


class HealthChanged(UpkeepError):
    """Another process wrote a table's health after it was read. Read it again."""

    code = "HEALTH_CHANGED"
    retryable = True


class TooManyManifests(UpkeepError):
    """A table has more unread manifests than one run reads, so its health is unknown."""

    code = "HEALTH_TABLE_TOO_LARGE"


class ScheduleInvalid(UpkeepError):
    """A window or budget of upkeep is invalid. Its policy runs nothing."""

    code = "UPKEEP_SCHEDULE_INVALID"
