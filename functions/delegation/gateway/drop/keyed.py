"""Drops with purge under an Idempotency-Key: at most once per key, even if a table of the name is created again."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from delegation.gateway.app import PurgingDrops
from delegation.gateway.drop.caller import DropKey, wanted_uuid
from delegation.gateway.drop.sequence import TableDrops
from delegation.gateway.forwarding import GatewayCaller
from delegation.gateway.keys.service import (
    Patience,
    catalog_answer,
    key_of,
    payload_of,
    refusal_of_unverified,
    refusal_without_effect,
    scope_of,
)
from delegation.gateway.messages import CatalogAnswer, CatalogRequest, GatewayError, answer_of
from delegation.gateway.routing import KEY_HEADER
from delegation.idempotency.answers import MutationAnswer
from delegation.idempotency.keys import Scope
from delegation.idempotency.mutations import Mutation, MutationAttempt, Mutations
from delegation.identifiers import TableIdentifier


@dataclass(frozen=True, slots=True)
class KeyedDrops(PurgingDrops):
    """Drops tables at most once per key. Without a key it drops; an unverified caller with a key is refused. Duplicates
    wait for the first call according to `patience`; `realm` applies to requests without a realm header. A repeat after
    an unknown outcome is answered from the first call's record; without a record the drop runs again."""

    drops: TableDrops
    mutations: Mutations
    realm: str
    forward: Callable[[CatalogRequest], CatalogAnswer]
    patience: Patience
    clock: Callable[[], datetime]

    def drop(self, request: CatalogRequest, caller: GatewayCaller, identifier: TableIdentifier) -> CatalogAnswer:
        """Drop a table. Raises GatewayError (INVALID_IDEMPOTENCY_KEY, CALLER_NOT_VERIFIED), KeyConflict,
        MutationInProgress, MutationNotVerified, and the errors of the drop."""
        if request.header(KEY_HEADER) is None:
            return self.drops.drop(request, caller, identifier)
        key = key_of(request)
        realm = caller.realm or self.realm
        if caller.principal is None:
            claimed = None if caller.claimed is None else scope_of(request, key, principal=caller.claimed, realm=realm)
            refusal = refusal_of_unverified(request, identifier.catalog, self.forward)
            return refusal_without_effect(refusal, self.mutations, claimed)
        scope = scope_of(request, key, principal=caller.principal, realm=realm)
        call = _Call(self.drops, request, caller, identifier, scope, self.clock())
        mutation = Mutation(scope, _payload_of(request), run=call.performed, verify=call.earlier)
        return catalog_answer(self.patience.perform(self.mutations, mutation))


def _payload_of(request: CatalogRequest) -> Callable[[int], str]:
    """Return the payload's hashes; with another table's uuid the request is another one."""
    uuid = wanted_uuid(request)
    return payload_of(request) if uuid is None else payload_of(request, uuid=uuid)


@dataclass(frozen=True, slots=True)
class _Call:
    """A request's functions for a Mutation."""

    drops: TableDrops
    request: CatalogRequest
    caller: GatewayCaller
    identifier: TableIdentifier
    scope: Scope
    arrived: datetime

    def performed(self, attempt: MutationAttempt) -> MutationAnswer:
        attempt.require_time()
        try:
            return _stored(self.drops.drop(self.request, self.caller, self.identifier, self._key(attempt)))
        except GatewayError as error:
            return _refusal(error)

    def earlier(self, attempt: MutationAttempt) -> MutationAnswer | None:
        try:
            answer = self.drops.earlier(self.request, self.caller, self.identifier, self._key(attempt))
        except GatewayError as error:
            return _refusal(error)
        return None if answer is None else _stored(answer)

    def _key(self, attempt: MutationAttempt) -> DropKey:
        return DropKey(self.scope.id, attempt.began_at, attempt.number > 1, self.arrived, attempt.keep)


def _refusal(error: GatewayError) -> MutationAnswer:
    """Return the answer to store for the key. Raises errors that a repeat may not meet."""
    if error.status >= 500:
        raise error
    return _stored(answer_of(error))


def _stored(answer: CatalogAnswer) -> MutationAnswer:
    return MutationAnswer(answer.status, answer.body, dict(answer.headers))
