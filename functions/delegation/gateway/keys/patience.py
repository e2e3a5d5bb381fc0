import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Self

from delegation.idempotency.mutations.reservation import MutationInProgress
from delegation.idempotency.mutations.service import Mutation, Mutations, Performed

LONGEST_ANSWER_SECONDS: Final = 28.0
"""API Gateway answers 504 after 29 s (API Gateway Developer Guide, "Quotas for configuring and running a REST API")."""
_PAUSE_SECONDS: Final = 0.25


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a duplicate waits for the call that holds its key; then its outcome is unknown (504). It waits until the
    holder has ended or has lost the key."""

    longest_seconds: float
    sleep: Callable[[float], None] = time.sleep
    monotonic: Callable[[], float] = time.monotonic

    @classmethod
    def within(cls, timeout: float) -> Self:
        """Return the time left in an answer after the longest mutation."""
        return cls(max(0.0, LONGEST_ANSWER_SECONDS - 2 - timeout))

    def perform(self, mutations: Mutations, mutation: Mutation, *, until: float = math.inf) -> Performed:
        """Perform or replay a mutation; a duplicate only reads while another call holds the key. Raises
        MutationInProgress if that takes too long or, by `monotonic`, beyond `until`, and the errors of
        Mutations.perform."""
        until = min(until, self.monotonic() + self.longest_seconds)
        while True:
            try:
                return mutations.perform(mutation)
            except MutationInProgress:
                self._wait(mutations, mutation, until)

    def _wait(self, mutations: Mutations, mutation: Mutation, until: float) -> None:
        """Return when the key may be free. Raises MutationInProgress when the time is over."""
        while True:
            if self.monotonic() + _PAUSE_SECONDS > until:
                raise MutationInProgress
            self.sleep(_PAUSE_SECONDS)
            if not mutations.is_held(mutation.scope):
                return
