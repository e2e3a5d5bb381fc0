"""The record of a mutation's key (who holds it until when, and the final answer) and its stores."""

import threading
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol, TypeVar

from boto3.dynamodb.types import Binary
from pydantic import Field

from delegation.idempotency.answers import MutationAnswer, shortened, storable
from delegation.idempotency.keys import RULE, IdempotencyError, KeyRecord, Scope, State
from delegation.stored_items import Items, item_of_model, model_of_item
from delegation.timestamps import Timestamp
from polaris_common.dynamodb import DynamoDbCalls, to_item


class NothingDone(Exception):
    """Mixed into errors of a mutation's `run` which prove that it had no effect and will have none."""


class MutationInProgress(IdempotencyError):
    """Another call holds the key: repeat the request later (Idempotency-Key proposal, `request_in_progress`)."""

    code = "request_in_progress"
    retryable = True

    def __init__(self) -> None:
        super().__init__(
            "a request with this Idempotency-Key is still running. Repeat the request unchanged after the time in "
            "Retry-After"
        )


class ReservationConflict(IdempotencyError):
    """The key's reservation is not the expected one; `stored` is the present one, None without one."""

    code = "RECORD_CONFLICT"
    retryable = True

    def __init__(self, stored: "Reservation | None") -> None:
        super().__init__("another process changed the idempotency record. Repeat the request")
        self.stored = stored


class RecordsUnavailable(IdempotencyError):
    """The store of idempotency records did not answer; nothing was read or written."""

    code = "STORE_UNAVAILABLE"
    retryable = True


class RecordOutcomeUnknown(IdempotencyError):
    """A write of an idempotency record got no clear answer and could not be read back."""

    code = "OUTCOME_UNKNOWN"
    retryable = True


def malformed_reservation(message: str) -> IdempotencyError:
    return IdempotencyError(message, code="MALFORMED_RECORD")


FORMAT: Final = 1
KIND: Final = "MUTATION"
"""Distinguishes these records from those of tasks in one table."""
LARGEST_BODY: Final = 300_000
"""Compressed bytes of a stored body; an item of DynamoDB has at most 400 KB (DynamoDB guide, "Quotas")."""


@dataclass(frozen=True, slots=True)
class KeyPolicy:
    """How long keys are remembered, and how long one call may take. `lifetime` is advertised: a finalized answer is
    kept at least that long. A call must have no effect `lease` after it reserved its key. `settle` is how long an
    effect may still appear after an unclear outcome. `clock_drift` is how far the clocks of two processes may
    differ."""

    lifetime: timedelta = timedelta(minutes=30)
    lease: timedelta = timedelta(seconds=60)
    settle: timedelta = timedelta(0)
    clock_drift: timedelta = timedelta(seconds=5)


class Reservation(KeyRecord):
    """The record of one key. `attempt` counts the calls that held the key; `nonce` names the write, so that a former
    holder's writes are refused. While IN_PROGRESS no other call may take over the key before `lost_not_before`.
    `before` is what the first holder observed before it ran. `packed_body` is the answer's body, compressed.
    `nothing_done` is True after calls that surely had no effect; without it there may have been an effect."""

    identity_rule: int = Field(ge=1, le=RULE)
    state: State = State.IN_PROGRESS
    attempt: int = Field(ge=1)
    lost_not_before: Timestamp
    before: str | None = None
    nothing_done: bool | None = None
    http_status: int | None = None
    headers: Mapping[str, str] = Field(default_factory=dict)
    packed_body: bytes | None = Field(default=None, repr=False)
    is_whole: bool = True
    expires_at: Timestamp
    kind: str = KIND
    format: int = FORMAT

    @property
    def answer(self) -> MutationAnswer | None:
        if self.http_status is None:
            return None
        body = b"" if self.packed_body is None else zlib.decompress(self.packed_body)
        return MutationAnswer(self.http_status, body, self.headers, self.is_whole)


def reserved(
    scope: Scope,
    payload_hash: Callable[[int], str],
    before: str | None,
    *,
    now: datetime,
    policy: KeyPolicy,
    nonce: str,
) -> Reservation:
    return Reservation(
        scope=scope.id,
        **asdict(scope),
        payload_hash=payload_hash(RULE),
        identity_rule=RULE,
        attempt=1,
        before=before,
        created_at=now,
        **_held(now, policy, nonce),
    )


