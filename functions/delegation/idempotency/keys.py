"""The identity of a request, and the record of its idempotency key; no I/O. The scope of a key and the hash of a
payload are SHA-256 over RFC 8785 canonical JSON (Idempotency-Key proposal, Canonicalization)."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import cache
from typing import Any, Final

import rfc8785
from pydantic import BaseModel, ConfigDict, Field

from delegation.timestamps import Timestamp
from polaris_common.errors import DelegationError, counted

RULE: Final = 2
"""The number of the rule that makes a payload's identity; a record stores the number of its own.

Rule 1 wrote a big integer as a string, so it had the same hash as the string of its digits. A rule never changes: a
request that was accepted under it may be repeated after a deployment.
"""

_EXACT: Final = 2**53 - 1
"""The largest integer that every JSON implementation keeps exactly (RFC 8785, Section 3.2.2.3)."""

_VOLATILE: Final = ("config", "storage-credentials")
"""Members of `operation_parameters` with vended credentials, which differ in a repeat of the same request."""

_INTEGER: Final = "$int"


class NotCanonicalizable(DelegationError):
    """A JSON value has no canonical form: an infinite number, text that is not Unicode, or a reserved object."""

    code = "INVALID_JSON"


def exact_integers(value: Any, *, rule: int = RULE) -> Any:
    """Return the value with integers beyond ±(2^53-1) as `{"$int": "digits"}`, because RFC 8785 libraries refuse or
    round them. Raises NotCanonicalizable for an object of that form in the value, which would hash like the integer."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        if -_EXACT <= value <= _EXACT:
            return value
        return str(value) if rule == 1 else {_INTEGER: str(value)}
    if isinstance(value, Mapping):
        if rule > 1 and value.keys() == {_INTEGER}:
            raise NotCanonicalizable(
                f'the body has an object whose only member is "{_INTEGER}", which is reserved for big integers. Rename '
                "the member, or add another one to the object"
            )
        return {name: exact_integers(item, rule=rule) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [exact_integers(item, rule=rule) for item in value]
    return value


def canonical_json(value: Any, *, rule: int = RULE) -> bytes:
    """Return the RFC 8785 bytes of a JSON value. Raises NotCanonicalizable."""
    try:
        return rfc8785.dumps(exact_integers(value, rule=rule))
    except (rfc8785.CanonicalizationError, UnicodeEncodeError):
        raise NotCanonicalizable(
            "the JSON has no canonical form (RFC 8785): a number is not finite, or a text is not valid Unicode"
        ) from None


@dataclass(frozen=True, slots=True)
class Scope:
    """The scope of a key: who sent it, and to which method of which resource. `caller` is the client's name, not its
    certificate, which is replaced."""

    caller: str
    realm_id: str
    method: str
    resource_path: str
    idempotency_key: str

    @property
    def id(self) -> str:
        """The id of the record: a SHA-256 of the scope."""
        parts = [self.caller, self.realm_id, self.method, self.resource_path, self.idempotency_key]
        return hashlib.sha256(canonical_json(parts)).hexdigest()


def unread_body(body: str) -> dict[str, str]:
    """Return the document of a body that its operation ignores: no body equals an empty object."""
    try:
        value = json.loads(body) if body.strip() else {}
        return {"body": "" if value == {} else canonical_json(value).decode()}
    except (ValueError, RecursionError, NotCanonicalizable):
        return {"body": body}


def payload_hash(document: Mapping[str, Any], *, rule: int = RULE) -> str:
    """Return the lower-case hex SHA-256 of a request's payload without its credentials. Raises NotCanonicalizable."""
    parameters = document.get("operation_parameters")
    if isinstance(parameters, Mapping):
        kept = {name: value for name, value in parameters.items() if name not in _VOLATILE}
        document = {**document, "operation_parameters": kept}
    return hashlib.sha256(canonical_json(document, rule=rule)).hexdigest()


def payload_hashes(document: Mapping[str, Any]) -> Callable[[int], str]:
    """Return a function from a rule's number to the payload's hash under it. Raises NotCanonicalizable under RULE."""

    @cache
    def under(rule: int) -> str:
        return payload_hash(document, rule=rule)

    under(RULE)
    return under


class State(StrEnum):
    IN_PROGRESS = "IN_PROGRESS"
    FINALIZED = "FINALIZED"


class KeyState(StrEnum):
    """What a request finds under its key; HELD means that a call or task has no outcome yet."""

    FRESH = "fresh"
    CONFLICT = "conflict"
    REPLAY = "replay"
    HELD = "held"


class KeyRecord(BaseModel):
    """What the record of every key has. `identity_rule` is the number of the rule that made `payload_hash` (keys.py),
    None if a release that knew only rule 1 wrote or rewrote the record."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    scope: str
    caller: str
    realm_id: str
    method: str
    resource_path: str
    idempotency_key: str
    payload_hash: str
    identity_rule: int | None = Field(default=None, ge=1, le=RULE)
    state: State
    created_at: Timestamp
    updated_at: Timestamp
    expires_at: Timestamp | None = None
    nonce: str

    def is_expired(self, now: datetime) -> bool:
        """Whether the key is forgotten; DynamoDB's TTL may delete the record days later."""
        return self.expires_at is not None and self.expires_at <= now

    def has_payload(self, payload_hash: Callable[[int], str]) -> bool:
        """Return whether the key is bound to this payload. `payload_hash` returns the payload's hash under a rule. The
        record's own rule decides, so that a release with a new rule does not take a repeat for another payload. A
        record without a number may be a new one that an older release rewrote."""
        rules = range(1, RULE + 1) if self.identity_rule is None else (self.identity_rule,)
        return any(self.payload_hash == payload_hash(rule) for rule in rules)

    def found_by(self, payload_hash: Callable[[int], str], now: datetime) -> KeyState:
        """Return the key's state for a request with this payload (Idempotency-Key proposal, Request Flow)."""
        if self.is_expired(now):
            return KeyState.FRESH
        if not self.has_payload(payload_hash):
            return KeyState.CONFLICT
        return KeyState.REPLAY if self.state is State.FINALIZED else KeyState.HELD


class IdempotencyError(DelegationError):
    code = "IDEMPOTENCY_ERROR"


class RequestInProgress(IdempotencyError):
    """The request is still running: repeat it later (Idempotency-Key proposal, `request_in_progress`)."""

    code = "request_in_progress"
    retryable = True

    def __init__(self, task_id: str) -> None:
        super().__init__(
            f"the request is still running as task {task_id}. Repeat the request unchanged after the time in "
            "Retry-After"
        )
        self.task_id = task_id


class KeyConflict(IdempotencyError):
    """The key was used with another payload (Idempotency-Key proposal, `idempotency_key_conflict`)."""

    code = "idempotency_key_conflict"

    def __init__(self) -> None:
        super().__init__("Idempotency-Key: was used before with another payload. Send a new key")


class ResubmittedTooSoon(IdempotencyError):
    """The request's task ended and may run again only after `retry_after` seconds, which double with each repeat."""

    code = "RESUBMITTED_TOO_SOON"
    retryable = True

    def __init__(self, task_id: str, retry_after: float) -> None:
        super().__init__(
            f"task {task_id} failed a moment ago. Repeat the request unchanged after the time in Retry-After"
        )
        self.task_id = task_id
        self.retry_after = retry_after


class ResubmitsExhausted(IdempotencyError):
    """The key's task failed again and again; it does not run again under this key."""

    code = "RESUBMITS_EXHAUSTED"

    def __init__(self, task_id: str, runs: int, error_code: str | None) -> None:
        super().__init__(
            f"task {task_id} failed {counted(runs, 'time')} under this Idempotency-Key, last with {error_code}. Remove "
            "the cause, then send the request with a new key"
        )
        self.task_id = task_id


def task_conflict(task_id: str, reason: str) -> IdempotencyError:
    """Return the error for a stored task that conflicts with the request; `reason` states why and what to do."""
    return IdempotencyError(f"task {task_id} {reason}", code="TASK_EXISTS", task_id=task_id)
