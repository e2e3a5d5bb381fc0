"""One call of a keyed mutation: sent, verified by the catalog's state, and replayed with fresh credentials."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from delegation.gateway.forwarding import Forwarder
from delegation.gateway.keys.commits import committed
from delegation.gateway.keys.reading import (
    NOT_APPLIED,
    Applied,
    CallersView,
    Evidence,
    Found,
    NotApplied,
    Undecided,
    Verification,
    VerificationRule,
    is_genuine,
    same_uuid,
    unkeyed,
)
from delegation.gateway.keys.rules import MALFORMED
from delegation.gateway.messages import (
    CatalogAnswer,
    CatalogNotReached,
    CatalogOutcomeUnknown,
    CatalogRequest,
    CatalogUnavailable,
    MutationNotVerified,
    OutOfTime,
    json_answer,
)
from delegation.gateway.routing import Operation, Target
from delegation.idempotency.answers import MutationAnswer, may_be_secret
from delegation.idempotency.mutations import MutationAttempt


class CatalogClient(StrEnum):
    """A client, by the last release with this behavior."""

    ICEBERG_1_10 = "Iceberg Java up to 1.10"
    ICEBERG = "Iceberg Java from 1.11 on"
    PYICEBERG = "pyiceberg 0.12"
    TRINO = "Trino"


class Conclusion(StrEnum):
    APPLIED = "it was applied"
    NOT_APPLIED = "it was not applied: the client deletes the files of a commit, or commits them again"
    UNKNOWN = "it may have been applied: the client deletes nothing"
    FAILED = "it failed: the client deletes nothing"


_CLEANED_UP: Final = frozenset({400, 401, 403, 404, 409})
_UNKNOWN: Final = frozenset({500, 502, 504})
_JAVA: Final = {
    **dict.fromkeys(_CLEANED_UP, Conclusion.NOT_APPLIED),
    **dict.fromkeys(_UNKNOWN | {503}, Conclusion.UNKNOWN),
}
_TABLE: Final[Mapping[CatalogClient, Mapping[int, Conclusion]]] = {
    # From 1.10.0 on only for the first commit of a created table (apache/iceberg issue 15050).
    CatalogClient.ICEBERG_1_10: {**_JAVA, 503: Conclusion.NOT_APPLIED},
    CatalogClient.ICEBERG: _JAVA,
    CatalogClient.PYICEBERG: {**dict.fromkeys(_UNKNOWN, Conclusion.UNKNOWN), 409: Conclusion.NOT_APPLIED},
    CatalogClient.TRINO: _JAVA,
}


def conclusion(client: CatalogClient, status: int) -> Conclusion:
    if 200 <= status < 300:
        return Conclusion.APPLIED
    return _TABLE[client].get(status, Conclusion.FAILED)


def denies(status: int) -> bool:
    """Return whether some client takes the status for "not applied"; it then requires proof."""
    return any(conclusion(client, status) is Conclusion.NOT_APPLIED for client in CatalogClient)


_VENDED: Final = "storage-credentials"
_CONFIG: Final = "config"
_METADATA: Final = "metadata"
_PROPERTIES: Final = "properties"


def restored(
    stored: MutationAnswer, rule: VerificationRule, request: CatalogRequest, operation: Operation, view: CallersView
) -> MutationAnswer:
    """Return a stored answer with credentials vended now, or as stored if the caller gets none. A table that was
    dropped or created again gives none: they would be for other files."""
    state = _found(rule, request, view)
    if state is None:
        return stored
    kept = json.loads(stored.body) if stored.body else {}
    if _METADATA not in kept:  # too large to be stored
        answer = committed(state) if operation is Operation.COMMIT_TABLE else json_answer(200, state.document)
        return MutationAnswer(stored.status, answer.body, {**stored.headers, "Content-Type": "application/json"})
    if _identity(kept) != _identity(state.document):
        is_staged = rule.restages and "metadata-location" not in state.document
        return _answer(stored, state.document) if is_staged else stored
    return _answer(stored, _with_credentials(kept, state.document))


def _found(rule: VerificationRule, request: CatalogRequest, view: CallersView) -> Found | None:
    """Return what credentials are vended for: the table, or the same staged table again, which has no effect."""
    if rule.restore is None:
        return None
    try:
        state = view.state(rule.restore)
    except MutationNotVerified:
        return None
    if state is not None or not rule.restages:
        return state
    answer = view.repeat(request)
    return Found(answer, json.loads(answer.body)) if answer.is_success else None


def _identity(document: Mapping[str, Any]) -> object:
    """Return what must be equal for credentials to fit; for a staged table, which has no file yet, its location."""
    metadata = document.get("metadata") or {}
    if "metadata-location" not in document:
        return metadata.get("location")
    return metadata.get("table-uuid") or metadata.get("view-uuid")


def _with_credentials(kept: dict[str, Any], vended: Mapping[str, Any]) -> dict[str, Any]:
    config = {**(kept.get(_CONFIG) or {}), **(vended.get(_CONFIG) or {})}
    vended_anew = {_VENDED: vended[_VENDED]} if _VENDED in vended else {}
    return {**kept, **_with_properties(kept, vended), _CONFIG: config, **vended_anew}


def _with_properties(kept: Mapping[str, Any], current: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata with current values for properties that were not stored because they may be secret."""
    metadata, properties = kept.get(_METADATA), (current.get(_METADATA) or {}).get(_PROPERTIES) or {}
    secret = {name: value for name, value in properties.items() if may_be_secret(name, value)}
    if not isinstance(metadata, dict) or not secret:
        return {}
    return {_METADATA: {**metadata, _PROPERTIES: {**(metadata.get(_PROPERTIES) or {}), **secret}}}