def taken_over(record: Reservation, now: datetime, policy: KeyPolicy, nonce: str) -> Reservation:
    """Return the record for the next call, after the holder's time has ended."""
    return record.model_copy(update={"attempt": record.attempt + 1, **_held(now, policy, nonce)})


def extended(record: Reservation, now: datetime, policy: KeyPolicy, nonce: str) -> Reservation:
    return record.model_copy(update=_held(now, policy, nonce))


def released(
    record: Reservation, now: datetime, policy: KeyPolicy, nonce: str, *, nothing_done: bool = False
) -> Reservation:
    """Return the record of a call that ended without a final outcome: the next call reconciles. With `nothing_done`
    neither this nor an earlier call had an effect: the next call is like the first."""
    lost = now if nothing_done else now + policy.settle
    return record.model_copy(
        update={
            "lost_not_before": lost,
            "updated_at": now,
            "expires_at": _expiry(lost, policy),
            "nothing_done": nothing_done or None,
            "nonce": nonce,
        }
    )


def finalized(record: Reservation, answer: MutationAnswer, now: datetime, policy: KeyPolicy, nonce: str) -> Reservation:
    """Return the record with its final answer, as far as it may be stored and is not too large."""
    kept = storable(answer)
    packed = zlib.compress(kept.body) if kept.body else None
    fits = packed is None or len(packed) <= LARGEST_BODY
    if not fits:
        packed = zlib.compress(shortened(kept.body))
    return record.model_copy(
        update={
            "state": State.FINALIZED,
            "http_status": kept.status,
            "headers": dict(kept.headers),
            "packed_body": packed,
            "is_whole": kept.is_whole and fits,
            "updated_at": now,
            "expires_at": _expiry(now, policy),
            "nonce": nonce,
        }
    )


def _held(now: datetime, policy: KeyPolicy, nonce: str) -> dict[str, object]:
    lost = now + policy.lease + policy.clock_drift
    return {
        "lost_not_before": lost,
        "updated_at": now,
        "expires_at": _expiry(lost, policy),
        "nothing_done": None,
        "nonce": nonce,
    }


