"""Verification of OAuth2 bearer tokens (RFC 6750): JWTs with type, signature, issuer, audience and times. The key comes
from the issuer's JWKS (RFC 7517), cached and fetched again for an unknown key id, or from a setting if the issuer
publishes none, like Polaris' own token broker. Algorithms are asymmetric and follow from the key, not from the token
(RFC 8725, Sections 2.1 and 3.1)."""

import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from http.client import HTTPException
from typing import Any, Final, Protocol
from urllib.request import HTTPHandler, HTTPSHandler, OpenerDirector, ProxyHandler, Request

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from jwt.types import Options

from delegation.edge.errors import Forbidden, KeysUnavailable, Unauthorized
from delegation.edge.trust.cache import CachedSource, CachePolicy

PublicKey = RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey

_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_EC: Final = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
_SCHEME: Final = "bearer "
_LONGEST_TOKEN: Final = 8192
_LONGEST_NAME: Final = 256
_TYPES: Final = frozenset({"jwt", "at+jwt", "application/at+jwt"})
"""Access tokens (RFC 9068, Section 4) and plain JWTs, which Polaris issues; other types have another purpose."""
_LATEST_SECONDS: Final = 253_402_300_799
"""The end of the year 9999: a later time is a mistake, or means a token without an end."""
_THUMBPRINT: Final = "x5t#S256"
_SUBJECT: Final = "sub:"
_CLIENT: Final = "client:"
# TokenVerifier checks the claims itself: against its own clock, and without quoting them in errors.
_SIGNATURE_ONLY: Final[Options] = {
    "verify_signature": True,
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
    "verify_aud": False,
    "verify_iss": False,
    "verify_sub": False,
    "verify_jti": False,
    "enforce_minimum_key_length": True,
}


class TokenBinding(StrEnum):
    """Whether tokens must be bound to the client certificate (RFC 8705); a bound one is checked in either case."""

    OPTIONAL = "optional"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """A public key, its permitted algorithms, and its id (None: it matches any token)."""

    key: PublicKey = field(repr=False)
    algorithms: tuple[str, ...]
    kid: str | None = None


class KeySource(Protocol):
    def keys(self, kid: str | None) -> Iterable[VerificationKey]:
        """Return the keys that may have signed a token with this key id. Raises KeysUnavailable."""


@dataclass(frozen=True, slots=True)
class StaticKeys:
    """A KeySource of configured keys, tried for every token's key id; two while the issuer replaces its key."""

    configured: tuple[VerificationKey, ...]

    def keys(self, kid: str | None) -> Iterable[VerificationKey]:  # noqa: ARG002 - part of the protocol
        return self.configured


@dataclass(frozen=True, slots=True)
class Principal:
    """The authenticated caller; idempotency keys are scoped to its `client_id`. For a token without client that is
    `sub:` and the subject, which is no client's id (see `client_text`). `thumbprint` is that of the only certificate
    with which the token may be used, None if it is not bound."""

    client_id: str
    subject: str
    scopes: frozenset[str]
    thumbprint: str | None = None


@dataclass(frozen=True, slots=True)
class TrustedIssuer:
    """An issuer whose tokens are verified only with its own keys. `audience` is None for issuers that set none, such as
    Polaris' token broker. A token with an audience is then refused: it is for another service."""

    name: str
    keys: KeySource
    audience: str | None = None


