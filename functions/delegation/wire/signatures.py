"""The signature of a callback: HMAC-SHA256 (RFC 2104) over its time, its Idempotency-Key and its body.

    Delegation-Signature: t=1795348800,v1=<64 hex digits>[,v1=<64 hex digits>]

The signed bytes are `v1:<t>:<Idempotency-Key>:` and the body. While a key is replaced there is one `v1` for each of the
two keys, in no particular order, so a receiver that has only one of them can verify the callback.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

SIGNATURE_HEADER: Final = "Delegation-Signature"
KEY_HEADER: Final = "Idempotency-Key"
MOST_KEYS: Final = 2
SHORTEST_KEY: Final = 32
"""The shortest key in bytes: as long as the hash (RFC 2104, Section 3)."""
_TIME: Final = re.compile(r"t=(\d{1,12})", re.ASCII)
_VALUE: Final = re.compile(r"v1=([0-9a-f]{64})", re.ASCII)


@dataclass(frozen=True, slots=True)
class CallbackSignature:
    """A parsed header: the time in seconds since 1970, and the signatures as hex digits."""

    time: int
    values: tuple[str, ...]


def signature(keys: Sequence[bytes], *, time: int, idempotency_key: str, body: bytes) -> str:
    values = [f"v1={_hmac(key, time, idempotency_key, body)}" for key in keys]
    return ",".join([f"t={time}", *values])


def parsed(header: str) -> CallbackSignature | None:
    """Return a header's time and signatures, None if it is malformed; parts of later versions are ignored."""
    first, *rest = header.split(",")
    stamp = _TIME.fullmatch(first)
    values = tuple(match[1] for part in rest[: 2 * MOST_KEYS] if (match := _VALUE.fullmatch(part)))
    return CallbackSignature(int(stamp[1]), values) if stamp and values else None


def is_signed(signature: CallbackSignature, keys: Iterable[bytes], *, idempotency_key: str, body: bytes) -> bool:
    """Return whether one of the keys made one of the signatures; every pair is compared, in constant time."""
    matches = [
        hmac.compare_digest(_hmac(key, signature.time, idempotency_key, body), value)
        for key in keys
        for value in signature.values
    ]
    return any(matches)


def _hmac(key: bytes, time: int, idempotency_key: str, body: bytes) -> str:
    signed = f"v1:{time}:{idempotency_key}:".encode() + body
    return hmac.new(key, signed, hashlib.sha256).hexdigest()
