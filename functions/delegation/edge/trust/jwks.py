"""The issuer's JSON Web Key Set (RFC 7517) over HTTPS: cached, refetched for an unknown key id, never hammered."""

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from http.client import HTTPException
from threading import Lock
from typing import Final, Protocol
from urllib.request import HTTPHandler, HTTPSHandler, OpenerDirector, ProxyHandler, Request

import jwt
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from delegation.edge.errors import KeysUnavailable
from delegation.edge.trust.tokens import PublicKey, VerificationKey, algorithms_of

_KINDS: Final[Mapping[str, tuple[type[RSAAlgorithm | ECAlgorithm | OKPAlgorithm], tuple[str, ...]]]] = {
    "RSA": (RSAAlgorithm, ("n", "e")),
    "EC": (ECAlgorithm, ("crv", "x", "y")),
    "OKP": (OKPAlgorithm, ("crv", "x")),
}
"""Asymmetric key types and the members that a public key of each has (RFC 7518 §6, RFC 8037 §2)."""
_LARGEST_ANSWER: Final = 256 * 1024
_logger: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CachePolicy:
    """How long keys are used before they are asked for again, and how long past that while the issuer is silent.

    `pause` is the least time between two requests: tokens with made-up key ids cannot make us hammer the issuer.
    """

    fresh: timedelta = timedelta(minutes=10)
    stale: timedelta = timedelta(hours=1)
    pause: timedelta = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class _HeldKeys:
    keys: tuple[VerificationKey, ...]
    since: datetime


class KeySetResponse(Protocol):
    """As much of an HTTP response as is read here."""

    @property
    def status(self) -> int: ...

    def read(self, amount: int, /) -> bytes: ...


Get = Callable[[str], AbstractContextManager[KeySetResponse]]


def https_get(timeout_seconds: float) -> Get:
    """GET with the standard library, which PyJWT has loaded anyway: another client would lengthen every cold start.

    A redirect is not followed; it is an answer like any other. The returned function raises OSError and HTTPException.
    """
    opener = OpenerDirector()
    for handler in (ProxyHandler(), HTTPHandler(), HTTPSHandler()):
        opener.add_handler(handler)
    get = partial(opener.open, timeout=timeout_seconds)
    return lambda url: get(Request(url, headers={"Accept": "application/json"}))  # noqa: S310 - a setting, http(s) only


class JwksKeys:
    """KeySource over a JWKS URL; safe to share between threads, which cause a single request at a time."""

    def __init__(
        self,
        url: str,
        *,
        get: Get,
        clock: Callable[[], datetime],
        policy: CachePolicy | None = None,
    ) -> None:
        self._url = url
        self._get = get
        self._clock = clock
        self._policy = policy or CachePolicy()
        self._lock = Lock()
        self._held: _HeldKeys | None = None
        self._asked: datetime | None = None

    def keys(self, kid: str | None) -> Iterable[VerificationKey]:
        """The keys with this id, those without one included; for a token that names none, the only key of the set."""
        with self._lock:
            now = self._clock()
            held = self._held
            if held is None or now >= held.since + self._policy.fresh:
                held = self._refresh(now)
            if not (found := _matching(held.keys, kid)):
                # A rotated key: the issuer may have published it since.
                found = _matching(self._refresh(now).keys, kid)
            return found

    def _refresh(self, now: datetime) -> _HeldKeys:
        held = self._held
        if held is not None and self._asked is not None and now < self._asked + self._policy.pause:
            return self._usable(held, now)
        self._asked = now
        try:
            fetched = self._fetch()
        except KeysUnavailable:
            if held is None:
                raise
            _logger.warning("the token issuer's keys could not be fetched; the ones held are used on")
            return self._usable(held, now)
        self._held = _HeldKeys(fetched, now)
        return self._held

    def _usable(self, held: _HeldKeys, now: datetime) -> _HeldKeys:
        if now >= held.since + self._policy.fresh + self._policy.stale:
            raise KeysUnavailable("the token issuer's keys are too old and cannot be fetched")
        return held

    def _fetch(self) -> tuple[VerificationKey, ...]:
        try:
            with self._get(self._url) as response:
                if response.status != 200:
                    raise KeysUnavailable(f"the token issuer answered {response.status} for its keys")
                body = response.read(_LARGEST_ANSWER + 1)
        except (OSError, HTTPException) as error:
            raise KeysUnavailable(f"the token issuer's keys cannot be fetched: {type(error).__name__}") from None
        if len(body) > _LARGEST_ANSWER:
            raise KeysUnavailable("the token issuer's key set is too large")
        return tuple(key for member in _members(body) if (key := _key_of(member)) is not None)


def _members(body: bytes) -> list[object]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    members = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(members, list):
        raise KeysUnavailable("the token issuer's answer is not a key set")
    return members


def _key_of(member: object) -> VerificationKey | None:
    """A public signature key, None for a member to pass over: symmetric, private, to encrypt, unknown (RFC 7517 §5)."""
    if not isinstance(member, dict) or "d" in member or member.get("use", "sig") != "sig":
        return None
    reader, needed = _KINDS.get(str(member.get("kty")), (None, ()))
    if reader is None or not all(isinstance(member.get(name), str) for name in needed):
        return None
    try:
        key = reader.from_jwk(member)
    except (jwt.InvalidKeyError, ValueError):
        return None
    if not isinstance(key, PublicKey):
        return None
    algorithms = tuple(name for name in algorithms_of(key) if member.get("alg", name) == name)
    kid = member.get("kid")
    return VerificationKey(key, algorithms, kid if isinstance(kid, str) else None) if algorithms else None


def _matching(keys: tuple[VerificationKey, ...], kid: str | None) -> tuple[VerificationKey, ...]:
    if kid is None:
        return keys if len(keys) == 1 else ()
    return tuple(key for key in keys if key.kid in {kid, None})
