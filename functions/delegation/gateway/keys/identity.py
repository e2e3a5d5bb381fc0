"""What makes a keyed request the same: its key, its scope and its payload."""

import hashlib
import json
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Final
from uuid import NAMESPACE_URL, uuid5

from delegation.gateway.errors import GatewayError, body_too_deep
from delegation.gateway.messages import CatalogRequest
from delegation.gateway.routing import KEY_HEADER
from delegation.gateway.spelling import canonical_path
from delegation.idempotency.canonical import RULE, NotCanonicalizable, Scope, payload_hashes

_KEY: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{0,254}")
"""Idempotency-Key proposal, "API Design"."""


def key_of(request: CatalogRequest) -> str:
    """Return the request's key. Raises GatewayError (INVALID_IDEMPOTENCY_KEY)."""
    given = [value for name, value in request.headers if name.lower() == KEY_HEADER.lower()]
    if len(given) != 1 or _KEY.fullmatch(given[0]) is None:
        raise GatewayError(
            f"{KEY_HEADER}: must be given once, with 1 to 255 letters, digits, '_', '.' or '-', and begin with a "
            "letter or digit; a UUID is one. Nothing was done",
            code="INVALID_IDEMPOTENCY_KEY",
            status=400,
            kind="BadRequestException",
        )
    return given[0]


def scope_of(request: CatalogRequest, key: str, *, principal: str, realm: str) -> Scope:
    """Return the key's scope: method, canonical path (which names the catalog), realm, and who sent it."""
    return Scope(principal, realm, request.method, f"/{canonical_path(request.path)}", key)


def catalog_key_of(scope: Scope, payload: Callable[[int], str]) -> str:
    """Return the key under which the catalog itself remembers a request. Polaris compares only the UUID that it records
    on the table, so the same key of another caller, operation or payload must become another UUID."""
    return str(uuid5(NAMESPACE_URL, f"{scope.id}/{payload(RULE)}"))


def payload_of(request: CatalogRequest) -> Callable[[int], str]:
    """Return the payload's hashes by rule: of the query and the body, JSON in canonical form. Raises GatewayError
    (BODY_TOO_DEEP)."""
    try:
        with suppress(ValueError, NotCanonicalizable):
            return payload_hashes({"query": request.query, "json": json.loads(request.body)})
    except RecursionError:
        raise body_too_deep() from None
    return payload_hashes({"query": request.query, "sha256": hashlib.sha256(request.body).hexdigest()})
