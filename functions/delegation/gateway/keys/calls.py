"""One call of a keyed mutation: sent, verified by what the catalog shows, and replayed whole."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from delegation.gateway.errors import (
    CatalogNotReached,
    CatalogOutcomeUnknown,
    CatalogUnavailable,
    MutationNotVerified,
    OutOfTime,
)
from delegation.gateway.forwarding import Forwarder
from delegation.gateway.keys.clients import CatalogClient, Conclusion, conclusion, denies
from delegation.gateway.keys.genuine import is_genuine
from delegation.gateway.keys.reading import CallersView, unkeyed
from delegation.gateway.keys.restoring import restored
from delegation.gateway.keys.rules.choice import MALFORMED
from delegation.gateway.keys.rules.rule import (
    NOT_APPLIED,
    Applied,
    Evidence,
    NotApplied,
    Undecided,
    Verification,
    VerificationRule,
    same_uuid,
)
from delegation.gateway.messages import CatalogAnswer, CatalogRequest
from delegation.gateway.routing import Operation, Target
from delegation.idempotency.mutations.answer import MutationAnswer
from delegation.idempotency.mutations.service import MutationAttempt

_CLOCKS: Final = timedelta(seconds=2)
"""How far the catalog's clock may differ from the gateway's."""
_SHORTEST_SECONDS: Final = 0.5
"""A request is not begun for less."""


@dataclass(frozen=True, slots=True)
class TimeLeft:
    """When a request must be answered, by `monotonic`."""

    until: float
    monotonic: Callable[[], float]

    @property
    def seconds(self) -> float:
        return self.until - self.monotonic()

    @property
    def is_over(self) -> bool:
        """Whether no further request is worth beginning."""
        return self.seconds < _SHORTEST_SECONDS


@dataclass(frozen=True, slots=True)
class KeyedCall:
    request: CatalogRequest
    target: Target
    rule: VerificationRule
    forwarder: Forwarder
    clock: Callable[[], datetime]
    time_left: TimeLeft
    catalog_key: str | None = None
    """The key under which the catalog itself remembers the request, if it does."""

    @property
    def view(self) -> CallersView:
        """The catalog as the caller sees it, within the time that is left."""
        return CallersView(self._forward, self.request)

    def observe(self) -> str | None:
        """Return what the rule has to know of the state before, None if the caller may not read it."""
        if not self.rule.before:
            return None
        try:
            noted = self.rule.note(self.view.states(self.rule.before))
        except (MutationNotVerified, OutOfTime, *MALFORMED):
            return None
        return None if noted is None else json.dumps(noted)

    def run(self, attempt: MutationAttempt) -> MutationAnswer:
        """Send the mutation; the time that it may take ends with the call's hold on the key.

        After an outcome that is not known the catalog is read at once. Raises CatalogNotReached, which states that
        nothing was done, and CatalogOutcomeUnknown or MutationNotVerified otherwise.
        """
        if not attempt.is_clear:
            attempt.extend()  # verifying may have taken most of it
        attempt.require_time()
        if self.time_left.is_over:
            raise OutOfTime
        left = min((attempt.deadline - self.clock()).total_seconds(), self.time_left.seconds)
        try:
            answer = self.forwarder.forward(
                unkeyed(self.request, self.catalog_key), timeout=min(self.forwarder.timeout, max(left, 0.1))
            )
        except CatalogUnavailable as error:
            if attempt.is_clear:
                raise CatalogNotReached(str(error)) from error
            raise MutationNotVerified(
                f"an earlier call with this key was not applied so far, and the catalog was not reached again: {error}"
            ) from error
        except CatalogOutcomeUnknown:
            if (shown := self._shown(attempt)) is None:
                raise
            return shown
        return self._concluded(answer, attempt)

    def verify(self, attempt: MutationAttempt) -> MutationAnswer | None:
        """Verify what an earlier call did; raises MutationNotVerified and OutOfTime."""
        match self._verified(attempt):
            case Applied(answer):
                return as_mutation_answer(answer)
            case NotApplied():
                return None
            case unknown:
                raise MutationNotVerified(
                    "what an earlier call with this key did is not known, and nothing more was done: "
                    f"{unknown.reason}. Read the state, then send what is still wanted with a new key"
                )

    def restore(self, stored: MutationAnswer) -> MutationAnswer:
        """Return a stored answer with its credentials vended anew; without them if what is loaded is malformed."""
        try:
            return restored(stored, self.rule, self.request, self.target.operation, self.view)
        except MALFORMED:
            return stored

    def _concluded(self, answer: CatalogAnswer, attempt: MutationAttempt) -> MutationAnswer:
        made = as_mutation_answer(answer)
        is_known = is_genuine(self.target.operation, answer) and not _is_doubtful(self.request, self.target, answer)
        if is_known and (made.is_final or (made.did_nothing and attempt.is_clear)):
            return self._despite_refusal(made, attempt)
        if (shown := self._shown(attempt)) is not None:
            return shown
        if is_known and all(conclusion(each, made.status) is Conclusion.UNKNOWN for each in CatalogClient):
            return made
        raise MutationNotVerified(
            f"{answer.status} was answered to {self.target.operation}, which does not say what was done, and the "
            "catalog does not show that it was applied; repeat the request with the same key"
        )

    def _despite_refusal(self, made: MutationAnswer, attempt: MutationAttempt) -> MutationAnswer:
        """Return the catalog's answer, or the success of a commit that it refuses because it has applied it already.

        Something between the gateway and the catalog may have lost an answer and sent the request again. Only what
        nothing else can have brought about counts. A call after an earlier one verifies every refusal. Of a transaction
        tables are read until one proves either. Raises MutationNotVerified and OutOfTime, unless the catalog does not
        let the caller read the table either.
        """
        if not (self.rule.leaves_files and attempt.is_clear and made.is_refusal and denies(made.status)):
            return made
        for part in self.rule.parts or (self.rule,):
            try:
                verified = self._verified_by(part, attempt)
            except MutationNotVerified as error:
                if error.is_refused:
                    continue
                raise
            if isinstance(verified, Applied) and verified.is_certain:
                return as_mutation_answer(verified.answer)
            if isinstance(verified, NotApplied):
                break
        return made

    def _shown(self, attempt: MutationAttempt) -> MutationAnswer | None:
        try:
            verified = self._verified(attempt)
        except (MutationNotVerified, OutOfTime):
            return None
        return as_mutation_answer(verified.answer) if isinstance(verified, Applied) else None

    def _verified(self, attempt: MutationAttempt) -> Verification:
        verified = self._verified_by(self.rule, attempt)
        return self._recorded(attempt) or verified if isinstance(verified, Undecided) else verified

    def _recorded(self, attempt: MutationAttempt) -> Verification | None:
        """Return what the table shows on which the catalog has recorded the key, None if that proves nothing.

        A table that has the metadata file from before the first call was not committed to since. If that call is
        performed late all the same, the catalog answers one of the two by the key that both have.
        """
        if self.catalog_key is None or self.rule.of_recorded is None:
            return None
        (lookup,) = self.rule.after
        uuid = self.view.has_recorded(lookup, self.catalog_key)
        found = None if uuid is None and attempt.before is None else self.view.state(lookup)
        try:
            if found is None:
                return None
            if uuid is not None:
                return self.rule.of_recorded(found) if same_uuid(found.metadata["table-uuid"], uuid) else None
            return NOT_APPLIED if found.document["metadata-location"] == json.loads(attempt.before or "null") else None
        except MALFORMED:
            return None

    def _verified_by(self, rule: VerificationRule, attempt: MutationAttempt) -> Verification:
        states = self.view.states(rule.after)
        noted = None if attempt.before is None else json.loads(attempt.before)
        try:
            return rule.verify(Evidence(states, attempt.began_at - _CLOCKS, noted))
        except MALFORMED as error:
            raise MutationNotVerified(
                f"what the catalog loaded for {self.target.operation} does not conform to the Iceberg REST Catalog API "
                f"({type(error).__name__}); nothing more was done"
            ) from error

    def _forward(self, request: CatalogRequest) -> CatalogAnswer:
        if self.time_left.is_over:
            raise OutOfTime
        return self.forwarder.forward(request, timeout=min(self.forwarder.timeout, self.time_left.seconds))


def _is_doubtful(request: CatalogRequest, target: Target, answer: CatalogAnswer) -> bool:
    """Whether the catalog's own refusal may be wrong: Polaris 1.7 applies updates beside removals, and answers 409."""
    if (target.operation, answer.status) != (Operation.SET_PROPERTIES, 409):
        return False
    try:
        body = json.loads(request.body)
    except (ValueError, RecursionError):
        return False
    return isinstance(body, Mapping) and bool(body.get("updates")) and bool(body.get("removals"))


def as_mutation_answer(answer: CatalogAnswer) -> MutationAnswer:
    headers: dict[str, str] = {}
    for name, value in answer.headers:
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return MutationAnswer(answer.status, answer.body, headers)
