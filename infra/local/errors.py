"""The errors of starting and running the local stack."""

from polaris_common.errors import DelegationError


class LocalStackError(DelegationError):
    """The base of the local stack's errors; their messages are for the person at this machine."""

    code = "LOCAL_STACK"
    next_step = "Correct what the message names, then run the same command again."


class CannotStartError(LocalStackError):
    """A part of the stack did not start; the reason states what to do."""

    code = "LOCAL_STACK_START"

    def __init__(self, part: str, reason: str) -> None:
        super().__init__(f"{part} did not start: {reason}")
        self.part = part
        self.reason = reason


class UnavailableError(LocalStackError):
    """A part cannot run because a program is missing or does not work; the stack may use a stand-in."""

    code = "LOCAL_STACK_UNAVAILABLE"


class PolarisUnusable(LocalStackError):
    """A given Polaris cannot be used; the reason states what is wrong, the advice what to change."""

    code = "LOCAL_STACK_POLARIS"

    def __init__(self, url: str, reason: str, advice: str) -> None:
        self.problem = f"the Polaris at {url} cannot be used: {reason}"
        self.advice = advice
        super().__init__(f"{self.problem}; {advice}")
