"""Replayed answers made whole: what was not stored is vended anew, as the caller."""

import json
from collections.abc import Mapping
from typing import Any, Final

from delegation.gateway.answers import json_answer
from delegation.gateway.errors import MutationNotVerified
from delegation.gateway.keys.reading import CallersView
from delegation.gateway.keys.rules.commits import committed
from delegation.gateway.keys.rules.rule import Found, VerificationRule
from delegation.gateway.messages import CatalogRequest
from delegation.gateway.routing import Operation
from delegation.idempotency.mutations.answer import MutationAnswer, may_be_secret

_VENDED: Final = "storage-credentials"
_CONFIG: Final = "config"
_METADATA: Final = "metadata"
_PROPERTIES: Final = "properties"


def restored(
    stored: MutationAnswer, rule: VerificationRule, request: CatalogRequest, operation: Operation, view: CallersView
) -> MutationAnswer:
    """Return a stored answer with credentials vended now, or as it was stored if the caller gets none any more.

    A table that was dropped, or created again under its name, gives none: they would be for other files.
    """
    found = _found(rule, request, view)
    if found is None:
        return stored
    kept = json.loads(stored.body) if stored.body else {}
    if _METADATA not in kept:  # it was too large to be stored
        answer = committed(found) if operation is Operation.COMMIT_TABLE else json_answer(200, found.document)
        return MutationAnswer(stored.status, answer.body, {**stored.headers, "Content-Type": "application/json"})
    if _identity(kept) != _identity(found.document):
        is_staged = rule.restages and "metadata-location" not in found.document
        return _answer(stored, found.document) if is_staged else stored
    return _answer(stored, _with_credentials(kept, found.document))


def _found(rule: VerificationRule, request: CatalogRequest, view: CallersView) -> Found | None:
    """Return what has the credentials: the table, or the same staged table once more, which has no effect."""
    if rule.restore is None:
        return None
    try:
        found = view.state(rule.restore)
    except MutationNotVerified:
        return None
    if found is not None or not rule.restages:
        return found
    answer = view.repeat(request)
    return Found(answer, json.loads(answer.body)) if answer.is_success else None


def _identity(document: Mapping[str, Any]) -> object:
    """Return what must be equal for credentials to fit: of a staged table, which has no file yet, the location."""
    metadata = document.get("metadata") or {}
    if "metadata-location" not in document:
        return metadata.get("location")
    return metadata.get("table-uuid") or metadata.get("view-uuid")


def _with_credentials(kept: dict[str, Any], vended: Mapping[str, Any]) -> dict[str, Any]:
    config = {**(kept.get(_CONFIG) or {}), **(vended.get(_CONFIG) or {})}
    vended_anew = {_VENDED: vended[_VENDED]} if _VENDED in vended else {}
    return {**kept, **_with_properties(kept, vended), _CONFIG: config, **vended_anew}


def _with_properties(kept: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata with the properties that were not stored because they may be secret, as they are now."""
    metadata, properties = kept.get(_METADATA), (found.get(_METADATA) or {}).get(_PROPERTIES) or {}
    secret = {name: value for name, value in properties.items() if may_be_secret(name, value)}
    if not isinstance(metadata, dict) or not secret:
        return {}
    return {_METADATA: {**metadata, _PROPERTIES: {**(metadata.get(_PROPERTIES) or {}), **secret}}}


def _answer(stored: MutationAnswer, document: Mapping[str, Any]) -> MutationAnswer:
    return MutationAnswer(stored.status, json_answer(stored.status, document).body, stored.headers)
