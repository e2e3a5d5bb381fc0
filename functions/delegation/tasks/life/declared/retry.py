"""Retries as a behavior declares them in code; the properties of its task type take precedence."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from delegation.tasks.life.outcomes import ErrorClass
from delegation.timestamps import LONGEST_DURATION
from polaris_common.errors import DelegationError


@dataclass(frozen=True, slots=True)
class Retry:
    """How often, how fast and after which errors attempts are retried.

    What is None follows `delegation.retry.default.*`, and `delegation.retry.TYPE.*` is stronger than all of it. With
    `on`, only these errors are retried. Without it all are, but those of `never` and each DelegationError that is not
    `retryable`.
    """

    attempts: int | None = None
    backoff: timedelta | None = None
    multiplier: float | None = None
    longest: timedelta | None = None
    jitter: bool | None = None
    on: tuple[type[Exception], ...] = ()
    never: tuple[type[Exception], ...] = ()

    def __post_init__(self) -> None:
        if self.attempts is not None and self.attempts < 1:
            raise ValueError(f"attempts: {self.attempts} is less than 1")
        if self.multiplier is not None and not 1 <= self.multiplier < math.inf:
            raise ValueError(f"multiplier: {self.multiplier} is not a number of at least 1")
        for name in ("backoff", "longest"):
            wait = getattr(self, name)
            if wait is not None and not timedelta(0) <= wait <= LONGEST_DURATION:
                raise ValueError(f"{name}: {wait} is not between nothing and {LONGEST_DURATION.days} days")

    def fields(self) -> Mapping[str, Any]:
        declared = {
            "max_attempts": self.attempts,
            "initial_backoff": self.backoff,
            "backoff_multiplier": self.multiplier,
            "max_backoff": self.longest,
            "jitter": self.jitter,
        }
        return {name: value for name, value in declared.items() if value is not None}

    def error_class(self, error: Exception) -> ErrorClass:
        """Return whether another attempt may help after this error of the work."""
        if self.on:
            retried = isinstance(error, self.on) and not isinstance(error, self.never)
        elif isinstance(error, DelegationError):
            retried = error.retryable and not isinstance(error, self.never)
        else:
            retried = not isinstance(error, self.never)
        return ErrorClass.TRANSIENT if retried else ErrorClass.PERMANENT


PLAIN_RETRY: Final = Retry()
"""Retries as the properties have them, after every error that another attempt may mend."""