def _answer(stored: MutationAnswer, document: Mapping[str, Any]) -> MutationAnswer:
    return MutationAnswer(stored.status, json_answer(stored.status, document).body, stored.headers)


_CLOCKS: Final = timedelta(seconds=2)
"""How far the catalog's clock may differ from the gateway's."""
_SHORTEST_SECONDS: Final = 0.5
"""A request is not sent with less time left."""


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
        return CallersView(self._forward, self.request)

    def observe(self) -> str | None:
        """Return what the rule needs of the state before, None if the caller may not read it."""
        if not self.rule.before:
            return None
        try:
            noted = self.rule.note(self.view.states(self.rule.before))
        except (MutationNotVerified, OutOfTime, *MALFORMED):
            return None
        return None if noted is None else json.dumps(noted)

    def run(self, attempt: MutationAttempt) -> MutationAnswer:
        """Send the mutation, within the call's hold on the key, and read the catalog after an unclear outcome. Raises
        CatalogNotReached if nothing was done, otherwise CatalogOutcomeUnknown or MutationNotVerified."""
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
                f"an earlier call with this key has not been applied so far, and it could not be sent again: {error}"
            ) from error
        except CatalogOutcomeUnknown:
            if (shown := self._shown(attempt)) is None:
                raise
            return shown
        return self._concluded(answer, attempt)

    def verify(self, attempt: MutationAttempt) -> MutationAnswer | None:
        """Verify what an earlier call did. Raises MutationNotVerified and OutOfTime."""
        match self._verified(attempt):
            case Applied(answer):
                return as_mutation_answer(answer)
            case NotApplied():
                return None
            case unknown:
                raise MutationNotVerified(
                    "the outcome of an earlier call with this key is unknown, and nothing more was done: "
                    f"{unknown.reason}. Read the state, then send what is missing with a new key"
                )

    def restore(self, stored: MutationAnswer) -> MutationAnswer:
        """Return a stored answer with newly vended credentials; without them if the loaded table is malformed."""
        try:
            return restored(stored, self.rule, self.request, self.target.operation, self.view)
        except MALFORMED:
            return stored

    def _concluded(self, answer: CatalogAnswer, attempt: MutationAttempt) -> MutationAnswer:
        """Return the answer that states what the call did, or the outcome that the state shows."""
        made = as_mutation_answer(answer)
        is_known = is_genuine(self.target.operation, answer) and not _is_doubtful(self.request, self.target, answer)
        if is_known and (made.is_final or (made.did_nothing and attempt.is_clear)):
            return self._despite_refusal(made, attempt)
        if (shown := self._shown(attempt)) is not None:
            return shown
        if is_known and all(conclusion(each, made.status) is Conclusion.UNKNOWN for each in CatalogClient):
            return made
        raise MutationNotVerified(
            f"the answer {answer.status} to {self.target.operation} leaves the outcome open, and the catalog does not "
            "show the change. Repeat the request with the same key"
        )

    def _despite_refusal(self, made: MutationAnswer, attempt: MutationAttempt) -> MutationAnswer:
        """Return the catalog's answer, or success for a commit refused because it was applied already. A proxy may lose
        an answer and send the request again; only what nothing else can have caused counts. A call after an earlier one
        verifies every refusal. A transaction's tables are read until one proves either. Raises MutationNotVerified and
        OutOfTime, unless the catalog does not let the caller read the table."""
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
        """Return the success that the state shows, None if it shows none or cannot be read."""
        try:
            verified = self._verified(attempt)
        except (MutationNotVerified, OutOfTime):
            return None
        return as_mutation_answer(verified.answer) if isinstance(verified, Applied) else None

    def _verified(self, attempt: MutationAttempt) -> Verification:
        verified = self._verified_by(self.rule, attempt)
        return self._recorded(attempt) or verified if isinstance(verified, Undecided) else verified

    def _recorded(self, attempt: MutationAttempt) -> Verification | None:
        """Return what the catalog's own record of the key proves, None if nothing. A table with the metadata file from
        before the first call has had no commit since. If that call still arrives late, the catalog answers one of the
        two by their common key."""
        if self.catalog_key is None or self.rule.of_recorded is None:
            return None
        (lookup,) = self.rule.after
        uuid = self.view.has_recorded(lookup, self.catalog_key)
        state = None if uuid is None and attempt.before is None else self.view.state(lookup)
        try:
            if state is None:
                return None
            if uuid is not None:
                return self.rule.of_recorded(state) if same_uuid(state.metadata["table-uuid"], uuid) else None
            return NOT_APPLIED if state.document["metadata-location"] == json.loads(attempt.before or "null") else None
        except MALFORMED:
            return None

    def _verified_by(self, rule: VerificationRule, attempt: MutationAttempt) -> Verification:
        states = self.view.states(rule.after)
        noted = None if attempt.before is None else json.loads(attempt.before)
        try:
            return rule.verify(Evidence(states, attempt.began_at - _CLOCKS, noted))
        except MALFORMED as error:
            raise MutationNotVerified(
                f"the catalog's answer for {self.target.operation} does not conform to the Iceberg REST Catalog API "
                f"({type(error).__name__}). Nothing more was done"
            ) from error

    def _forward(self, request: CatalogRequest) -> CatalogAnswer:
        if self.time_left.is_over:
            raise OutOfTime
        return self.forwarder.forward(request, timeout=min(self.forwarder.timeout, self.time_left.seconds))


def _is_doubtful(request: CatalogRequest, target: Target, answer: CatalogAnswer) -> bool:
    """Return whether the catalog's refusal may be wrong: Polaris 1.7 applies updates beside removals, with 409."""
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
