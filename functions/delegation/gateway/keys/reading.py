"""Reading the catalog's state as the caller of a request, and which answers are the catalog's own.

An answer that is not the catalog's own comes from a proxy and leaves the outcome unknown. Sources: Iceberg REST Catalog
API (responses, IcebergErrorResponse); Polaris 1.4 and 1.7, observed.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Final
from uuid import uuid4

from delegation.gateway.errors import CatalogOutcomeUnknown, CatalogUnavailable, MutationNotVerified
from delegation.gateway.forwarding import without
from delegation.gateway.keys.rules.rule import Found, Lookup, State
from delegation.gateway.messages import CatalogAnswer, CatalogRequest
from delegation.gateway.routing import KEY_HEADER, Operation

_WITHOUT_BODY: Final = frozenset({
    Operation.COMMIT_TRANSACTION,
    Operation.DROP_NAMESPACE,
    Operation.DROP_TABLE,
    Operation.DROP_VIEW,
    Operation.RENAME_TABLE,
    Operation.RENAME_VIEW,
})  # fmt: skip
_OBJECTS: Final[Mapping[Operation, Mapping[str, type]]] = {
    Operation.CREATE_NAMESPACE: {"namespace": list},
    Operation.SET_PROPERTIES: {"updated": list, "removed": list},
    Operation.CREATE_TABLE: {"metadata": dict},
    Operation.REGISTER_TABLE: {"metadata": dict, "metadata-location": str},
    Operation.UNREGISTER_TABLE: {"metadata": dict, "metadata-location": str},
    Operation.COMMIT_TABLE: {"metadata": dict, "metadata-location": str},
    Operation.CREATE_VIEW: {"metadata": dict, "metadata-location": str},
    Operation.REGISTER_VIEW: {"metadata": dict, "metadata-location": str},
    Operation.REPLACE_VIEW: {"metadata": dict, "metadata-location": str},
}
"""The members that the JSON of a success has, by operation."""

# Polaris' own shapes: the body of a rename by 1.4, and refusals before any handler, of a token and of the rate.
_RENAMED: Final = b'"NO_CONTENT"'
_EMPTY_REFUSALS: Final = frozenset({401, 429})


def is_genuine(operation: Operation, answer: CatalogAnswer) -> bool:
    return _is_success(operation, answer) if answer.is_success else is_error(answer)


def _is_success(operation: Operation, answer: CatalogAnswer) -> bool:
    if operation in _WITHOUT_BODY:
        renames = operation in {Operation.RENAME_TABLE, Operation.RENAME_VIEW}
        return answer.status in {200, 204} and (not answer.body or (renames and answer.body.strip() == _RENAMED))
    document = answer.document
    return (
        answer.status == 200
        and document is not None
        and all(isinstance(document.get(name), kind) for name, kind in _OBJECTS[operation].items())
    )


def is_error(answer: CatalogAnswer) -> bool:
    """Whether a refusal has Iceberg's ErrorModel, or is one that Polaris gives without a body. An outcome unknown to
    the catalog is no refusal, whatever its status: Polaris 1.7 answers 400."""
    if answer.status < 400:
        return False
    if answer.status in _EMPTY_REFUSALS and not answer.body:
        return True
    error = (answer.document or {}).get("error")
    if not isinstance(error, dict) or error.get("type") == "CommitStateUnknownException":
        return False
    return isinstance(error.get("type"), str) and error.get("code") == answer.status


def is_absence(answer: CatalogAnswer) -> bool:
    """Whether the catalog states that what was read does not exist."""
    if answer.status != 404 or not is_error(answer):
        return False
    kind = (answer.document or {})["error"]["type"]
    return str(kind).startswith("NoSuch")


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
    document = answer.document
    if document is None:
        raise MutationNotVerified(
            f"{answer.status} was answered without a JSON object when /{lookup.path} was read; repeat the request with "
            "the same key"
        )
    return document