@dataclass(frozen=True, slots=True)
class TokenVerifier:
    """Verifies bearer tokens of `issuers`; two while the callers change to another issuer."""

    issuers: tuple[TrustedIssuer, ...]
    _: KW_ONLY
    clock: Callable[[], datetime]
    leeway: timedelta = timedelta(seconds=30)

    def verify(self, authorization: str | None) -> Principal:
        """Return the caller that an Authorization header proves. Raises KeysUnavailable, Unauthorized (RFC 6750)."""
        token = bearer_token(authorization)
        issuer = self._issuer_of(token)
        claims = _signed(token, issuer.keys)
        if issuer.audience is None and "aud" in claims:
            raise Unauthorized("the token has an audience, but none is configured (token-audience)")
        if issuer.audience is not None and issuer.audience not in _listed(claims.get("aud")):
            raise Unauthorized("the token's audience is not the configured one (token-audience)")
        self._check_time(claims)
        scopes = frozenset(_words(claims.get("scope"))) | frozenset(_words(claims.get("scp")))
        return Principal(_client_of(claims), _text(claims.get("sub")) or "", scopes, _thumbprint_of(claims))

    def _issuer_of(self, token: str) -> TrustedIssuer:
        """Return the issuer that the token names; its keys then have to prove it (RFC 8725, Section 3.8)."""
        try:
            claims = jwt.decode(token, options={"verify_signature": False})
        except (jwt.PyJWTError, RecursionError) as error:
            raise Unauthorized(f"not a token: {type(error).__name__}") from None
        issuer = next((trusted for trusted in self.issuers if trusted.name == claims.get("iss")), None)
        if issuer is None:
            raise Unauthorized("the token's issuer is not a configured one (token-issuer)")
        return issuer

    def _check_time(self, claims: Mapping[str, Any]) -> None:
        now, leeway = self.clock().timestamp(), self.leeway.total_seconds()
        # `not a > b` also refuses NaN, for which every comparison is false; integers are compared exactly.
        if not _seconds(claims.get("exp")) > now - leeway:
            raise Unauthorized("the token is expired or has no expiry")
        if not _seconds(claims.get("nbf", 0)) <= now + leeway:
            raise Unauthorized("the token is not yet valid")
        if math.isnan(_seconds(claims.get("iat", 0))):
            raise Unauthorized("the token's claim iat is not a time")


def _signed(token: str, keys: KeySource) -> Mapping[str, Any]:
    try:
        header = jwt.get_unverified_header(token)
    except jwt.PyJWTError as error:
        raise Unauthorized(f"not a token: {type(error).__name__}") from None
    if not _is_access_token(header):
        raise Unauthorized("the token's type is neither JWT nor at+jwt")
    algorithm = header.get("alg")
    candidates = [key for key in keys.keys(header.get("kid")) if algorithm in key.algorithms]
    if not candidates:
        raise Unauthorized("no key of the issuer has the token's key id and algorithm")
    for candidate in candidates:
        try:
            return jwt.decode(token, candidate.key, algorithms=[str(algorithm)], options=_SIGNATURE_ONLY)
        except jwt.InvalidSignatureError:
            continue
        except jwt.PyJWTError as error:
            raise Unauthorized(f"not a token: {type(error).__name__}") from None
    raise Unauthorized("the token's signature was not made with the issuer's key")


def require_scope(principal: Principal, scope: str) -> None:
    """Raise Forbidden unless the token has the scope (RFC 6750, Section 3.1: insufficient_scope)."""
    if scope not in principal.scopes:
        raise Forbidden(f"the token lacks the scope {scope}", code="INSUFFICIENT_SCOPE")


def require_client(principal: Principal, clients: Collection[str]) -> None:
    """Raise Forbidden unless the token's client is pinned; without pinned clients any is admitted."""
    if clients and principal.client_id not in clients:
        raise Forbidden(
            "the token's client is not admitted (delegation:token-client-id, delegation:operator-client-ids)",
            code="CLIENT_REFUSED",
        )


def require_binding(principal: Principal, thumbprint: str, binding: TokenBinding) -> None:
    """Raise Unauthorized for a token bound to another certificate (RFC 8705), or unbound if it must be bound."""
    if principal.thumbprint is None and binding is TokenBinding.REQUIRED:
        raise Unauthorized("the token is not bound to a certificate, but delegation:token-binding is required")
    if principal.thumbprint is not None and principal.thumbprint != thumbprint:
        raise Unauthorized("the token is bound to another certificate than the request's client certificate")


def bearer_token(authorization: str | None) -> str:
    """Return the token of a Bearer Authorization header (RFC 6750, Section 2.1). Raises Unauthorized."""
    if authorization is None:
        raise Unauthorized("the request has no Authorization header, or more than one")
    token = authorization[len(_SCHEME) :].strip()
    if authorization[: len(_SCHEME)].lower() != _SCHEME or not token:
        raise Unauthorized("the Authorization header's scheme is not Bearer")
    if len(token) > _LONGEST_TOKEN or not token.isascii():
        raise Unauthorized("not a token: too long or not ASCII")
    return token


