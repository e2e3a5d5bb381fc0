"""The privileges of Polaris 1.7: which one includes which, what an operation needs, what can be granted on what.

Source: Apache Polaris 1.7.0, PolarisAuthorizerImpl (SUPER_PRIVILEGES), RbacOperationSemantics, and the privileges in
polaris-management-service.yml. Policies are left out: the stand-in has none.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final


class Privilege(Enum):
    """The privileges that the stand-in distinguishes."""

    SERVICE_MANAGE_ACCESS = "SERVICE_MANAGE_ACCESS"
    CATALOG_MANAGE_ACCESS = "CATALOG_MANAGE_ACCESS"
    CATALOG_MANAGE_CONTENT = "CATALOG_MANAGE_CONTENT"
    CATALOG_MANAGE_METADATA = "CATALOG_MANAGE_METADATA"
    CATALOG_READ_PROPERTIES = "CATALOG_READ_PROPERTIES"
    CATALOG_WRITE_PROPERTIES = "CATALOG_WRITE_PROPERTIES"
    NAMESPACE_CREATE = "NAMESPACE_CREATE"
    NAMESPACE_DROP = "NAMESPACE_DROP"
    NAMESPACE_LIST = "NAMESPACE_LIST"
    NAMESPACE_READ_PROPERTIES = "NAMESPACE_READ_PROPERTIES"
    NAMESPACE_WRITE_PROPERTIES = "NAMESPACE_WRITE_PROPERTIES"
    NAMESPACE_FULL_METADATA = "NAMESPACE_FULL_METADATA"
    TABLE_CREATE = "TABLE_CREATE"
    TABLE_DROP = "TABLE_DROP"
    TABLE_LIST = "TABLE_LIST"
    TABLE_READ_PROPERTIES = "TABLE_READ_PROPERTIES"
    TABLE_WRITE_PROPERTIES = "TABLE_WRITE_PROPERTIES"
    TABLE_READ_DATA = "TABLE_READ_DATA"
    TABLE_WRITE_DATA = "TABLE_WRITE_DATA"
    TABLE_FULL_METADATA = "TABLE_FULL_METADATA"
    VIEW_CREATE = "VIEW_CREATE"
    VIEW_DROP = "VIEW_DROP"
    VIEW_LIST = "VIEW_LIST"
    VIEW_READ_PROPERTIES = "VIEW_READ_PROPERTIES"
    VIEW_WRITE_PROPERTIES = "VIEW_WRITE_PROPERTIES"
    VIEW_FULL_METADATA = "VIEW_FULL_METADATA"


_P = Privilege
_CONTENT: Final = frozenset({_P.CATALOG_MANAGE_CONTENT, _P.CATALOG_MANAGE_METADATA})
_NAMESPACES: Final = _CONTENT | {_P.NAMESPACE_FULL_METADATA}
_TABLES: Final = _CONTENT | {_P.TABLE_FULL_METADATA}
_TABLE_WRITES: Final = _TABLES | {_P.TABLE_WRITE_DATA, _P.TABLE_WRITE_PROPERTIES}
_TABLE_READS: Final = _TABLE_WRITES | {_P.TABLE_READ_DATA, _P.TABLE_READ_PROPERTIES}
_VIEWS: Final = _CONTENT | {_P.VIEW_FULL_METADATA}
_VIEW_READS: Final = _VIEWS | {_P.VIEW_READ_PROPERTIES, _P.VIEW_WRITE_PROPERTIES}
_NAMESPACE_READS: Final = _NAMESPACES | {_P.NAMESPACE_READ_PROPERTIES, _P.NAMESPACE_WRITE_PROPERTIES}
_CATALOG_WRITES: Final = _CONTENT | {_P.CATALOG_WRITE_PROPERTIES, _P.SERVICE_MANAGE_ACCESS}

# privilege -> the privileges that include it, besides itself
_INCLUDED_IN: Final[Mapping[Privilege, frozenset[Privilege]]] = {
    _P.NAMESPACE_CREATE: _NAMESPACES,
    _P.NAMESPACE_DROP: _NAMESPACES,
    _P.NAMESPACE_FULL_METADATA: _CONTENT,
    _P.NAMESPACE_LIST: _NAMESPACE_READS | {_P.NAMESPACE_CREATE},
    _P.NAMESPACE_READ_PROPERTIES: _NAMESPACE_READS,
    _P.NAMESPACE_WRITE_PROPERTIES: _NAMESPACES,
    _P.TABLE_CREATE: _TABLES,
    _P.TABLE_DROP: _TABLES,
    _P.TABLE_FULL_METADATA: _CONTENT,
    _P.TABLE_LIST: _TABLE_READS | {_P.TABLE_CREATE},
    _P.TABLE_READ_PROPERTIES: _TABLE_READS,
    _P.TABLE_WRITE_PROPERTIES: _TABLE_WRITES,
    _P.VIEW_CREATE: _VIEWS,
    _P.VIEW_DROP: _VIEWS,
    _P.VIEW_FULL_METADATA: _CONTENT,
    _P.VIEW_LIST: _VIEW_READS | {_P.VIEW_CREATE},
    _P.VIEW_READ_PROPERTIES: _VIEW_READS,
    _P.VIEW_WRITE_PROPERTIES: _VIEWS,
    # Managing metadata, as `root` may, gives no access to data: `root` as bootstrapped gets no credentials.
    _P.TABLE_READ_DATA: frozenset({_P.CATALOG_MANAGE_CONTENT, _P.TABLE_WRITE_DATA}),
    _P.TABLE_WRITE_DATA: frozenset({_P.CATALOG_MANAGE_CONTENT}),
    _P.CATALOG_MANAGE_METADATA: frozenset({_P.CATALOG_MANAGE_CONTENT}),
    _P.CATALOG_READ_PROPERTIES: _CATALOG_WRITES,
    _P.CATALOG_WRITE_PROPERTIES: _CATALOG_WRITES,
}


def including(privilege: Privilege) -> frozenset[Privilege]:
    """Return every privilege whose grant gives `privilege`, itself among them."""
    return _INCLUDED_IN.get(privilege, frozenset()) | {privilege}


@dataclass(frozen=True, slots=True)
class Needed:
    """What an operation needs: all privileges of `on_target`, and of `on_other` on a second entity if it has one."""

    on_target: frozenset[Privilege]
    on_other: frozenset[Privilege] = frozenset()


def _needs(*privileges: Privilege) -> Needed:
    return Needed(frozenset(privileges))


_SERVICE: Final = _needs(_P.SERVICE_MANAGE_ACCESS)
_CATALOG: Final = _needs(_P.CATALOG_MANAGE_ACCESS)

# Polaris' name of an operation, as its 403 names it -> what it needs
OPERATIONS: Final[Mapping[str, Needed]] = {
    "LIST_NAMESPACES": _needs(_P.NAMESPACE_LIST),
    "CREATE_NAMESPACE": _needs(_P.NAMESPACE_CREATE),
    "LOAD_NAMESPACE_METADATA": _needs(_P.NAMESPACE_READ_PROPERTIES),
    "NAMESPACE_EXISTS": _needs(_P.NAMESPACE_LIST),
    "DROP_NAMESPACE": _needs(_P.NAMESPACE_DROP),
    "UPDATE_NAMESPACE_PROPERTIES": _needs(_P.NAMESPACE_WRITE_PROPERTIES),
    "LIST_TABLES": _needs(_P.TABLE_LIST),
    "TABLE_EXISTS": _needs(_P.TABLE_LIST),
    "CREATE_TABLE_DIRECT": _needs(_P.TABLE_CREATE),
    "CREATE_TABLE_DIRECT_WITH_WRITE_DELEGATION": _needs(_P.TABLE_CREATE, _P.TABLE_WRITE_DATA),
    "CREATE_TABLE_STAGED": _needs(_P.TABLE_CREATE),
    "CREATE_TABLE_STAGED_WITH_WRITE_DELEGATION": _needs(_P.TABLE_CREATE, _P.TABLE_WRITE_DATA),
    "REGISTER_TABLE": _needs(_P.TABLE_CREATE),
    "LOAD_TABLE": _needs(_P.TABLE_READ_PROPERTIES),
    "LOAD_TABLE_WITH_READ_DELEGATION": _needs(_P.TABLE_READ_DATA),
    "LOAD_TABLE_WITH_WRITE_DELEGATION": _needs(_P.TABLE_WRITE_DATA),
    "REPORT_READ_METRICS": _needs(_P.TABLE_READ_DATA),
    "REPORT_WRITE_METRICS": _needs(_P.TABLE_WRITE_DATA),
    "UPDATE_TABLE": _needs(_P.TABLE_WRITE_PROPERTIES),
    "UPDATE_TABLE_FOR_STAGED_CREATE": _needs(_P.TABLE_CREATE),
    "DROP_TABLE_WITHOUT_PURGE": _needs(_P.TABLE_DROP),
    "DROP_TABLE_WITH_PURGE": _needs(_P.TABLE_DROP, _P.TABLE_WRITE_DATA),
    "RENAME_TABLE": Needed(frozenset({_P.TABLE_DROP}), frozenset({_P.TABLE_LIST, _P.TABLE_CREATE})),
    "COMMIT_TRANSACTION": _needs(_P.TABLE_WRITE_PROPERTIES, _P.TABLE_CREATE),
    "LIST_VIEWS": _needs(_P.VIEW_LIST),
    "CREATE_VIEW": _needs(_P.VIEW_CREATE),
    "LOAD_VIEW": _needs(_P.VIEW_READ_PROPERTIES),
    "VIEW_EXISTS": _needs(_P.VIEW_LIST),
    "REPLACE_VIEW": _needs(_P.VIEW_WRITE_PROPERTIES),
    "DROP_VIEW": _needs(_P.VIEW_DROP),
    "RENAME_VIEW": Needed(frozenset({_P.VIEW_DROP}), frozenset({_P.VIEW_LIST, _P.VIEW_CREATE})),
    "GET_CATALOG": _needs(_P.CATALOG_READ_PROPERTIES),
    "UPDATE_CATALOG": _needs(_P.CATALOG_WRITE_PROPERTIES),
    **dict.fromkeys(
        (
            *("LIST_CATALOGS", "CREATE_CATALOG", "DELETE_CATALOG"),
            *("LIST_PRINCIPALS", "CREATE_PRINCIPAL", "GET_PRINCIPAL", "UPDATE_PRINCIPAL", "DELETE_PRINCIPAL"),
            *("LIST_PRINCIPAL_ROLES_ASSIGNED", "ASSIGN_PRINCIPAL_ROLE", "REVOKE_PRINCIPAL_ROLE"),
            *("LIST_PRINCIPAL_ROLES", "CREATE_PRINCIPAL_ROLE", "GET_PRINCIPAL_ROLE"),
            *("UPDATE_PRINCIPAL_ROLE", "DELETE_PRINCIPAL_ROLE"),
            *("LIST_ASSIGNEE_PRINCIPALS_FOR_PRINCIPAL_ROLE", "LIST_CATALOG_ROLES_FOR_PRINCIPAL_ROLE"),
        ),
        _SERVICE,
    ),
    **dict.fromkeys(
        (
            *("LIST_CATALOG_ROLES", "CREATE_CATALOG_ROLE", "GET_CATALOG_ROLE"),
            *("UPDATE_CATALOG_ROLE", "DELETE_CATALOG_ROLE", "LIST_GRANTS_FOR_CATALOG_ROLE"),
            *("ASSIGN_CATALOG_ROLE_TO_PRINCIPAL_ROLE", "REVOKE_CATALOG_ROLE_FROM_PRINCIPAL_ROLE"),
            "LIST_ASSIGNEE_PRINCIPAL_ROLES_FOR_CATALOG_ROLE",
            *("ADD_CATALOG_GRANT_TO_CATALOG_ROLE", "REVOKE_CATALOG_GRANT_FROM_CATALOG_ROLE"),
            *("ADD_NAMESPACE_GRANT_TO_CATALOG_ROLE", "REVOKE_NAMESPACE_GRANT_FROM_CATALOG_ROLE"),
            *("ADD_TABLE_GRANT_TO_CATALOG_ROLE", "REVOKE_TABLE_GRANT_FROM_CATALOG_ROLE"),
        ),
        _CATALOG,
    ),
}

_ON_TABLES: Final = frozenset(
    {
        _P.CATALOG_MANAGE_ACCESS,
        _P.TABLE_DROP,
        _P.TABLE_LIST,
        _P.TABLE_READ_PROPERTIES,
        _P.TABLE_WRITE_PROPERTIES,
        _P.TABLE_READ_DATA,
        _P.TABLE_WRITE_DATA,
        _P.TABLE_FULL_METADATA,
    }
)
_ON_CATALOGS: Final = frozenset(Privilege) - {_P.SERVICE_MANAGE_ACCESS}
# the `type` of a grant -> the privileges that it may have
GRANTABLE: Final[Mapping[str, frozenset[Privilege]]] = {
    "catalog": _ON_CATALOGS,
    "namespace": _ON_CATALOGS - {_P.CATALOG_READ_PROPERTIES, _P.CATALOG_WRITE_PROPERTIES},
    "table": _ON_TABLES,
}

# Owns the tables of a catalog, as an engine's principal usually does.
OWNER: Final = frozenset({_P.CATALOG_MANAGE_CONTENT})
# What docs/architecture/trust.md lists for the service on the whole catalog, and no more.
SERVICE: Final = frozenset(
    {_P.NAMESPACE_LIST, _P.TABLE_LIST, _P.TABLE_READ_PROPERTIES, _P.TABLE_READ_DATA, _P.TABLE_WRITE_DATA}
)
# With the gateway it also drops tombstones, and renames them back (docs/gateway.md).
GATEWAY_SERVICE: Final = SERVICE | {_P.TABLE_DROP, _P.TABLE_CREATE}
READER: Final = frozenset({_P.NAMESPACE_LIST, _P.TABLE_LIST, _P.TABLE_READ_PROPERTIES, _P.TABLE_READ_DATA})
