"""Node ids, leased through updateable objects (NoSQL persistence proposal, Allocating a node ID, Renewing a lease)."""

import logging
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from typing import Final

from polaris_persistence.backends.base import SYSTEM, ObjectKey
from polaris_persistence.errors import (
    BackendUnavailable,
    CommitOutcomeUnknown,
    CorruptObject,
    LeaseExpired,
    NoFreeNode,
    PersistenceError,
    StaleObject,
)
from polaris_persistence.ids.snowflake import EPOCH_MS, NODES, RESERVED_TIMESTAMPS, NodeLease, join_id
from polaris_persistence.objects.objects import Loaded, PersistedModel
from polaris_persistence.objects.types import ObjectType
from polaris_persistence.objects.updateable import Updateables

_LOG: Final = logging.getLogger(__name__)
LEASING: Final = "node-lease"
_RENEWAL_PAUSE_MS: Final = 1_000
_NODES_READ_AT_ONCE: Final = 32
_SHORTEST_WAIT_MS: Final = 100
_LONGEST_WAIT_MS: Final = 2_000


class NodeHolder(PersistedModel):
    """The lease holder of a node id and the end of its lease, in milliseconds since EPOCH_MS."""

    holder: str
    until: int


NODE_TYPE: Final = ObjectType("node", NodeHolder, mutable=True)


@dataclass(frozen=True, slots=True)
class NodeLeasePolicy:
    """How long a node id is leased, how long before its end a lease is renewed, and how long to wait for a free one."""

    duration_ms: int = 3_600_000
    renew_before_ms: int = 1_200_000
    wait_ms: int = 10_000

    def __post_init__(self) -> None:
        if not 0 < self.renew_before_ms < self.duration_ms:
            raise ValueError("renew_before_ms must be above 0 and below duration_ms")
        if self.wait_ms < 0:
            raise ValueError("wait_ms must not be negative")


SHORT_LIVED: Final = NodeLeasePolicy(duration_ms=300_000, renew_before_ms=100_000)
"""For processes that live for seconds or are frozen between requests, such as commands and Lambda functions. An id that
was not released is free after five minutes, so the 1,024 ids serve three new processes a second."""


