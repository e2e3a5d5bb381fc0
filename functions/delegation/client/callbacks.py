"""For a receiver of callbacks: verifies that the service sent one just now, and parses it."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from delegation.client.errors import DelegationClientError
from delegation.timestamps import utc_now
from delegation.wire.signatures import KEY_HEADER, MOST_KEYS, SHORTEST_KEY, SIGNATURE_HEADER, is_signed, parsed

FRESH_FOR: Final = timedelta(minutes=5)


class CallbackRefused(DelegationClientError):
    """A request is no callback of the service, or not a recent one; answer it with 401 and do nothing else."""

    code = "CALLBACK_REFUSED"


class EndOfTask(BaseModel):
    """The body of a callback, and the detail of an event, with the unknown members of a newer service.
    `notification_id` is also the Idempotency-Key. Ends of one task may arrive in any order: the greatest `version` is
    the newest."""

    model_config = ConfigDict(frozen=True, extra="allow", hide_input_in_errors=True)

    notification_id: str
    type: str
    channel: str
    task_id: str
    version: int
    task_type: str
    status: str
    error_code: str | None = None
    result_summary: str | None = None
    partly_deleted: bool = False
    created_ts: AwareDatetime
    ended_ts: AwareDatetime
    polaris_correlation_id: str | None = None
    table_identity: Mapping[str, Any] | None = None

    @property
    def succeeded(self) -> bool:
        return self.status == "SUCCESS"


class CallbackVerifier:
    """Verifies callbacks with the agreed key, and during a replacement also with the next or the former one."""

    def __init__(
        self,
        keys: Sequence[str],
        *,
        fresh_for: timedelta = FRESH_FOR,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        """`keys` are one or two texts of at least 32 bytes. Raises ValueError for others, without quoting them."""
        self._keys = tuple(key.encode() for key in keys)
        if not 1 <= len(self._keys) <= MOST_KEYS or any(len(key) < SHORTEST_KEY for key in self._keys):
            raise ValueError(f"callbacks are verified with one or {MOST_KEYS} keys of at least {SHORTEST_KEY} bytes")
        self._fresh_for = fresh_for
        self._clock = clock

    def verify(self, headers: Mapping[str, str], body: bytes) -> EndOfTask:
        """Return a callback's content. The service repeats a callback until it is answered with 2xx, with the same
        Idempotency-Key and a new time: answer 200 to a `notification_id` that you have already processed, and do
        nothing else. Raises CallbackRefused unless the service signed it within `fresh_for` of now."""
        named = {name.lower(): value for name, value in headers.items()}
        key, header = named.get(KEY_HEADER.lower()), named.get(SIGNATURE_HEADER.lower())
        if not key or not header:
            raise CallbackRefused(f"{KEY_HEADER} or {SIGNATURE_HEADER} is missing")
        signature = parsed(header)
        if signature is None or not is_signed(signature, self._keys, idempotency_key=key, body=body):
            raise CallbackRefused("the signature was made with none of this receiver's keys")
        if abs(self._clock().timestamp() - signature.time) > self._fresh_for.total_seconds():
            raise CallbackRefused(
                f"the signature's time differs from this clock by more than {self._fresh_for.total_seconds():.0f} s: "
                "check the clock. A callback that is too old stays refused"
            )
        try:
            ended = EndOfTask.model_validate_json(body)
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            place = ".".join(map(str, first["loc"])) or "body"
            raise CallbackRefused(f"the body is not a callback's: {place}: {first['msg']}") from None
        if ended.notification_id != key:
            raise CallbackRefused(f"{KEY_HEADER} differs from the notification_id in the body")
        return ended
