"""Under which Idempotency-Key a drop runs, as far as its record has to know."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from delegation.gateway.drop.tombstones import Tombstone

_CLOCK_DRIFT: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class DropKey:
    """The key's scope, when its first request reserved it, and whether an earlier request had it already.

    This request arrived at `arrived`. `hold` has it keep the key, and raises MutationInProgress if another one has it.
    """

    scope: str
    since: datetime
    is_repeat: bool
    arrived: datetime
    hold: Callable[[], None]

    def is_of(self, record: Tombstone, caller: str) -> bool:
        """Return whether a request with this key put the record.

        Of a record without a scope, which an earlier release put, the caller and the time decide.
        """
        if record.scope is not None:
            return record.scope == self.scope
        return record.caller == caller and record.created_at >= self.since - _CLOCK_DRIFT
