"""The token issuer's JSON Web Key Set (RFC 7517): cached, and fetched again for an unknown key id."""

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from functools import partial
from http.client import HTTPException
from typing import Final, Protocol
from urllib.request import HTTPHandler, HTTPSHandler, OpenerDirector, ProxyHandler, Request

import jwt
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from delegation.edge.errors import KeysUnavailable
from delegation.edge.trust.cache import CachedSource, CachePolicy
from delegation.edge.trust.tokens import PublicKey, VerificationKey, algorithms_of

_KEY_TYPES: Final[Mapping[str, tuple[type[RSAAlgorithm | ECAlgorithm | OKPAlgorithm], tuple[str, ...]]]] = {
    "RSA": (RSAAlgorithm, ("n", "e")),
    "EC": (ECAlgorithm, ("crv", "x", "y")),
    "OKP": (OKPAlgorithm, ("crv", "x")),
}
"""Asymmetric key types and the members of their public keys (RFC 7518, Section 6; RFC 8037, Section 2)."""
_MAX_ANSWER_BYTES: Final = 256 * 1024


class KeySetResponse(Protocol):
    """The part of an HTTP response that is needed."""

    @property
    def status(self) -> int: ...

    def read(self, amount: int, /) -> bytes: ...


Get = Callable[[str], AbstractContextManager[KeySetResponse]]


def https_get(timeout_seconds: float) -> Get:
    """Return a function that GETs a URL, follows no redirect, and raises OSError and HTTPException. It uses the
    standard library, which PyJWT imports anyway; another client would lengthen every cold start."""
    opener = OpenerDirector()
    for handler in (ProxyHandler(), HTTPHandler(), HTTPSHandler()):
        opener.add_handler(handler)
    get = partial(opener.open, timeout=timeout_seconds)
    return lambda url: get(Request(url, headers={"Accept": "application/json"}))  # noqa: S310 - a setting, http(s) only


class JwksKeys:
    """A KeySource that reads a JWKS URL; thread-safe, with one request at a time."""

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
        self._cache: CachedSource[tuple[VerificationKey, ...]] = CachedSource(
            lambda _former: self._fetch(),
            what="the token issuer's keys",
            unavailable=KeysUnavailable,
            clock=clock,
            policy=policy or CachePolicy(),
        )

    def keys(self, kid: str | None) -> Iterable[VerificationKey]:
        """Return the keys with this id or without any; without `kid`, the only key of the set. For an unknown id the
        keys are fetched again: the issuer may have rotated them."""
        return _matching(self._cache.get(lambda keys: bool(_matching(keys, kid))), kid)

    def _fetch(self) -> tuple[VerificationKey, ...]:
        try:
            with self._get(self._url) as response:
                if response.status != 200:
                    raise KeysUnavailable(f"the token issuer answered {response.status} to the request for its keys")
                body = response.read(_MAX_ANSWER_BYTES + 1)
        except (OSError, HTTPException) as error:
            raise KeysUnavailable(f"the token issuer's keys cannot be fetched: {type(error).__name__}") from None
        if len(body) > _MAX_ANSWER_BYTES:
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
    """Return a public signature key, None for any other, which is to be ignored (RFC 7517, Section 5)."""
    if not isinstance(member, dict) or "d" in member or member.get("use", "sig") != "sig":
        return None
    reader, needed = _KEY_TYPES.get(str(member.get("kty")), (None, ()))
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
