"""Who calls the catalog through the gateway, and how its bearer token is verified."""

import base64
import json
from dataclasses import dataclass, field
from typing import Final

from delegation.edge.errors import Unauthorized
from delegation.edge.trust.tokens import Principal, TokenVerifier
from delegation.gateway.errors import GatewayError
from delegation.gateway.messages import CatalogRequest

REALM_HEADER: Final = "Polaris-Realm"
_ROLE: Final = "PRINCIPAL_ROLE:"
_ALL: Final = "ALL"


@dataclass(frozen=True, slots=True)
class GatewayCaller:
    """The caller of a request; the service acts for it with its own `authorization` header. `principal` and `roles`
    (principal roles) come from a verified token; `principal` is None if the gateway has no key to verify tokens with.
    `realm` is the realm header's value. `claimed` is the name in an unverified token: never act on it or show data for
    it."""

    principal: str | None
    authorization: str | None = field(default=None, repr=False)
    realm: str | None = None
    roles: frozenset[str] = frozenset()
    claimed: str | None = None


class TokenCallers:
    """Callers by their tokens: `sub` (Polaris' principal name), else `client_id`; without `tokens` none is verified."""

    def __init__(self, tokens: TokenVerifier | None, *, realm_header: str = REALM_HEADER) -> None:
        self._tokens = tokens
        self._realm_header = realm_header

    def caller(self, request: CatalogRequest) -> GatewayCaller:
        """Return the caller; its principal is None if the token proves none. Raises KeysUnavailable, and GatewayError
        (HEADER_REPEATED) for two tokens or realms."""
        authorization, realm = (_only(request, name) for name in ("Authorization", self._realm_header))
        verified = self._verified(authorization)
        if verified is None:
            return GatewayCaller(None, authorization, realm, claimed=_claimed(authorization))
        principal = verified.subject or verified.client_id
        if not _is_text(principal):
            return GatewayCaller(None, authorization, realm)
        named = {each.removeprefix(_ROLE) for each in verified.scopes if each.startswith(_ROLE)}
        return GatewayCaller(principal, authorization, realm, frozenset(named - {_ALL}))

    def _verified(self, authorization: str | None) -> Principal | None:
        if self._tokens is None:
            return None
        try:
            return self._tokens.verify(authorization)
        except Unauthorized:
            return None


def _claimed(authorization: str | None) -> str | None:
    """Return whom a JSON Web Token names, without any check; None for a token of another form."""
    parts = (authorization or "").rpartition(" ")[2].split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, RecursionError):
        return None
    named = (claims.get("sub") or claims.get("client_id")) if isinstance(claims, dict) else None
    return named if isinstance(named, str) and _is_text(named) else None


def _is_text(name: str) -> bool:
    """Return whether a name has no lone surrogate: JSON can escape one, and nothing can store or send it."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _only(request: CatalogRequest, name: str) -> str | None:
    given = [value for known, value in request.headers if known.lower() == name.lower()]
    if len(given) > 1:
        raise GatewayError(
            f"{name}: is given {len(given)} times, and servers differ in which one counts; nothing was done. Send one",
            code="HEADER_REPEATED",
            status=400,
        )
    return given[0] if given else None
