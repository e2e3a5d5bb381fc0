"""The catalog's mutations, at most once for each key (Idempotency-Key proposal)."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache
from typing import Final

from delegation.gateway.callers import GatewayCaller
from delegation.gateway.catalogs import KnownCatalogs
from delegation.gateway.errors import compressed_body
from delegation.gateway.forwarding import Forwarder
from delegation.gateway.keys.calls import KeyedCall, TimeLeft
from delegation.gateway.keys.identity import catalog_key_of, key_of, payload_of, scope_of
from delegation.gateway.keys.patience import LONGEST_ANSWER_SECONDS, Patience
from delegation.gateway.keys.rules.choice import rule_for
from delegation.gateway.keys.unverified import refusal_of_unverified, refusal_without_effect
from delegation.gateway.messages import CatalogAnswer, CatalogRequest
from delegation.gateway.routing import DEFAULT_PATHS, KEY_HEADER, CatalogPaths, KeyedMutation
from delegation.idempotency.mutations.reservation import KeyPolicy
from delegation.idempotency.mutations.service import How, Mutation, Mutations

logger = logging.getLogger(__name__)
REPLAYED: Final = "Idempotency-Replayed"
"""The header that marks a stored answer."""
_WRITE_SECONDS: Final = 6.5
"""What storing the answer may take after the last call of the catalog."""


def policy_for(timeout: float, lifetime: timedelta) -> KeyPolicy:
    """Return how long a call holds its key if a mutation may take `timeout` seconds. The margin is short because
    duplicates of a killed call wait that long; clocks of Lambda functions differ by less than a second (Amazon Time
    Sync Service)."""
    return KeyPolicy(lifetime=lifetime, lease=timedelta(seconds=timeout), clock_drift=timedelta(seconds=1))


@dataclass(frozen=True, slots=True)
class CatalogMutations:
    """Performs mutations through `forwarder`; `clock` and `lifetime` are those of `mutations`. `realm` applies to
    requests without a realm header. The catalog is called until `longest_seconds` after the request's arrival."""

    mutations: Mutations
    forwarder: Forwarder
    clock: Callable[[], datetime]
    patience: Patience
    realm: str
    lifetime: timedelta
    paths: CatalogPaths = DEFAULT_PATHS
    catalogs: KnownCatalogs | None = None
    longest_seconds: float = LONGEST_ANSWER_SECONDS - _WRITE_SECONDS

    def perform(self, request: CatalogRequest, caller: GatewayCaller, mutation: KeyedMutation) -> CatalogAnswer:
        """Perform or replay a mutation.

        Raises GatewayError (INVALID_IDEMPOTENCY_KEY, COMPRESSED_BODY, BODY_TOO_DEEP, CALLER_NOT_VERIFIED), KeyConflict,
        MutationInProgress, MutationNotVerified, OutOfTime, CatalogNotReached, and the errors of the catalog and of the
        store of keys.
        """
        key, target = key_of(request), mutation.target
        if request.header("Content-Encoding") not in {None, "", "identity"}:
            raise compressed_body()
        realm = caller.realm or self.realm
        if caller.principal is None:
            claimed = None if caller.claimed is None else scope_of(request, key, principal=caller.claimed, realm=realm)
            refusal = refusal_of_unverified(request, target.catalog, self.forwarder.forward)
            return refusal_without_effect(refusal, self.mutations, claimed)
        scope = scope_of(request, key, principal=caller.principal, realm=realm)
        refused = None if self.catalogs is None else self.catalogs.refusal(request, target, caller.realm)
        if refused is not None:
            return refusal_without_effect(refused, self.mutations, scope)
        time_left = TimeLeft(self.patience.monotonic() + self.longest_seconds, self.patience.monotonic)
        rule, payload = rule_for(target, request, self.paths), payload_of(request)
        known = self.catalogs if rule.of_recorded is not None else None
        is_kept = known is not None and known.keeps_keys(target, caller.realm)
        catalog_key = catalog_key_of(scope, payload) if is_kept else None
        if rule.of_recorded is not None and not is_kept:
            rule = replace(rule, before=())
        call = KeyedCall(request, target, rule, self.forwarder, self.clock, time_left, catalog_key)
        performed = self.patience.perform(
            self.mutations,
            Mutation(
                scope=scope,
                payload_hash=payload,
                run=call.run,
                verify=call.verify,
                observe=cache(call.observe),
                restore=call.restore,
            ),
            until=time_left.until,
        )
        answer = performed.answer
        done = {"operation": target.operation, "how": performed.how, "status": answer.status}
        logger.info("performed a mutation by its key", extra={"action": "gateway", **done})
        marks = ((REPLAYED, "true"),) if performed.how is How.REPLAYED else ()
        return CatalogAnswer(answer.status, (*answer.headers.items(), *marks), answer.body)

    def refusal(self, request: CatalogRequest, caller: GatewayCaller, refused: CatalogAnswer) -> CatalogAnswer:
        """Return the refusal of a request for which nothing was done. Raises GatewayError (INVALID_IDEMPOTENCY_KEY),
        MutationNotVerified if an earlier call with its key may have had an effect, and the errors of the store of
        keys."""
        principal = caller.principal or caller.claimed
        if request.header(KEY_HEADER) is None or principal is None:
            return refused
        scope = scope_of(request, key_of(request), principal=principal, realm=caller.realm or self.realm)
        return refusal_without_effect(refused, self.mutations, scope)
