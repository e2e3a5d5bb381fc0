"""Rules for namespaces: created, dropped, and their properties set. Without UUID and version, the requested state
counts as applied, and nothing proves the contrary."""

from typing import Any

from delegation.gateway.answers import json_answer
from delegation.gateway.keys.rules.rule import (
    DONE,
    Applied,
    Evidence,
    JsonObject,
    Lookup,
    Undecided,
    Verification,
    VerificationRule,
    contains,
)
from delegation.gateway.routing import CatalogPaths, Target

_LOCATION = "location"


def creation(target: Target, request: JsonObject, paths: CatalogPaths) -> VerificationRule:
    """Applied if the namespace has the requested properties; catalogs may add some, such as its location."""
    path = paths.namespace(target.prefix, request["namespace"])
    wanted = _plain(request.get("properties") or {})

    def verify(evidence: Evidence) -> Verification:
        found = evidence.states[0]
        if found is None:
            return Undecided("the namespace does not exist; it may have been created, and dropped since")
        properties = found.document.get("properties") or {}
        if not contains(_plain(properties), wanted):
            return Undecided("the namespace has other properties; they may have been set since")
        return Applied(json_answer(200, {"namespace": request["namespace"], "properties": properties}))

    return VerificationRule(verify, (Lookup(path),))


def drop(path: str) -> VerificationRule:
    """Applied if the namespace does not exist: namespaces cannot be renamed."""

    def verify(evidence: Evidence) -> Verification:
        if evidence.states[0] is None:
            return Applied(DONE)
        return Undecided("the namespace exists; it may have been dropped, and created again since")

    return VerificationRule(verify, (Lookup(path),))


def properties(path: str, request: JsonObject) -> VerificationRule:
    """Applied if all updates are present and all removals absent; all removals are answered as removed."""
    removals, updates = list(request.get("removals") or []), _plain(request.get("updates") or {})
    path = path.rpartition("/")[0]  # of the namespace

    def verify(evidence: Evidence) -> Verification:
        found = evidence.states[0]
        if found is None:
            return Undecided("the namespace no longer exists")
        known = _plain(found.document.get("properties") or {})
        if not contains(known, updates) or any(name in known for name in removals):
            return Undecided("the namespace has other properties; they may have been set since")
        return Applied(json_answer(200, {"updated": list(updates), "removed": removals, "missing": []}))

    return VerificationRule(verify, (Lookup(path),))


def _plain(known: JsonObject) -> dict[str, Any]:
    """Return properties in comparable form: Polaris stores a location with a slash at its end."""
    return {name: str(value).rstrip("/") if name == _LOCATION else value for name, value in known.items()}
