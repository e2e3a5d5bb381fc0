"""Mutations of the catalog performed at most once per key (Idempotency-Key proposal)."""

import hashlib
import json
import logging
import math
import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache
from typing import Final, Self
from uuid import NAMESPACE_URL, uuid5

from delegation.gateway.forwarding import Forwarder, GatewayCaller, KnownCatalogs, without
from delegation.gateway.keys.calls import KeyedCall, TimeLeft
from delegation.gateway.keys.rules import rule_for
from delegation.gateway.messages import (
    CatalogAnswer,
    CatalogRequest,
    GatewayError,
    MutationNotVerified,
    body_too_deep,
    compressed_body,
)
from delegation.gateway.routing import DEFAULT_PATHS, KEY_HEADER, CatalogPaths, KeyedMutation, canonical_path
from delegation.idempotency.keys import RULE, NotCanonicalizable, Scope, payload_hashes
from delegation.idempotency.mutations import AnswerSource, Mutation, Mutations, Performed
from delegation.idempotency.reservations import KeyPolicy, MutationInProgress
from delegation.identifiers import encoded_query

_KEY: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{0,254}")
"""Idempotency-Key proposal, "API Design"."""


def key_of(request: CatalogRequest) -> str:
    """Return the request's key. Raises GatewayError (INVALID_IDEMPOTENCY_KEY)."""
    given = [value for name, value in request.headers if name.lower() == KEY_HEADER.lower()]
    if len(given) != 1 or _KEY.fullmatch(given[0]) is None:
        raise GatewayError(
            f"{KEY_HEADER}: must be given once, with 1 to 255 letters, digits, '_', '.' or '-', and begin with a "
            "letter or digit, such as a UUID. Nothing was done",
            code="INVALID_IDEMPOTENCY_KEY",
            status=400,
        )
    return given[0]


def scope_of(request: CatalogRequest, key: str, *, principal: str, realm: str) -> Scope:
    """Return the key's scope: method, canonical path (which names the catalog), realm, and caller."""
    return Scope(principal, realm, request.method, f"/{canonical_path(request.path)}", key)


def catalog_key_of(scope: Scope, payload: Callable[[int], str]) -> str:
    """Return the key under which the catalog itself remembers a request. Polaris compares only the UUID that it records
    on the table, so the same key of another caller, operation or payload must become another UUID."""
    return str(uuid5(NAMESPACE_URL, f"{scope.id}/{payload(RULE)}"))


def payload_of(request: CatalogRequest, **more: str) -> Callable[[int], str]:
    """Return the payload's hashes by rule: of the query and the body, JSON in canonical form, others by their bytes.
    `more` is what headers add to it. Raises GatewayError (BODY_TOO_DEEP)."""
    known = {"query": request.query, **more}
    try:
        with suppress(ValueError, NotCanonicalizable):
            return payload_hashes({**known, "json": json.loads(request.body)})
    except RecursionError:
        raise body_too_deep() from None
    return payload_hashes({**known, "sha256": hashlib.sha256(request.body).hexdigest()})


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


def refusal_of_unverified(
    request: CatalogRequest, catalog: str, forward: Callable[[CatalogRequest], CatalogAnswer]
) -> CatalogAnswer:
    """Return the catalog's refusal of a token that the gateway does not accept; `catalog` may be empty. The mutation
    itself is not sent: if it succeeded, its client would rely on a key that nothing keeps. Raises GatewayError
    (CALLER_NOT_VERIFIED) if the catalog accepts the token."""
    query = encoded_query([("warehouse", catalog)] if catalog else [])
    headers = without(request.headers, KEY_HEADER, "content-type", "content-encoding")
    answer = forward(CatalogRequest("GET", "v1/config", query, headers))
    if answer.status in {401, 403, 419}:
        return answer
    raise GatewayError(
        "the gateway cannot verify the request's token with the configured public key, but the catalog did not refuse "
        f"the token (it answered {answer.status} to GET /v1/config). Nothing was done. Send the request without the "
        "Idempotency-Key, and have the operator set the catalog's current key (delegation:gateway-token-public-key or "
        "delegation:gateway-token-jwks-url)",
        code="CALLER_NOT_VERIFIED",
        status=500,
        kind="CommitStateUnknownException",
    )


def refusal_without_effect(refusal: CatalogAnswer, mutations: Mutations, scope: Scope | None) -> CatalogAnswer:
    """Return the refusal. Raises MutationNotVerified if an earlier call may have had an effect."""
    if scope is not None and mutations.may_have_run(scope):
        raise MutationNotVerified(
            f"the catalog refuses the request now ({refusal.status}), but an earlier call with its key may have been "
            "applied. Repeat the request with the same key once the catalog accepts it"
        )
    return refusal


logger = logging.getLogger(__name__)
REPLAYED: Final = "Idempotency-Replayed"
"""The header that marks a stored answer."""
_WRITE_SECONDS: Final = 6.5
"""The longest time to store the answer after the last call of the catalog."""


def catalog_answer(performed: Performed) -> CatalogAnswer:
    """Return the answer to a mutation, marked if it is a stored one."""
    answer = performed.answer
    marks = ((REPLAYED, "true"),) if performed.how is AnswerSource.REPLAYED else ()
    return CatalogAnswer(answer.status, (*answer.headers.items(), *marks), answer.body)


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
        """Perform or replay a mutation. Raises GatewayError (INVALID_IDEMPOTENCY_KEY, COMPRESSED_BODY, BODY_TOO_DEEP,
        CALLER_NOT_VERIFIED), KeyConflict, MutationInProgress, MutationNotVerified, OutOfTime, CatalogNotReached, and
        the errors of the catalog and of the store of keys."""
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
        done = {"operation": target.operation, "how": performed.how, "status": performed.answer.status}
        logger.info("performed a mutation with an idempotency key", extra={"action": "gateway", **done})
        return catalog_answer(performed)

    def refusal(self, request: CatalogRequest, caller: GatewayCaller, refused: CatalogAnswer) -> CatalogAnswer:
        """Return the refusal of a request for which nothing was done. Raises GatewayError (INVALID_IDEMPOTENCY_KEY),
        MutationNotVerified if an earlier call with its key may have had an effect, and the store's errors."""
        principal = caller.principal or caller.claimed
        if request.header(KEY_HEADER) is None or principal is None:
            return refused
        scope = scope_of(request, key_of(request), principal=principal, realm=caller.realm or self.realm)
        return refusal_without_effect(refused, self.mutations, scope)
