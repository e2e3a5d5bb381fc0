"""Node ids, leased through updateable objects (proposal, Allocating a node ID, Renewing a lease)."""

import secrets
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from delegation.persistence.backends.base import SYSTEM, ObjectKey
from delegation.persistence.errors import (
    BackendUnavailable,
    CommitOutcomeUnknown,
    LeaseExpired,
    NoFreeNode,
    StaleObject,
)
from delegation.persistence.ids.snowflake import EPOCH_MS, NODES, RESERVED_TIMESTAMPS, NodeLease, join_id
from delegation.persistence.objects.objects import Loaded, PersistedModel
from delegation.persistence.objects.types import ObjectType
from delegation.persistence.objects.updateable import Updateables

_ATTEMPT_AGAIN_MS: Final = 1_000
_LOOK_AT: Final = 32


class NodeHolder(PersistedModel):
    """Who holds a node id and until when, in milliseconds since EPOCH_MS; the id is free from then on."""

    holder: str
    until: int


NODE_TYPE: Final = ObjectType("node", NodeHolder, mutable=True)


@dataclass(frozen=True, slots=True)
class NodeLeasePolicy:
    """How long a node id is leased and how long before its end the lease is renewed."""

    duration_ms: int = 3_600_000
    renew_before_ms: int = 1_200_000

    def __post_init__(self) -> None:
        if not 0 < self.renew_before_ms < self.duration_ms:
            raise ValueError("a lease is renewed before it ends and after it began")


class NodeLeases:
    """The node id of this process: leased at the first use, renewed early, leased anew when it was lost.

    Call it for the lease held now (IdGenerator does, for every id): it talks to the store only when the lease is due
    for renewal or over. `now_ms` is the wall clock; `shuffled` puts node ids in random order.
    """

    def __init__(
        self,
        objects: Updateables,
        *,
        now_ms: Callable[[], int],
        shuffled: Callable[[Sequence[int]], Sequence[int]],
        policy: NodeLeasePolicy = NodeLeasePolicy(),
    ) -> None:
        self._objects = objects
        self._now_ms = now_ms
        self._shuffled = shuffled
        self._policy = policy
        self._lock = threading.Lock()
        self._held: tuple[NodeLease, Loaded[NodeHolder]] | None = None
        self._not_again_before = 0

    def __call__(self) -> NodeLease:
        """The lease held now, which ends in the future as far as this process can tell.

        Raises NoFreeNode, BackendUnavailable, and LeaseExpired if it ran out while the store was asked.
        """
        with self._lock:
            now = self._now()
            if self._held is None or now >= self._held[0].until:
                self._held = self._lease()
            elif now >= self._held[0].until - self._policy.renew_before_ms and now >= self._not_again_before:
                self._not_again_before = now + _ATTEMPT_AGAIN_MS
                self._renew(*self._held)
            lease = self._held[0]
            if self._now() >= lease.until:
                raise LeaseExpired(f"node {lease.node} was leased too late")
            return lease

    def release(self, last_id_timestamp: int) -> None:
        """Give the node id back early. No id with a timestamp above `last_id_timestamp` was or will be made with it."""
        with self._lock:
            if self._held is None:
                return
            lease, stored = self._held
            self._held = None
            until = max(last_id_timestamp + 1, lease.not_before)
            try:
                self._objects.update(stored, stored.value.model_copy(update={"until": until}))
            except (StaleObject, CommitOutcomeUnknown, BackendUnavailable):
                return  # It ends by itself.

    def _lease(self) -> tuple[NodeLease, Loaded[NodeHolder]]:
        nodes = self._shuffled(range(NODES))
        for start in range(0, len(nodes), _LOOK_AT):
            keys = {node: _key(node) for node in nodes[start : start + _LOOK_AT]}
            found = self._objects.read_many(keys.values(), NodeHolder)
            for node, key in keys.items():
                held = self._lease_if_free(node, key, found.get(key))
                if held:
                    return held
        raise NoFreeNode(f"all {NODES} node ids are leased")

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
            return None  # Somebody was faster; or the id stays unused until a lease that nobody holds is over.
        # Whoever held it before made ids below the end of that lease, whatever their clock said.
        not_before = stored.value.until if stored else RESERVED_TIMESTAMPS
        return NodeLease(node, not_before, value.until), held

    def _renew(self, lease: NodeLease, stored: Loaded[NodeHolder]) -> None:
        until = max(self._now() + self._policy.duration_ms, lease.until)
        value = stored.value.model_copy(update={"until": until})
        try:
            held = self._objects.update(stored, value)
        except StaleObject:
            # An earlier renewal without an answer was applied after all, or the id was taken over.
            self._look_again(lease, stored)
        except (BackendUnavailable, CommitOutcomeUnknown):
            return  # The lease goes on to its end as it is, and is renewed at a later call.
        else:
            self._held = NodeLease(lease.node, lease.not_before, until), held

    def _look_again(self, lease: NodeLease, stored: Loaded[NodeHolder]) -> None:
        try:
            found = self._objects.read(stored.key, NodeHolder)
        except BackendUnavailable:
            return
        if found and found.value.holder == stored.value.holder:
            self._held = NodeLease(lease.node, lease.not_before, found.value.until), found
        else:
            # Taken over: what is left of the lease is still ours alone (the next holder starts at its end).
            self._not_again_before = lease.until

    def _now(self) -> int:
        return self._now_ms() - EPOCH_MS


def _key(node: int) -> ObjectKey:
    # A timestamp among the reserved ones, so no generated id is ever the same (proposal, Allocating a node ID).
    return ObjectKey(SYSTEM, SYSTEM, NODE_TYPE.name, join_id(0, node, 0))
