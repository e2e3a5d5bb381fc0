import json
from collections.abc import Callable, Mapping
from typing import Final

from delegation.gateway.keys.rules import commits, namespaces, tables, views
from delegation.gateway.keys.rules.rule import MALFORMED_REQUEST, JsonObject, VerificationRule
from delegation.gateway.messages import CatalogRequest
from delegation.gateway.routing import CatalogPaths, Operation, Target

MALFORMED: Final = (AttributeError, IndexError, KeyError, OverflowError, RecursionError, TypeError, ValueError)
"""What reading a document raises that does not conform to the specification."""

RULES: Final[Mapping[Operation, Callable[[str, Target, JsonObject, CatalogPaths], VerificationRule]]] = {
    Operation.CREATE_NAMESPACE: lambda _path, target, body, paths: namespaces.creation(target, body, paths),
    Operation.DROP_NAMESPACE: lambda path, _target, _body, _paths: namespaces.drop(path),
    Operation.SET_PROPERTIES: lambda path, _target, body, _paths: namespaces.properties(path, body),
    Operation.CREATE_TABLE: lambda path, _target, body, _paths: tables.creation(path, body),
    Operation.REGISTER_TABLE: lambda path, _target, body, _paths: tables.registration(path, body),
    Operation.COMMIT_TABLE: lambda path, _target, body, _paths: commits.commit(path, body),
    Operation.DROP_TABLE: lambda _path, _target, _body, _paths: tables.DROP,
    Operation.UNREGISTER_TABLE: lambda path, _target, _body, _paths: tables.unregistration(path),
    Operation.RENAME_TABLE: lambda _path, target, body, paths: tables.rename(target, body, paths.table),
    Operation.COMMIT_TRANSACTION: lambda _path, target, body, paths: commits.transaction(target, body, paths),
    Operation.CREATE_VIEW: lambda path, _target, body, _paths: views.creation(path, body),
    Operation.REGISTER_VIEW: lambda path, _target, body, _paths: views.registration(path, body),
    Operation.REPLACE_VIEW: lambda path, _target, body, _paths: views.replacement(path, body),
    Operation.DROP_VIEW: lambda _path, _target, _body, _paths: tables.DROP,
    Operation.RENAME_VIEW: lambda _path, target, body, paths: tables.rename(target, body, paths.view, views.UUID),
}


def rule_for(target: Target, request: CatalogRequest, paths: CatalogPaths) -> VerificationRule:
    """Return the rule; a request that violates the specification leaves its outcome unknown. Raises UnsafeName for a
    name that cannot be part of a path."""
    try:
        body = json.loads(request.body) if request.body else {}
        return RULES[target.operation](request.path, target, body, paths)
    except MALFORMED:
        return MALFORMED_REQUEST
