"""Drops with purge under an Idempotency-Key: performed at most once for the key, also if the table is made anew."""

from dataclasses import dataclass
from functools import partial
from typing import Protocol

from delegation.gateway.answers import answer_of
from delegation.gateway.app import PurgingDrops
from delegation.gateway.callers import GatewayCaller
from delegation.gateway.drop.caller.key import DropKey
from delegation.gateway.errors import GatewayError
from delegation.gateway.keys.identity import key_of, payload_of, scope_of
from delegation.gateway.keys.service import REPLAYED
from delegation.gateway.messages import CatalogAnswer, CatalogRequest
from delegation.gateway.routing import KEY_HEADER
from delegation.idempotency.mutations.answer import MutationAnswer
from delegation.idempotency.mutations.service import How, Mutation, MutationAttempt, Mutations
from delegation.idempotency.scope import Scope
from delegation.identifiers import TableIdentifier


class ReconciledDrops(PurgingDrops, Protocol):
    """Drops whose records show what an earlier call did; implemented by gateway.drop.sequence.TableDrops."""

    def drop(
        self,
        request: CatalogRequest,
        caller: GatewayCaller,
        identifier: TableIdentifier,
        key: DropKey | None = None,
    ) -> CatalogAnswer:
        """See PurgingDrops.drop; a repeat with the same key is for the table that the first request judged."""

    def earlier(
        self, request: CatalogRequest, caller: GatewayCaller, identifier: TableIdentifier, key: DropKey
    ) -> CatalogAnswer | None:
        """Return the answer to a drop that was begun with the same key, None if it moved no table."""


@dataclass(frozen=True, slots=True)
class KeyedDrops(PurgingDrops):
    """See PurgingDrops; a request without a key, or of a caller that is not verified, is dropped as such.

    `realm` is that of requests without a realm header. A repeat whose first call had an unknown outcome is answered by
    the record of the drop that this call began; without one the drop runs again.
    """

    drops: ReconciledDrops
    mutations: Mutations
    realm: str

    def drop(self, request: CatalogRequest, caller: GatewayCaller, identifier: TableIdentifier) -> CatalogAnswer:
        """See PurgingDrops.drop; raises InvalidKey, KeyConflict, MutationInProgress and what a drop raises."""
        if request.header(KEY_HEADER) is None or caller.principal is None:
            return self.drops.drop(request, caller, identifier)
        scope = scope_of(request, key_of(request), principal=caller.principal, realm=caller.realm or self.realm)
        one = partial(self._performed, request, caller, identifier, scope)
        earlier = partial(self._earlier, request, caller, identifier, scope)
        performed = self.mutations.perform(Mutation(scope, payload_of(request), run=one, verify=earlier))
        answer = performed.answer
        marks = ((REPLAYED, "true"),) if performed.how is How.REPLAYED else ()
        return CatalogAnswer(answer.status, (*answer.headers.items(), *marks), answer.body)

    def _performed(
        self,
        request: CatalogRequest,
        caller: GatewayCaller,
        identifier: TableIdentifier,
        scope: Scope,
        attempt: MutationAttempt,
    ) -> MutationAnswer:
        attempt.require_time()
        try:
            return _stored(self.drops.drop(request, caller, identifier, _key(scope, attempt)))
        except GatewayError as error:
            return _refusal(error)

    def _earlier(
        self,
        request: CatalogRequest,
        caller: GatewayCaller,
        identifier: TableIdentifier,
        scope: Scope,
        attempt: MutationAttempt,
    ) -> MutationAnswer | None:
        try:
            found = self.drops.earlier(request, caller, identifier, _key(scope, attempt))
        except GatewayError as error:
            return _refusal(error)
        return None if found is None else _stored(found)


def _key(scope: Scope, attempt: MutationAttempt) -> DropKey:
    return DropKey(scope.id, attempt.began_at, attempt.number > 1)


def _refusal(error: GatewayError) -> MutationAnswer:
    """Return the answer to keep; raises what a repeat may end differently."""
    if error.status >= 500:
        raise error
    return _stored(answer_of(error))


def _stored(answer: CatalogAnswer) -> MutationAnswer:
    return MutationAnswer(answer.status, answer.body, dict(answer.headers))
