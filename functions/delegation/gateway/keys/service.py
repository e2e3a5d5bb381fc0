"""Mutations of the catalog performed at most once for their keys (Idempotency-Key proposal)."""

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache, partial
from typing import Final

from delegation.gateway.answers import error_answer
from delegation.gateway.callers import GatewayCaller
from delegation.gateway.errors import CompressedBody, MutationNotVerified
from delegation.gateway.forwarding import Forwarder
from delegation.gateway.keys.identity import key_of, payload_of, scope_of
from delegation.gateway.keys.patience import Patience
from delegation.gateway.keys.reading import CallersView, RefusedRead, unkeyed
from delegation.gateway.keys.restoring import restored
from delegation.gateway.keys.rules.choice import MALFORMED, rule_for
from delegation.gateway.keys.rules.rule import Applied, Incompatible, Judgement, VerificationRule
from delegation.gateway.keys.unverified import refusal_of_unverified
from delegation.gateway.messages import CatalogAnswer, CatalogRequest
from delegation.gateway.routing import DEFAULT_PATHS, CatalogPaths, KeyedMutation, Target
from delegation.idempotency.mutations.answer import MutationAnswer
from delegation.idempotency.mutations.reservation import KeyPolicy
from delegation.idempotency.mutations.service import How, Mutation, MutationAttempt, Mutations

logger = logging.getLogger(__name__)
REPLAYED: Final = "Idempotency-Replayed"
"""The header that marks a stored answer."""
_INCOMPATIBLE: Final = "UnprocessableEntityException"


def policy_for(timeout: float, lifetime: timedelta) -> KeyPolicy:
    """Return how long a call holds its key if the catalog is given `timeout` seconds for a mutation.

    Short, because the duplicates of a call that was killed wait so long: clocks of Lambda functions differ by less than
    a second (Amazon Time Sync Service).
    """
    return KeyPolicy(lifetime=lifetime, lease=timedelta(seconds=timeout), clock_drift=timedelta(seconds=1))


@dataclass(frozen=True, slots=True)
class CatalogMutations:
    """Performs mutations through `forwarder`; `clock` and `lifetime` are those of `mutations`.

    `realm` is that of requests without a realm header.
    """

    mutations: Mutations
    forwarder: Forwarder
    clock: Callable[[], datetime]
    patience: Patience
    realm: str
    lifetime: timedelta
    paths: CatalogPaths = DEFAULT_PATHS

    def perform(self, request: CatalogRequest, caller: GatewayCaller, mutation: KeyedMutation) -> CatalogAnswer:
        """Perform or replay a mutation.

        Raises InvalidKey, CompressedBody, KeyConflict, MutationInProgress, MutationNotVerified, CallerNotVerified, and
        the errors of the catalog and of the store of keys.
        """
        key = key_of(request)
        if request.header("Content-Encoding") not in {None, "", "identity"}:
            raise CompressedBody
        if caller.principal is None:
            catalog = mutation.target.catalog if mutation.target.prefix else ""
            return refusal_of_unverified(request, catalog, self.forwarder.forward)
        call = _KeyedCall(request, mutation.target, rule_for(mutation.target, request, self.paths), self.forwarder)
        observe = cache(call.observe)
        scope = scope_of(request, key, principal=caller.principal, realm=caller.realm or self.realm)
        try:
            performed = self.patience.perform(
                self.mutations,
                Mutation(
                    scope=scope,
                    payload_hash=payload_of(request),
                    run=partial(call.run, clock=self.clock),
                    verify=call.verify,
                    observe=observe,
                    restore=call.restore,
                ),
            )
        except RefusedRead as refused:
            return refused.answer
        answer = performed.answer
        done = {"operation": mutation.target.operation, "how": performed.how, "status": answer.status}
        logger.info("performed a mutation by its key", extra={"action": "gateway", **done})
        marks = ((REPLAYED, "true"),) if performed.how is How.REPLAYED else ()
        return CatalogAnswer(answer.status, (*answer.headers.items(), *marks), answer.body)


@dataclass(frozen=True, slots=True)
class _KeyedCall:
    """One request's parts of a Mutation."""

    request: CatalogRequest
    target: Target
    rule: VerificationRule
    forwarder: Forwarder

    @property
    def view(self) -> CallersView:
        return CallersView(self.forwarder, self.request)

    def observe(self) -> str | None:
        """Return what the rule has to know of the state before, None if the caller may not read it."""
        if not self.rule.before:
            return None
        try:
            noted = self.rule.note(self.view.states(self.rule.before))
        except (MutationNotVerified, *MALFORMED):
            return None
        return None if noted is None else json.dumps(noted)

    def run(self, attempt: MutationAttempt, *, clock: Callable[[], datetime]) -> MutationAnswer:
        """Send the mutation; the time that it may take ends with the call's hold on the key."""
        if attempt.number > 1:
            attempt.extend()  # verifying may have taken most of it
        attempt.require_time()
        left = (attempt.deadline - clock()).total_seconds()
        answer = self.forwarder.forward(unkeyed(self.request), timeout=min(self.forwarder.timeout, max(left, 0.1)))
        return _as_mutation_answer(answer)

    def verify(self, attempt: MutationAttempt) -> MutationAnswer | None:
        """Judge what an earlier call did."""
        states = self.view.states(self.rule.after)
        try:
            judged: Judgement = self.rule.judge(None if attempt.before is None else json.loads(attempt.before), states)
        except MALFORMED as error:
            raise MutationNotVerified(
                f"what the catalog loaded for {self.target.operation} does not conform to the Iceberg REST Catalog API "
                f"({type(error).__name__}); nothing more was done"
            ) from error
        match judged:
            case Applied(answer):
                return _as_mutation_answer(answer)
            case Incompatible(reason):
                message = (
                    f"{reason}; nothing more was done. Read the state, then send what is still wanted with a new key"
                )
                return _as_mutation_answer(error_answer(422, _INCOMPATIBLE, message))
            case _:
                return None

    def restore(self, stored: MutationAnswer) -> MutationAnswer:
        """Return a stored answer with its credentials vended anew."""
        return restored(stored, self.rule, self.request, self.target.operation, self.view)


def _as_mutation_answer(answer: CatalogAnswer) -> MutationAnswer:
    headers: dict[str, str] = {}
    for name, value in answer.headers:
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return MutationAnswer(answer.status, answer.body, headers)