class NodeLeases:
    """The node id of this process: leased at the first use, renewed early, leased again when it was lost.

    Calling it returns the present lease and calls the store only if the lease is due for renewal or has ended. `now_ms`
    is the wall clock; `shuffled` puts node ids in random order; `sleep` takes seconds.
    """

    def __init__(
        self,
        objects: Updateables,
        *,
        now_ms: Callable[[], int],
        shuffled: Callable[[Sequence[int]], Sequence[int]],
        policy: NodeLeasePolicy = NodeLeasePolicy(),
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._objects = objects
        self._now_ms = now_ms
        self._shuffled = shuffled
        self._policy = policy
        self._sleep = sleep
        self._lock = threading.Lock()
        self._held: tuple[NodeLease, Loaded[NodeHolder]] | None = None
        self._no_renewal_before = 0
        self._begun = False

    def begin(self) -> None:
        """Lease the first node in another thread, while this one reads what it needs before it makes an id.

        A call waits for that thread. What the thread raises the call raises; the next call tries again.
        """
        if self._begun:
            return
        self._begun = True
        # With the deadline of the caller.
        thread = threading.Thread(target=copy_context().run, args=(self._lease_early,), daemon=True, name=LEASING)
        thread.start()

    def _lease_early(self) -> None:
        with self._lock, suppress(PersistenceError):
            if self._held is None:
                self._held = self._lease_one([])

    def __call__(self) -> NodeLease:
        """Return the present lease. Raises NoFreeNode, BackendUnavailable, LeaseExpired if it ended meanwhile."""
        with self._lock:
            now = self._now()
            if self._held is None or now >= self._held[0].until:
                self._held = self._lease()
            elif now >= self._held[0].until - self._policy.renew_before_ms and now >= self._no_renewal_before:
                self._no_renewal_before = now + _RENEWAL_PAUSE_MS
                self._renew(*self._held)
            lease = self._held[0]
            if self._now() >= lease.until:
                raise LeaseExpired(f"the lease of node {lease.node} ended while the store was called. Try again")
            return lease

    def another(self, unusable: NodeLease) -> NodeLease:
        """Return the lease of another node, because the clock was set back before times that `unusable` has used.

        The old node stays leased until its end, so that no other process takes it early. Raises as a call.
        """
        with self._lock:
            if self._held is None or self._held[0].node == unusable.node:
                self._held = self._lease()
                self._no_renewal_before = 0
            return self._held[0]

    def release(self, last_id_timestamp: int) -> None:
        """Release the node id early; no id above `last_id_timestamp` was or will be made with it."""
        with self._lock:
            if self._held is None:
                return
            lease, stored = self._held
            self._held = None
            until = max(last_id_timestamp + 1, lease.not_before)
            try:
                self._objects.update(stored, stored.value.model_copy(update={"until": until}))
            except (StaleObject, CommitOutcomeUnknown, BackendUnavailable):
                return  # the lease ends at its time

    def _lease(self) -> tuple[NodeLease, Loaded[NodeHolder]]:
        """Lease a free node, waiting up to `wait_ms` for one."""
        waited = 0
        while True:
            ends: list[int] = []
            held = self._lease_one(ends)
            if held is not None:
                return held
            left = self._policy.wait_ms - waited
            if left <= 0:
                raise NoFreeNode(
                    f"all {NODES} node ids are still leased after a wait of {waited / 1_000:g} s. Stop processes, or "
                    "shorten their leases"
                )
            # Until the first lease ends; a released node is free earlier.
            first = min(ends, default=0) - self._now()
            pause = min(max(first, _SHORTEST_WAIT_MS), _LONGEST_WAIT_MS, left)
            self._sleep(pause / 1_000)
            waited += pause

    def _lease_one(self, ends: list[int]) -> tuple[NodeLease, Loaded[NodeHolder]] | None:
        """Lease a free node, None if there is none; the ends of the other leases are added to `ends`."""
        nodes = self._shuffled(range(NODES))
        for start in range(0, len(nodes), _NODES_READ_AT_ONCE):
            keys = {node: _key(node) for node in nodes[start : start + _NODES_READ_AT_ONCE]}
            try:
                found = self._objects.read_many(keys.values(), NodeHolder)
            except CorruptObject:
                found = self._readable(keys)
            for node, key in keys.items():
                held = self._lease_if_free(node, key, found.get(key))
                if held:
                    return held
            ends += [lease.value.until for lease in found.values()]
        return None

    def _readable(self, keys: dict[int, ObjectKey]) -> dict[ObjectKey, Loaded[NodeHolder]]:
        """Return the readable leases. The node of an unreadable one is removed, because its holder may live."""
        found = {}
        for node, key in list(keys.items()):
            try:
                lease = self._objects.read(key, NodeHolder)
            except CorruptObject as error:
                _LOG.warning("node id %d is not leased: %s", node, error)
                del keys[node]
                continue
            if lease is not None:
                found[key] = lease
        return found

    def _lease_if_free(
        self, node: int, key: ObjectKey, stored: Loaded[NodeHolder] | None
    ) -> tuple[NodeLease, Loaded[NodeHolder]] | None:
        now = self._now()
        if stored and now < stored.value.until:
            return None
        value = NodeHolder(holder=secrets.token_hex(8), until=now + self._policy.duration_ms)
        try:
            held = self._objects.update(stored, value) if stored else self._objects.insert(key, value)
        except (StaleObject, CommitOutcomeUnknown):
            return None  # another process was faster, or the node is unused until a lease without a holder ends
        # The former holder's ids are all below the end of that lease, whatever its clock.
        not_before = stored.value.until if stored else RESERVED_TIMESTAMPS
        return NodeLease(node, not_before, value.until), held

    def _renew(self, lease: NodeLease, stored: Loaded[NodeHolder]) -> None:
        until = max(self._now() + self._policy.duration_ms, lease.until)
        value = stored.value.model_copy(update={"until": until})
        try:
            held = self._objects.update(stored, value)
        except StaleObject:
            # An earlier renewal without an answer was applied after all, or the id was taken over.
            self._reconcile(lease, stored)
        except (BackendUnavailable, CommitOutcomeUnknown):
            return  # the lease is unchanged, and a later call renews it
        else:
            self._held = NodeLease(lease.node, lease.not_before, until), held

    def _reconcile(self, lease: NodeLease, stored: Loaded[NodeHolder]) -> None:
        try:
            found = self._objects.read(stored.key, NodeHolder)
        except BackendUnavailable:
            return
        if found and found.value.holder == stored.value.holder:
            self._held = NodeLease(lease.node, lease.not_before, found.value.until), found
        else:
            # Taken over: the rest of the lease is still exclusive, because the next holder starts at its end.
            self._no_renewal_before = lease.until

    def _now(self) -> int:
        return self._now_ms() - EPOCH_MS


def _key(node: int) -> ObjectKey:
    # A reserved timestamp, so that no generated id is equal (NoSQL persistence proposal, Allocating a node ID).
    return ObjectKey(SYSTEM, SYSTEM, NODE_TYPE.name, join_id(0, node, 0))
