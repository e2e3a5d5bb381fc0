"""Requests with a key whose token the gateway cannot verify: nothing is done for them."""

from collections.abc import Callable
from urllib.parse import urlencode

from delegation.gateway.errors import CallerNotVerified
from delegation.gateway.forwarding import without
from delegation.gateway.messages import CatalogAnswer, CatalogRequest
from delegation.gateway.routing import KEY_HEADER


def refusal_of_unverified(
    request: CatalogRequest, catalog: str, forward: Callable[[CatalogRequest], CatalogAnswer]
) -> CatalogAnswer:
    """Return the catalog's refusal of a token that the gateway does not accept; `catalog` may be empty.

    The mutation itself is not sent: if the catalog accepted it, its client would rely on a key that nothing keeps.
    Raises CallerNotVerified if the catalog accepts the token.
    """
    query = urlencode({"warehouse": catalog}) if catalog else ""
    headers = without(request.headers, KEY_HEADER, "content-type", "content-encoding")
    answer = forward(CatalogRequest("GET", "v1/config", query, headers))
    if answer.status in {401, 403} or answer.status >= 500:
        return answer
    raise CallerNotVerified(
        "the catalog accepts the request's token, and the gateway's key does not verify it, so nothing was done; "
        "send the request without the Idempotency-Key, and have the operator set the catalog's present key "
        "(delegation:gateway-token-public-key or delegation:gateway-token-jwks-url)"
    )
