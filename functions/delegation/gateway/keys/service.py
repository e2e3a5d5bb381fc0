"""Mutations of the catalog performed at most once for their keys (Idempotency-Key proposal)."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Final, Self
from urllib.parse import quote

from delegation.gateway.callers import GatewayCaller
from delegation.gateway.catalogs import KnownCatalogs
from delegation.gateway.errors import CallerNotVerified, CompressedBody, MutationNotVerified
from delegation.gateway.forwarding import Forwarder, without
from delegation.gateway.keys.calls import KeyedCall, TimeLeft
from delegation.gateway.keys.identity import key_of, payload_of, scope_of
from delegation.gateway.keys.rules.choice import rule_for
from delegation.gateway.messages import CatalogAnswer, CatalogRequest
from delegation.gateway.routing import DEFAULT_PATHS, KEY_HEADER, CatalogPaths, KeyedMutation
from delegation.idempotency.mutations.errors import MutationInProgress
from delegation.idempotency.mutations.reservation import KeyPolicy
from delegation.idempotency.mutations.service import How, Mutation, Mutations, Performed
from delegation.idempotency.scope import Scope

logger = logging.getLogger(__name__)
REPLAYED: Final = "Idempotency-Replayed"
"""The header that marks a stored answer."""
LONGEST_ANSWER_SECONDS: Final = 28.0
"""API Gateway answers 504 after 29 s (API Gateway Developer Guide, "Quotas for configuring and running a REST API")."""
_PAUSE_SECONDS: Final = 0.25


def policy_for(timeout: float, lifetime: timedelta) -> KeyPolicy:
    """Return how long a call holds its key if the catalog is given `timeout` seconds for a mutation.

    Short, because the duplicates of a call that was killed wait so long: clocks of Lambda functions differ by less than
    a second (Amazon Time Sync Service).
    """
    return KeyPolicy(lifetime=lifetime, lease=timedelta(seconds=timeout), clock_drift=timedelta(seconds=1))


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a duplicate waits for the call that holds its key before it is answered with 504, an unknown outcome.

    It waits until the holder has ended, or has lost the key.
    """

    longest_seconds: float
    sleep: Callable[[float], None] = time.sleep
    monotonic: Callable[[], float] = time.monotonic

    @classmethod
    def within(cls, timeout: float) -> Self:
        """Return the time that is left in an answer after the longest mutation."""
        return cls(max(0.0, LONGEST_ANSWER_SECONDS - 2 - timeout))


@dataclass(frozen=True, slots=True)
class CatalogMutations:
    """Performs mutations through `forwarder`; `clock` and `lifetime` are those of `mutations`.

    `realm` is that of requests without a realm header. A request with a key is answered in `longest_seconds`.
    """

    mutations: Mutations
    forwarder: Forwarder
    clock: Callable[[], datetime]
    patience: Patience
    realm: str
    lifetime: timedelta
    paths: CatalogPaths = DEFAULT_PATHS
    catalogs: KnownCatalogs | None = None
    longest_seconds: float = LONGEST_ANSWER_SECONDS - 1

    def perform(self, request: CatalogRequest, caller: GatewayCaller, mutation: KeyedMutation) -> CatalogAnswer:
        """Perform or replay a mutation.

        Raises InvalidKey, CompressedBody, KeyConflict, MutationInProgress, MutationNotVerified, OutOfTime,
        CatalogNotReached, CallerNotVerified, and the errors of the catalog and of the store of keys.
        """
        key, target = key_of(request), mutation.target
        if request.header("Content-Encoding") not in {None, "", "identity"}:
            raise CompressedBody
        realm = caller.realm or self.realm
        if caller.principal is None:
            claimed = None if caller.claimed is None else scope_of(request, key, principal=caller.claimed, realm=realm)
            return self._unverified(request, mutation, claimed)
        scope = scope_of(request, key, principal=caller.principal, realm=realm)
        refused = None if self.catalogs is None else self.catalogs.refusal(request, target, caller.realm)
        if refused is not None:
            return self._of_no_effect(refused, scope)
        time_left = TimeLeft(self.patience.monotonic() + self.longest_seconds, self.patience.monotonic)
        rule = rule_for(target, request, self.paths)
        call = KeyedCall(request, target, rule, self.forwarder, self.clock, time_left)
        performed = self._patiently(
            Mutation(
                scope=scope,
                payload_hash=payload_of(request),
                run=call.run,
                verify=call.verify,
                observe=cache(call.observe),
                restore=call.restore,
            ),
            time_left,
        )
        answer = performed.answer
        done = {"operation": target.operation, "how": performed.how, "status": answer.status}
        logger.info("performed a mutation by its key", extra={"action": "gateway", **done})
        marks = ((REPLAYED, "true"),) if performed.how is How.REPLAYED else ()
        return CatalogAnswer(answer.status, (*answer.headers.items(), *marks), answer.body)

    def _patiently(self, mutation: Mutation, time_left: TimeLeft) -> Performed:
        until = self.patience.monotonic() + self.patience.longest_seconds
        while True:
            try:
                return self.mutations.perform(mutation)
            except MutationInProgress:
                if self.patience.monotonic() + _PAUSE_SECONDS > until or time_left.is_over:
                    raise
                self.patience.sleep(_PAUSE_SECONDS)

    def _of_no_effect(self, refusal: CatalogAnswer, scope: Scope | None) -> CatalogAnswer:
        """Return a refusal of this call; raises MutationNotVerified if a call before it may have had an effect."""
        if scope is not None and self.mutations.may_have_run(scope):
            raise MutationNotVerified(
                f"the catalog refuses the request now ({refusal.status}), and an earlier call with its key may have "
                "been applied; repeat it with the same key when the catalog accepts it"
            )
        return refusal

    def _unverified(self, request: CatalogRequest, mutation: KeyedMutation, claimed: Scope | None) -> CatalogAnswer:
        """Return the catalog's refusal of a token that the gateway does not accept.

        The mutation itself is not sent: if the catalog accepted it, its client would rely on a key that nothing keeps.
        """
        catalog = mutation.target.catalog
        query = f"warehouse={quote(catalog, safe='')}" if catalog else ""
        headers = without(request.headers, KEY_HEADER, "content-type", "content-encoding")
        answer = self.forwarder.forward(CatalogRequest("GET", "v1/config", query, headers))
        if answer.status in {401, 403}:
            return self._of_no_effect(answer, claimed)
        raise CallerNotVerified(
            f"the gateway's key does not verify the request's token, and the catalog answers it with {answer.status}, "
            "so nothing was done; if the catalog accepts the token, send the request without the Idempotency-Key, and "
            "have the operator set the catalog's present key (delegation:gateway-token-public-key or "
            "delegation:gateway-token-jwks-url)"
        )
