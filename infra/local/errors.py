"""What bringing up or running the local stack can fail with.

LocalStackError
├── CannotStart     a part did not come up; the reason says what to do
└── Unavailable     a program this machine lacks; the stack may use its stand-in instead
"""

from delegation.errors import DelegationError


class LocalStackError(DelegationError):
    """Something the local stack foresees; only the person at this machine ever reads it."""

    code = "LOCAL_STACK"


class CannotStartError(LocalStackError):
    """A part of the stack did not come up."""

    code = "LOCAL_STACK_START"

    def __init__(self, part: str, reason: str) -> None:
        super().__init__(f"{part} did not start: {reason}")
        self.part = part
        self.reason = reason


class UnavailableError(LocalStackError):
    """A part cannot run on this machine because a program it needs is missing or does not work."""

    code = "LOCAL_STACK_UNAVAILABLE"
