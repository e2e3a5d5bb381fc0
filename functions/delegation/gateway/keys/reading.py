"""The catalog's state as a request's caller sees it, with its own token, realm and access delegation."""

import json
from collections.abc import Callable, Sequence
from typing import Final
from uuid import uuid4

from delegation.gateway.errors import CatalogOutcomeUnknown, CatalogUnavailable, MutationNotVerified
from delegation.gateway.forwarding import without
from delegation.gateway.keys.genuine import is_absence, is_error
from delegation.gateway.keys.rules.rule import Found, Lookup, State
from delegation.gateway.messages import CatalogAnswer, CatalogRequest
from delegation.gateway.routing import KEY_HEADER

Forward = Callable[[CatalogRequest], CatalogAnswer]
"""Sends a request to the catalog; raises CatalogUnavailable and CatalogOutcomeUnknown."""

_OF_THE_REQUEST: Final = (
    "accept-encoding",
    "content-encoding",
    "content-type",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-unmodified-since",
    "range",
    KEY_HEADER,
)
"""Headers of the mutation that a read does not have."""
_DELEGATION: Final = "X-Iceberg-Access-Delegation"
_PLAIN: Final = ("Accept-Encoding", "identity")


class CallersView:
    def __init__(self, forward: Forward, request: CatalogRequest) -> None:
        self._forward = forward
        self._request = request

    def states(self, lookups: Sequence[Lookup]) -> tuple[State, ...]:
        """Read all lookups. Raises MutationNotVerified for what cannot be read."""
        return tuple(self.state(each) for each in lookups)

    def state(self, lookup: Lookup) -> State:
        """Read one lookup. Raises MutationNotVerified if it cannot be read."""
        try:
            answer = self._forward(self._read(lookup))
        except (CatalogUnavailable, CatalogOutcomeUnknown) as error:
            raise MutationNotVerified(
                f"/{lookup.path} could not be read to see what a call with this key did ({error.code}); repeat the "
                "request with the same key"
            ) from error
        if answer.status == 200:
            return Found(answer, _document(answer, lookup))
        if is_absence(answer):
            return None
        raise MutationNotVerified(
            f"what a call with this key did is uncertain: {answer.status} was answered when /{lookup.path} was read as "
            "the caller. If that is a refusal, give its principal the privilege to load it (TABLE_READ_PROPERTIES, "
            "VIEW_READ_PROPERTIES or NAMESPACE_READ_PROPERTIES); then repeat the request with the same key",
            is_refused=answer.status == 403 and is_error(answer),  # after 401 another token may show it
        )

    def has_recorded(self, lookup: Lookup, key: str) -> object:
        """Return the UUID of the table on which the catalog has recorded a key, None if it has not. Sends a commit that
        cannot apply, as it asserts a UUID that no table has: Polaris answers a key that it has applied with the table
        (IcebergCatalogHandler), and refuses another."""
        body = {"requirements": [{"type": "assert-table-uuid", "uuid": str(uuid4())}], "updates": []}
        headers = (*self._read(lookup).headers, ("Content-Type", "application/json"), (KEY_HEADER, key))
        try:
            answer = self._forward(CatalogRequest("POST", lookup.path, "", headers, json.dumps(body).encode()))
        except (CatalogUnavailable, CatalogOutcomeUnknown):
            return None
        metadata = _document(answer, lookup).get("metadata") if answer.status == 200 else None
        return metadata.get("table-uuid") if isinstance(metadata, dict) else None

    def repeat(self, request: CatalogRequest) -> CatalogAnswer:
        return self._forward(unkeyed(request))

    def _read(self, lookup: Lookup) -> CatalogRequest:
        dropped = _OF_THE_REQUEST if lookup.vends else (*_OF_THE_REQUEST, _DELEGATION)
        headers = (*without(self._request.headers, *dropped), _PLAIN)
        return CatalogRequest("GET", lookup.path, lookup.query, headers)


def unkeyed(request: CatalogRequest, catalog_key: str | None = None) -> CatalogRequest:
    """Return a mutation without its key, and so that its answer can be read and stored. `catalog_key` replaces the key:
    catalogs have their own rules, and Polaris 1.7 refuses one that is no UUID."""
    own = () if catalog_key is None else ((KEY_HEADER, catalog_key),)
    headers = (*without(request.headers, KEY_HEADER, "accept-encoding"), _PLAIN, *own)
    return CatalogRequest(request.method, request.path, request.query, headers, request.body)


def _document(answer: CatalogAnswer, lookup: Lookup) -> dict[str, object]:
    try:
        document = json.loads(answer.body)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise MutationNotVerified(
            f"{answer.status} was answered without a JSON object when /{lookup.path} was read; repeat the request with "
            "the same key"
        )
    return document
