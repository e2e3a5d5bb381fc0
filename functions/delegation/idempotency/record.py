"""An idempotency record and what it means for a repeated request: values in, a verdict out."""

import hashlib
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from pydantic import BaseModel, ConfigDict, Field

from delegation.idempotency.canonical import canonical_json
from delegation.tasks.life.model import Task
from delegation.timestamps import Timestamp

FORMAT: Final = 1


class State(StrEnum):
    """Whether the answer is stored."""

    IN_PROGRESS = "IN_PROGRESS"
    FINALIZED = "FINALIZED"


@dataclass(frozen=True, slots=True)
class Scope:
    """What a key belongs to: the caller's client, not its certificate, which rotates (DESIGN §3)."""

    caller: str
    realm_id: str
    method: str
    resource_path: str
    idempotency_key: str

    @property
    def id(self) -> str:
        """One fixed-length name for the scope."""
        parts = [self.caller, self.realm_id, self.method, self.resource_path, self.idempotency_key]
        return hashlib.sha256(canonical_json(parts)).hexdigest()


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """An HTTP answer as it is replayed, byte for byte: status and JSON body."""

    status: int
    body: str

    @property
    def is_final(self) -> bool:
        """Whether it may be stored: 2xx and terminal 4xx, never 5xx (idempotency-key.txt, Replay policy)."""
        return self.status < 500


class Record(BaseModel):
    """One key's record, bound to a task and the version that stood when the request was accepted.

    `expires_at` is absent until the bound task is terminal, so that a key never expires under a running task.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    scope: str
    caller: str
    realm_id: str
    method: str
    resource_path: str
    idempotency_key: str
    payload_hash: str
    state: State
    task_id: str
    bound_version: int = Field(ge=1)
    http_status: int | None = None
    response_body: str | None = None
    created_at: Timestamp
    updated_at: Timestamp
    expires_at: Timestamp | None = None
    nonce: str
    format: int = FORMAT

    @property
    def answer(self) -> StoredAnswer | None:
        """The stored answer of a FINALIZED record."""
        if self.http_status is None or self.response_body is None:
            return None
        return StoredAnswer(self.http_status, self.response_body)

    def is_expired(self, now: datetime) -> bool:
        """Present and past: TTL deletes late, so the attribute decides (FACTS, AWS)."""
        return self.expires_at is not None and self.expires_at <= now


def bind(
    scope: Scope,
    *,
    payload_hash: str,
    task: Task,
    answer: StoredAnswer | None,
    now: datetime,
    nonce: str,
    created_at: datetime | None = None,
) -> Record:
    """A record that binds a key to a task's current version; FINALIZED if the answer is known already."""
    return Record(
        scope=scope.id,
        **asdict(scope),
        payload_hash=payload_hash,
        state=State.FINALIZED if answer else State.IN_PROGRESS,
        task_id=task.task_id,
        bound_version=task.version,
        http_status=answer.status if answer else None,
        response_body=answer.body if answer else None,
        created_at=created_at or now,
        updated_at=now,
        nonce=nonce,
    )


def finalize(record: Record, answer: StoredAnswer, now: datetime, *, lifetime: timedelta, nonce: str) -> Record:
    """The record with its final answer, kept for `lifetime` from now."""
    return record.model_copy(
        update={
            "state": State.FINALIZED,
            "http_status": answer.status,
            "response_body": answer.body,
            "updated_at": now,
            "expires_at": now + lifetime,
            "nonce": nonce,
        }
    )


class KeyState(StrEnum):
    """What a record means for a request that carries its key."""

    FRESH = "fresh"
    CONFLICT = "conflict"
    REPLAY = "replay"
    IN_PROGRESS = "in-progress"
    FINALIZE = "finalize"
    TAKE_OVER = "take-over"


def judge(record: Record | None, payload_hash: str, outcome: StoredAnswer | None, now: datetime) -> KeyState:
    """Run, replay, wait or refuse (idempotency-key.txt, Request Flow).

    `outcome` is the answer made from the first terminal version of the bound task since it was bound, None while there
    is none. FINALIZE is the proposal's R1, TAKE_OVER its R2: a 5xx outcome is never stored, the next call tries again.
    """
    if record is None or record.is_expired(now):
        return KeyState.FRESH
    if record.payload_hash != payload_hash:
        return KeyState.CONFLICT
    if record.state is State.FINALIZED:
        return KeyState.REPLAY
    if outcome is None:
        return KeyState.IN_PROGRESS
    return KeyState.FINALIZE if outcome.is_final else KeyState.TAKE_OVER
