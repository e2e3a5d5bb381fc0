"""The queries of each admission on DynamoDB, which take time on the hand-moved clock too."""

from collections import Counter
from collections.abc import Collection
from datetime import timedelta
from typing import Any

from tests.faults.drain.site import DispatchedTasks

LATENCY = timedelta(milliseconds=10)
"""Of one query, with which three of other shards run."""
_AT_ONCE = 4


class AdmissionReads:
    """Notes how many queries each admission of a site makes, and moves the clock by the time that they take."""

    def __init__(self, site: DispatchedTasks, dynamodb: Any) -> None:
        self.queries: list[int] = []
        self.admitted = 0
        self._calls: Counter[str] = Counter()
        repeatable, run = dynamodb.repeatable, site.inbox.admission.run

        def counted(operation: str, **arguments: Any) -> Any:
            self._calls[operation] += 1
            return repeatable(operation, **arguments)

        def timed(ended: Collection[str] = ()) -> int:
            before = self._calls["query"]
            started = int(run(ended))
            self.queries.append(self._calls["query"] - before)
            self.admitted += started
            return started

        queued_in = site.store.queued_in

        def slow(*arguments: Any, **named: Any) -> Any:
            before = self._calls["query"]
            page = queued_in(*arguments, **named)
            site.clock.advance(LATENCY * (self._calls["query"] - before) / _AT_ONCE)
            return page

        dynamodb.repeatable = counted
        site.inbox.admission.run = timed  # type: ignore[method-assign]
        site.store.queued_in = slow  # type: ignore[method-assign]

    @property
    def text(self) -> str:
        """The figures in one line."""
        ordered = sorted(self.queries)
        median = ordered[len(ordered) // 2]
        return f"{len(ordered)} admissions, {median} queries each (median), {ordered[-1]} at most"
