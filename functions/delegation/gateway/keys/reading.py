"""Reading the catalog's state as the caller of a request: with its own token, realm and access delegation."""

import json
from collections.abc import Sequence
from typing import Final

from delegation.gateway.errors import CatalogUnavailable, MutationNotVerified
from delegation.gateway.forwarding import Forwarder, without
from delegation.gateway.keys.rules.rule import Found, Lookup, State
from delegation.gateway.messages import CatalogAnswer, CatalogRequest
from delegation.gateway.routing import KEY_HEADER

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


class RefusedRead(Exception):
    """The catalog does not accept the caller's token now; `answer` is what it answered."""

    def __init__(self, answer: CatalogAnswer) -> None:
        super().__init__()
        self.answer = answer


class CallersView:
    """The catalog as the caller of `request` sees it."""

    def __init__(self, forwarder: Forwarder, request: CatalogRequest) -> None:
        self._forwarder = forwarder
        self._request = request

    def states(self, lookups: Sequence[Lookup]) -> tuple[State, ...]:
        """Read everything; raises CatalogUnavailable, RefusedRead, and MutationNotVerified for what cannot be read."""
        return tuple(self.state(each) for each in lookups)

    def state(self, lookup: Lookup) -> State:
        """Read one thing; see `states`."""
        answer = self._forwarder.forward(self._read(lookup))
        if answer.is_success:
            return Found(answer) if lookup.exists else Found(answer, _document(answer, lookup))
        if answer.status == 404:
            return None
        if answer.status == 401:
            raise RefusedRead(answer)
        if answer.status >= 500 or answer.status in {408, 429}:
            raise CatalogUnavailable(
                f"the catalog answered {answer.status} when /{lookup.path} was read to see what an earlier call did; "
                "nothing more was done, repeat the request"
            )
        raise MutationNotVerified(
            f"what an earlier call with this key did is uncertain: the catalog answered {answer.status} when "
            f"/{lookup.path} was read as the caller; give its principal the privilege to load it "
            "(TABLE_READ_PROPERTIES, VIEW_READ_PROPERTIES or NAMESPACE_READ_PROPERTIES), then repeat the request with "
            "the same key"
        )

    def repeat(self, request: CatalogRequest) -> CatalogAnswer:
        """Send a request that has no effect again."""
        return self._forwarder.forward(unkeyed(request))

    def _read(self, lookup: Lookup) -> CatalogRequest:
        dropped = _OF_THE_REQUEST if lookup.vends else (*_OF_THE_REQUEST, _DELEGATION)
        headers = (*without(self._request.headers, *dropped), _PLAIN)
        return CatalogRequest("HEAD" if lookup.exists else "GET", lookup.path, lookup.query, headers)


def unkeyed(request: CatalogRequest) -> CatalogRequest:
    """Return a mutation as it is sent to the catalog: without its key, and so that its answer can be read and stored.

    The catalog may treat keys by its own rules: Polaris 1.7 refuses one that is no UUID.
    """
    headers = (*without(request.headers, KEY_HEADER, "accept-encoding"), _PLAIN)
    return CatalogRequest(request.method, request.path, request.query, headers, request.body)


def _document(answer: CatalogAnswer, lookup: Lookup) -> dict[str, object]:
    try:
        document = json.loads(answer.body)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise MutationNotVerified(f"the catalog answered {answer.status} for /{lookup.path} without a JSON object")
    return document