def _expiry(since: datetime, policy: KeyPolicy) -> datetime:
    """Return when a key is forgotten, in whole seconds; later by the drift, because callers use their own clocks."""
    end = since + policy.lifetime + policy.clock_drift
    return datetime.fromtimestamp(-(-end.timestamp() // 1), UTC)


class ReservationStore(Protocol):
    """Stores one record per scope; a repeated write is recognized by its nonce and is no conflict. Methods raise
    RecordsUnavailable, writes also RecordOutcomeUnknown."""

    def get(self, scope: str) -> Reservation | None:
        """Read the record of a scope consistently; it may have expired. Raises IdempotencyError (MALFORMED_RECORD)."""

    def reserve(self, record: Reservation, now: datetime) -> None:
        """Write a record if its scope has none or an expired one, with one call; else raise ReservationConflict."""

    def replace(self, record: Reservation, before: Reservation) -> None:
        """Write a record if `before` is still the stored one, with one call. Otherwise raises ReservationConflict."""


def no_fault(_point: str) -> None: ...


class MemoryReservationStore:
    """Records in a dictionary; `fault` is called with the operation's name around each write and before each read."""

    def __init__(self, fault: Callable[[str], None] = no_fault) -> None:
        self.fault = fault
        self._lock = threading.Lock()
        self._records: dict[str, Reservation] = {}

    def get(self, scope: str) -> Reservation | None:
        self.fault("before get")
        with self._lock:
            return self._readable(scope)

    def reserve(self, record: Reservation, now: datetime) -> None:
        self.fault("before reserve")
        with self._lock:
            stored = self._records.get(record.scope)
            if stored is not None and stored.nonce != record.nonce and not stored.is_expired(now):
                raise ReservationConflict(self._readable(record.scope))
            self._records[record.scope] = record
        self.fault("after reserve")

    def replace(self, record: Reservation, before: Reservation) -> None:
        self.fault("before replace")
        with self._lock:
            stored = self._records.get(record.scope)
            if stored is None or stored.nonce not in {record.nonce, before.nonce}:
                raise ReservationConflict(self._readable(record.scope))
            self._records[record.scope] = record
        self.fault("after replace")

    def remove(self, scope: str) -> None:
        """Delete a record, as a table's time to live does."""
        with self._lock:
            self._records.pop(scope, None)

    def _readable(self, scope: str) -> Reservation | None:
        record = self._records.get(scope)
        if record is not None and record.format != FORMAT:
            raise malformed_reservation(
                f"this release cannot read the idempotency record: its format is {record.format!r}. Deploy the newer "
                "release that wrote it"
            )
        return record


_FREE: Final = "attribute_not_exists(#scope) OR expires_at <= :now"
_UNCHANGED: Final = "nonce = :before"


class ReservationTable(DynamoDbCalls):
    unavailable = RecordsUnavailable
    unknown = RecordOutcomeUnknown


class DynamoDbReservationStore:
    """Records keyed by `scope`, beside those of tasks."""

    def __init__(self, dynamodb: ReservationTable, table: str) -> None:
        self._items = Items(dynamodb, table, ("scope",), item_of_model, reservation_of)

    def get(self, scope: str) -> Reservation | None:
        return self._items.get({"scope": scope})

    def reserve(self, record: Reservation, now: datetime) -> None:
        self._items.put_once(
            record,
            ReservationConflict,
            ConditionExpression=_FREE,
            ExpressionAttributeNames={"#scope": "scope"},
            ExpressionAttributeValues=to_item({":now": int(now.timestamp())}),
        )

    def replace(self, record: Reservation, before: Reservation) -> None:
        values = to_item({":before": before.nonce})
        self._items.put_once(
            record, ReservationConflict, ConditionExpression=_UNCHANGED, ExpressionAttributeValues=values
        )


def reservation_of(item: Mapping[str, Any]) -> Reservation:
    """Return a stored reservation. Raises IdempotencyError (MALFORMED_RECORD)."""
    if (item.get("kind"), item.get("format")) != (KIND, FORMAT):
        found = f"its kind is {item.get('kind')!r}, its format {item.get('format')!r}"
        raise malformed_reservation(
            f"this release cannot read the idempotency record: {found}. Deploy the newer release that wrote it"
        )
    if "packed_body" in item:
        if not isinstance(item.get("packed_body"), Binary):
            raise malformed_reservation("idempotency record: packed_body: must be binary")
        item = {**item, "packed_body": item["packed_body"].value}
    return model_of_item(Reservation, item, lambda text: malformed_reservation(f"idempotency record: {text}"))


_FAILURES: Final = 3
_SECONDS: Final = 10.0
_Result = TypeVar("_Result")


class BreakingStore:
    """A circuit breaker around `store`: after `failures` failed calls in a row it is not called for `seconds`.
    Thread-safe. Meanwhile callers get RecordsUnavailable at once instead of a time-out each; then one call tries it
    again. `opened` is called at the start of each such pause."""

    def __init__(
        self,
        store: ReservationStore,
        *,
        opened: Callable[[], None],
        failures: int = _FAILURES,
        seconds: float = _SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._opened = opened
        self._failures = failures
        self._seconds = seconds
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._failed = 0
        self._closed_until = 0.0

    def get(self, scope: str) -> Reservation | None:
        return self._called(lambda: self._store.get(scope))

    def reserve(self, record: Reservation, now: datetime) -> None:
        self._called(lambda: self._store.reserve(record, now))

    def replace(self, record: Reservation, before: Reservation) -> None:
        self._called(lambda: self._store.replace(record, before))

    def _called(self, call: Callable[[], _Result]) -> _Result:
        self._admit()
        try:
            result = call()
        except (RecordsUnavailable, RecordOutcomeUnknown):
            self._note_failure()
            raise
        except BaseException:
            self._note_answer()  # a conflict or an unreadable record: the store answered
            raise
        self._note_answer()
        return result

    def _admit(self) -> None:
        with self._lock:
            if self._failed < self._failures:
                return
            now = self._monotonic()
            if now < self._closed_until:
                raise RecordsUnavailable(
                    "the gateway cannot reach the table of idempotency keys, and waits some seconds before it tries "
                    "again. Nothing was done. Repeat the request with its key"
                )
            self._closed_until = now + self._seconds  # this call tries the store, others do not

    def _note_failure(self) -> None:
        with self._lock:
            self._failed += 1
            opens = self._failed >= self._failures
            if opens:
                self._closed_until = self._monotonic() + self._seconds
        if opens:
            self._opened()

    def _note_answer(self) -> None:
        with self._lock:
            self._failed = 0
