"""A dispatch queue that notes what is sent, and fails on demand."""

from dataclasses import dataclass, field
from typing import Final

from delegation.tasks.errors import StoreUnavailable

REFUSED: Final = StoreUnavailable("the queue did not accept the message")


@dataclass
class Queue:
    """`sent` has the dispatches in order; while there is `trouble`, sending raises it."""

    sent: list[tuple[str, int]] = field(default_factory=list)
    trouble: Exception | None = None

    def send(self, task_id: str, n: int, *, correlation_id: str | None = None) -> None:
        if self.trouble is not None:
            raise self.trouble
        self.sent.append((task_id, n))
