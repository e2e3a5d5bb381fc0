"""Ids of 41 bits of milliseconds since 2025, 10 bits of node and 12 bits of sequence (NoSQL persistence proposal,
Polaris specific snowflake ID parameters).

No two ids are equal, whatever the clocks show. All ids of a node lease have a timestamp in [not_before, until) of that
lease, and the next lease of the same node starts at or after `until` (`ids.nodes`). For every id the clock is read
first and the lease second: a process that freezes in between uses an old timestamp inside its lease, never a new one
outside.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from polaris_persistence.errors import ClockRegressed, LeaseExpired

EPOCH_MS: Final = 1_735_689_600_000
"""2025-01-01T00:00:00Z in milliseconds since 1970."""
TIMESTAMP_BITS: Final = 41
NODE_BITS: Final = 10
SEQUENCE_BITS: Final = 12
NODES: Final = 1 << NODE_BITS
SEQUENCES: Final = 1 << SEQUENCE_BITS
RESERVED_TIMESTAMPS: Final = 1_000
"""Ids with a timestamp below this are not generated; they name objects that need a known id."""
_MOST_MOVES: Final = 3


@dataclass(frozen=True, slots=True)
class IdParts:
    """The parts of an id; `timestamp` is in milliseconds since EPOCH_MS."""

    timestamp: int
    node: int
    sequence: int


def made_at_ms(id_: int) -> int:
    """Return when an id was made by the clock of its process, in ms since 1970."""
    return EPOCH_MS + (id_ >> (NODE_BITS + SEQUENCE_BITS))


def join_id(timestamp: int, node: int, sequence: int) -> int:
    """Return the id of the parts. Raises ValueError if one does not fit its bits."""
    if not (0 <= timestamp < 1 << TIMESTAMP_BITS and 0 <= node < NODES and 0 <= sequence < SEQUENCES):
        raise ValueError(f"no id has timestamp {timestamp}, node {node} and sequence {sequence}: one exceeds its bits")
    return timestamp << (NODE_BITS + SEQUENCE_BITS) | node << SEQUENCE_BITS | sequence


@dataclass(frozen=True, slots=True)
class NodeLease:
    """The lease of a node id for the timestamps [not_before, until), in milliseconds since EPOCH_MS."""

    node: int
    not_before: int
    until: int


class IdGenerator:
    """Makes ids that increase as long as the clock does; thread-safe.

    `lease` returns the present lease and may renew it; `now_ms` is the wall clock in milliseconds since 1970; `sleep`
    takes seconds. It waits for a clock that is behind by at most `max_wait_ms`; for one further behind it uses another
    node, whose lease `another` returns for the unusable one.
    """

    def __init__(
        self,
        lease: Callable[[], NodeLease],
        *,
        now_ms: Callable[[], int],
        sleep: Callable[[float], None],
        max_wait_ms: int = 1_000,
        another: Callable[[NodeLease], NodeLease] | None = None,
    ) -> None:
        self._lease = lease
        self._now_ms = now_ms
        self._sleep = sleep
        self._max_wait_ms = max_wait_ms
        self._another = another
        self._lock = threading.Lock()
        self._last = IdParts(0, 0, 0)

    def __call__(self) -> int:
        """Return a new id. Raises LeaseExpired; ClockRegressed for a clock too far behind; ValueError from 2094 on."""
        with self._lock:
            waited = moves = 0
            while True:
                now = self._now_ms() - EPOCH_MS
                lease = self._lease()
                if now >= lease.until:
                    raise LeaseExpired(f"the lease of node {lease.node} ended {now - lease.until} ms ago")
                last = self._last
                same = lease.node == last.node
                sequence = last.sequence + 1 if same and now == last.timestamp else 0
                # Ids of another node differ anyway, so only the times of this one count.
                used = last.timestamp if same else 0
                behind = max(used, lease.not_before, RESERVED_TIMESTAMPS) - now
                if behind <= 0 and sequence < SEQUENCES:
                    self._last = IdParts(now, lease.node, sequence)
                    return join_id(now, lease.node, sequence)
                behind = max(behind, 1)
                if behind > self._max_wait_ms and self._another is not None and moves < _MOST_MOVES:
                    self._another(lease)
                    moves += 1
                    continue
                waited += behind
                if waited > self._max_wait_ms:
                    raise ClockRegressed(
                        f"the clock is more than {self._max_wait_ms} ms behind the last id. Correct the clock"
                    )
                self._sleep(behind / 1_000)

    @property
    def last_timestamp(self) -> int:
        """Return the timestamp of the newest id, in milliseconds since EPOCH_MS; 0 before the first."""
        with self._lock:
            return self._last.timestamp
