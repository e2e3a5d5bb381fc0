"""The record of an idempotency key, whatever the request does, and what a request finds there; no I/O."""

from collections.abc import Callable
from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

from delegation.idempotency.canonical import RULE
from delegation.timestamps import Timestamp
from polaris_common.errors import DelegationError, counted


class State(StrEnum):
    IN_PROGRESS = "IN_PROGRESS"
    FINALIZED = "FINALIZED"


class KeyState(StrEnum):
    """What a request finds under its key; HELD is by the call or the task that has no outcome yet."""

    FRESH = "fresh"
    CONFLICT = "conflict"
    REPLAY = "replay"
    HELD = "held"


class KeyRecord(BaseModel):
    """What the record of every key has. `identity_rule` is the number of the rule that made `payload_hash`
    (canonical.py), None if a release that knew only rule 1 wrote the record or wrote it again."""

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
        """Whether the payload is the one that the key is bound to. `payload_hash` returns the payload's hash under a
        rule. A record is compared by its own, so that a release with a new rule takes no repeat for another payload;
        one without a number may be a new record that an older release wrote again."""
        rules = range(1, RULE + 1) if self.identity_rule is None else (self.identity_rule,)
        return any(self.payload_hash == payload_hash(rule) for rule in rules)

    def found_by(self, payload_hash: Callable[[int], str], now: datetime) -> KeyState:
        """Return what a request with this payload finds (Idempotency-Key proposal, Request Flow)."""
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
        super().__init__(f"the request is still running as task {task_id}; repeat it unchanged")
        self.task_id = task_id


class KeyConflict(IdempotencyError):
    """The key was used with another payload (Idempotency-Key proposal, `idempotency_key_conflict`)."""

    code = "idempotency_key_conflict"

    def __init__(self) -> None:
        super().__init__("Idempotency-Key: was used before with another payload; send a new key")


class ResubmittedTooSoon(IdempotencyError):
    """The request's task ended and may run again only after `retry_after` seconds, which double with each repeat."""

    code = "RESUBMITTED_TOO_SOON"
    retryable = True

    def __init__(self, task_id: str, retry_after: float) -> None:
        super().__init__(
            f"task {task_id} ended a moment ago, too often; repeat the request unchanged after Retry-After"
        )
        self.task_id = task_id
        self.retry_after = retry_after


class ResubmitsExhausted(IdempotencyError):
    """The key's task failed again and again: it runs no more under this key."""

    code = "RESUBMITS_EXHAUSTED"

    def __init__(self, task_id: str, runs: int, error_code: str | None) -> None:
        super().__init__(
            f"task {task_id} failed {counted(runs, 'time')} under this Idempotency-Key, last with {error_code}; "
            "remove the cause, then send the request with a new key"
        )
        self.task_id = task_id


def task_conflict(task_id: str, reason: str) -> IdempotencyError:
    """Return the error for a stored task that does not admit the request; `reason` states why and what to do."""
    return IdempotencyError(f"task {task_id} {reason}", code="TASK_EXISTS", task_id=task_id)
