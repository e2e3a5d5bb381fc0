"""Requests with a key for which nothing is done: of callers that are not verified, or for what does not exist."""

from collections.abc import Callable

from delegation.gateway.errors import GatewayError, MutationNotVerified
from delegation.gateway.forwarding import without
from delegation.gateway.messages import CatalogAnswer, CatalogRequest
from delegation.gateway.routing import KEY_HEADER
from delegation.idempotency.canonical import Scope
from delegation.idempotency.mutations.service import Mutations
from delegation.identifiers import encoded_query


def refusal_of_unverified(
    request: CatalogRequest, catalog: str, forward: Callable[[CatalogRequest], CatalogAnswer]
) -> CatalogAnswer:
    """Return the catalog's refusal of a token that the gateway does not accept; `catalog` may be empty. The mutation
    itself is not sent: if it succeeded, its client would rely on a key that nothing keeps. Raises GatewayError
    (CALLER_NOT_VERIFIED) if the catalog accepts the token."""
    query = encoded_query([("warehouse", catalog)] if catalog else [])
    headers = without(request.headers, KEY_HEADER, "content-type", "content-encoding")
    answer = forward(CatalogRequest("GET", "v1/config", query, headers))
    if answer.status in {401, 403, 419}:
        return answer
    raise GatewayError(
        f"the gateway's key does not verify the request's token, and the catalog answers it with {answer.status}, "
        "so nothing was done; if the catalog accepts the token, send the request without the Idempotency-Key, and "
        "have the operator set the catalog's present key (delegation:gateway-token-public-key or "
        "delegation:gateway-token-jwks-url)",
        code="CALLER_NOT_VERIFIED",
        status=500,
        kind="CommitStateUnknownException",
    )


def refusal_without_effect(refusal: CatalogAnswer, mutations: Mutations, scope: Scope | None) -> CatalogAnswer:
    """Return the refusal. Raises MutationNotVerified if an earlier call may have had an effect."""
    if scope is not None and mutations.may_have_run(scope):
        raise MutationNotVerified(
            f"the catalog refuses the request now ({refusal.status}), and an earlier call with its key may have "
            "been applied; repeat it with the same key when the catalog accepts it"
        )
    return refusal