def public_key(pem: str) -> VerificationKey:
    """Parse a public key in PEM. Raises ValueError for other text or an unsupported type."""
    try:
        key = load_pem_public_key(pem.strip().encode())
    except ValueError:
        raise ValueError("not a public key in PEM") from None
    algorithms = algorithms_of(key)
    if not algorithms or not isinstance(key, PublicKey):
        raise ValueError("must be an RSA, EC (P-256, P-384, P-521) or Ed25519 public key")
    return VerificationKey(key, algorithms)


def algorithms_of(key: object) -> tuple[str, ...]:
    """Return the JWS algorithms (RFC 7518, RFC 8037) of a public key, none for any other object."""
    match key:
        case RSAPublicKey():
            return _RSA
        case EllipticCurvePublicKey():
            return tuple(name for curve, name in _EC.items() if curve == key.curve.name)
        case Ed25519PublicKey():
            return ("EdDSA",)
        case _:
            return ()


def _client_of(claims: Mapping[str, Any]) -> str:
    """Return `client_id` (RFC 9068, Section 2.2), else `azp` (OpenID Connect Core, Section 2), else `sub:` + `sub`."""
    for name in ("client_id", "azp", "sub"):
        if name in claims:
            client = _text(claims[name])
            if client is None:
                raise Unauthorized(f"the token's claim {name} is empty, too long or not text, so it is not a client id")
            return f"{_SUBJECT}{client}" if name == "sub" else client_text(client)
    raise Unauthorized("the token has no client id")


def _thumbprint_of(claims: Mapping[str, Any]) -> str | None:
    """Return the thumbprint of the certificate to which a token is bound, None without `cnf`. A token with another
    confirmation (RFC 7800, such as DPoP's `jkt`), which is not checked here, is refused: as a plain bearer token
    anybody who has it could use it."""
    if "cnf" not in claims:
        return None
    confirmation = claims["cnf"]
    thumbprint = confirmation.get(_THUMBPRINT) if isinstance(confirmation, dict) and len(confirmation) == 1 else None
    if not isinstance(thumbprint, str) or not thumbprint:
        raise Unauthorized(
            "the token's claim cnf binds the token, but not to a certificate by x5t#S256 "
            "(RFC 8705). Have the issuer bind it to the client certificate, or issue it without cnf"
        )
    return thumbprint


def client_text(client_id: str) -> str:
    """Return a client's id so that it differs from every subject's; only an id that starts like one is changed."""
    return f"{_CLIENT}{client_id}" if client_id.startswith((_SUBJECT, _CLIENT)) else client_id


def _is_access_token(header: Mapping[str, Any]) -> bool:
    """Return whether the header's `typ`, which is optional (RFC 7519, Section 5.1), names a JWT or an access token."""
    kind = header.get("typ", "JWT")
    return isinstance(kind, str) and kind.lower() in _TYPES


def _text(value: object) -> str | None:
    fits = isinstance(value, str) and 0 < len(value) <= _LONGEST_NAME and value.isprintable()
    return value if fits and isinstance(value, str) else None


def _seconds(value: object) -> float:
    """Return a NumericDate (RFC 7519, Section 2) from 1970 to 9999, NaN for any other value."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    return value if 0 <= value <= _LATEST_SECONDS else math.nan


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


def _words(value: object) -> list[str]:
    """Return scopes from space-separated text (RFC 8693, Section 4.2) or from a list, as some issuers set `scp`."""
    if isinstance(value, str):
        return value.split(" ")
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


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
                    raise KeysUnavailable(
                        f"the token issuer answered {response.status} to the request for its keys. Check the address "
                        "of the key set"
                    )
                body = response.read(_MAX_ANSWER_BYTES + 1)
        except (OSError, HTTPException) as error:
            raise KeysUnavailable(
                f"the token issuer's keys cannot be fetched: {type(error).__name__}. Check the network and the address "
                "of the key set"
            ) from None
        if len(body) > _MAX_ANSWER_BYTES:
            raise KeysUnavailable(f"the token issuer's key set is larger than {_MAX_ANSWER_BYTES} bytes")
        return tuple(key for member in _members(body) if (key := _key_of(member)) is not None)


def _members(body: bytes) -> list[object]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    members = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(members, list):
        raise KeysUnavailable("the token issuer's answer is not a key set. Check the address of the key set")
    return members


def _key_of(member: object) -> VerificationKey | None:
    """Return a public signature key, None for any other, which is ignored (RFC 7517, Section 5)."""
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
