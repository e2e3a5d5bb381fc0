"""Which answers are the catalog's own; any other comes from a proxy and leaves the outcome unknown. Sources: Iceberg
REST Catalog API (responses, IcebergErrorResponse); Polaris 1.4 and 1.7, observed."""

import json
from collections.abc import Mapping
from typing import Any, Final

from delegation.gateway.messages import CatalogAnswer
from delegation.gateway.routing import Operation

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
    document = _object(answer)
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
    error = (_object(answer) or {}).get("error")
    if not isinstance(error, dict) or error.get("type") == "CommitStateUnknownException":
        return False
    return isinstance(error.get("type"), str) and error.get("code") == answer.status


def is_absence(answer: CatalogAnswer) -> bool:
    """Whether the catalog states that what was read does not exist."""
    if answer.status != 404 or not is_error(answer):
        return False
    kind = (_object(answer) or {})["error"]["type"]
    return str(kind).startswith("NoSuch")


def _object(answer: CatalogAnswer) -> dict[str, Any] | None:
    try:
        document = json.loads(answer.body)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None
