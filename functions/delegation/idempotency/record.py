"""Idempotency records, and how often a repeated request may run a task again."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from pydantic import BaseModel, ConfigDict, Field

from delegation.idempotency.canonical import RULE
from delegation.timestamps import Timestamp
from polaris_common.backoff import exponential

FORMAT: Final = 1


class State(StrEnum):
    IN_PROGRESS = "IN_PROGRESS"
    FINALIZED = "FINALIZED"


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """An HTTP answer, replayed byte for byte: status and JSON body."""

    status: int
    body: str

    @property
    def is_final(self) -> bool:
        """Whether it may be stored: 2xx and 4xx, never 5xx (Idempotency-Key proposal, Server Behavior)."""
        return self.status < 500


@dataclass(frozen=True, slots=True)
class ResubmitPolicy:
    """How often the repeats of one key may run a task again whose outcome is a 5xx, and with which pauses."""

    most: int = 8
    first_pause: timedelta = timedelta(seconds=2)
    longest_pause: timedelta = timedelta(minutes=5)

    def allowed_at(self, resubmits: int, failed_at: datetime) -> datetime | None:
        """Return when the next of them may be after `resubmits`: the first at once, None after the last."""
        if resubmits >= self.most:
            return None
        if resubmits == 0:
            return failed_at
        first, longest = self.first_pause.total_seconds(), self.longest_pause.total_seconds()
        return failed_at + timedelta(seconds=exponential(resubmits, first, longest))


class Record(BaseModel):
    """The record of one key, bound to a task and to its version when the request was accepted.

    `resubmits` counts how often a repeat ran the task again, None if none did. `identity_rule` is the number of the
    rule that made `payload_hash` (canonical.py), None if a release that knew only rule 1 wrote the record or wrote it
    again. `expires_at` is set once the task is terminal, so that no key expires while its task runs.
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
    resubmits: int | None = Field(default=None, ge=1)
    http_status: int | None = None
    response_body: str | None = None
    created_at: Timestamp
    updated_at: Timestamp
    expires_at: Timestamp | None = None
    nonce: str
    format: int = FORMAT
    identity_rule: int | None = Field(default=None, ge=1, le=RULE)

    @property
    def answer(self) -> StoredAnswer | None:
        if self.http_status is None or self.response_body is None:
            return None
        return StoredAnswer(self.http_status, self.response_body)

    def is_expired(self, now: datetime) -> bool:
        """Whether the record has expired; DynamoDB's TTL may delete it days later."""
        return self.expires_at is not None and self.expires_at <= now


def finalize(record: Record, answer: StoredAnswer, now: datetime, *, lifetime: timedelta, nonce: str) -> Record:
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
