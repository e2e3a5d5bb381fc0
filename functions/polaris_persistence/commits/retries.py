"""How often and how long a contended commit is attempted."""

from dataclasses import dataclass

from polaris_common.backoff import exponential


@dataclass(frozen=True, slots=True)
class CommitRetries:
    """How often and how long a commit is attempted; the wait after attempt n is random, up to first_wait · 2^n seconds.

    `seconds` count from the call of `commit`, including the wait for other commits of the process; after them no
    further attempt starts. The default leaves time for one slow attempt before a gateway ends a request after 29 s
    (Amazon API Gateway, Quotas). They must be far below the grace period of maintenance, which deletes what no head
    names.

    A reference known for longer than `known_for` seconds is read again before the first attempt. A commit that waits
    for its turn reads the reference about every `poll` seconds, less often if calls are slow.
    """

    tries: int = 60
    seconds: float = 20.0
    first_wait: float = 0.005
    max_wait: float = 0.25
    known_for: float = 0.02
    poll: float = 0.025

    def wait(self, attempt: int, draw: float) -> float:
        """Return the seconds to wait after an attempt, counted from 0; `draw` is from [0, 1)."""
        return exponential(attempt + 1, self.first_wait, self.max_wait) * draw
