"""Rules for namespaces: created, dropped, and their properties set."""

import hashlib
from collections.abc import Sequence
from typing import Any

from delegation.gateway.answers import json_answer
from delegation.gateway.keys.rules.rule import (
    DONE,
    NOT_APPLIED,
    Applied,
    Incompatible,
    JsonObject,
    Judgement,
    Lookup,
    State,
    VerificationRule,
    canonical,
    contains,
    exists_noted,
)
from delegation.gateway.routing import CatalogPaths, Target


def creation(target: Target, request: JsonObject, paths: CatalogPaths) -> VerificationRule:
    """Applied if the namespace, which was not there, has the requested properties."""
    path = paths.namespace(target.prefix, request["namespace"])
    wanted = dict(request.get("properties") or {})

    def judge(before: Any, states: Sequence[State]) -> Judgement:
        found = states[0]
        if found is None or before is None or before["exists"]:
            return NOT_APPLIED
        properties = found.document.get("properties") or {}
        if not contains(properties, wanted):
            return Incompatible("the namespace exists with other properties than the requested ones")
        return Applied(json_answer(200, {"namespace": request["namespace"], "properties": properties}))

    return VerificationRule(judge, (Lookup(path),), exists_noted, (Lookup(path, exists=True),))


def drop(path: str) -> VerificationRule:
    """Applied if the namespace, which was there, is gone."""

    def judge(before: Any, states: Sequence[State]) -> Judgement:
        is_gone = before is not None and before["exists"] and states[0] is None
        return Applied(DONE) if is_gone else NOT_APPLIED

    return VerificationRule(judge, (Lookup(path, exists=True),), exists_noted, (Lookup(path, exists=True),))


def properties(path: str, request: JsonObject) -> VerificationRule:
    """Applied if all updates are there and all removals are not; incompatible if only some of them changed."""
    removals, updates = list(request.get("removals") or []), dict(request.get("updates") or {})
    path = path.rpartition("/")[0]  # of the namespace

    def note(states: Sequence[State]) -> Any:
        found = states[0]
        if found is None:
            return None
        known = found.document.get("properties") or {}
        return {"removed": [name for name in removals if name in known], "state": _state(known, [*removals, *updates])}

    def judge(before: Any, states: Sequence[State]) -> Judgement:
        found = states[0]
        if found is None:
            return NOT_APPLIED
        known = found.document.get("properties") or {}
        if contains(known, updates) and not any(name in known for name in removals):
            removed = [] if before is None else before["removed"]
            missing = [name for name in removals if name not in removed]
            answer = {"updated": list(updates), "removed": removed, "missing": missing}
            return Applied(json_answer(200, answer))
        if before is None or before["state"] == _state(known, [*removals, *updates]):
            return NOT_APPLIED
        return Incompatible("the namespace's properties were changed since the first request")

    return VerificationRule(judge, (Lookup(path),), note, (Lookup(path),))


def _state(known: JsonObject, names: Sequence[str]) -> str:
    touched = {name: known[name] for name in names if name in known}
    return hashlib.sha256(canonical(touched).encode()).hexdigest()[:32]
