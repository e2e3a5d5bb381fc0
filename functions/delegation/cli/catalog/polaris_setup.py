"""What the service, and drops through the gateway, need in Polaris; what is missing, and the steps that add it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from delegation.cli.errors import CommandError
from delegation.polaris.client import PolarisClient
from delegation.polaris.management import PolarisGrant, PolarisManagement
from delegation.polaris.tokens import ClientCredentials

INDEX_PRIVILEGES: Final = ("NAMESPACE_LIST", "TABLE_LIST", "TABLE_READ_PROPERTIES", "TABLE_READ_DATA")
"""What the reference index needs on the whole catalog (docs/architecture/trust.md, Privileges)."""
UPKEEP_PRIVILEGES: Final = ("NAMESPACE_READ_PROPERTIES", "VIEW_LIST", "VIEW_READ_PROPERTIES")
"""What upkeep needs there besides: the policies and locations of namespaces, and where views are.

Its commits need TABLE_WRITE_PROPERTIES, which PURGE_PRIVILEGE includes.
"""
PURGE_PRIVILEGE: Final = "TABLE_WRITE_DATA"
"""What a purge needs where the tables are; it includes reading and listing them."""
_EVERYTHING: Final = frozenset({"CATALOG_MANAGE_CONTENT"})
_READS: Final = frozenset(
    {"TABLE_WRITE_PROPERTIES", "TABLE_FULL_METADATA", "CATALOG_MANAGE_METADATA", "TABLE_WRITE_DATA"}
)
_VIEW_READS: Final = frozenset({"VIEW_WRITE_PROPERTIES", "VIEW_FULL_METADATA", "CATALOG_MANAGE_METADATA"})
_INCLUDED_IN: Final[Mapping[str, frozenset[str]]] = {
    "NAMESPACE_LIST": frozenset(
        {
            "NAMESPACE_CREATE",
            "NAMESPACE_READ_PROPERTIES",
            "NAMESPACE_WRITE_PROPERTIES",
            "NAMESPACE_FULL_METADATA",
            "CATALOG_MANAGE_METADATA",
        }
    ),
    "NAMESPACE_READ_PROPERTIES": frozenset(
        {"NAMESPACE_WRITE_PROPERTIES", "NAMESPACE_FULL_METADATA", "CATALOG_MANAGE_METADATA"}
    ),
    "VIEW_LIST": _VIEW_READS | {"VIEW_CREATE", "VIEW_READ_PROPERTIES"},
    "VIEW_READ_PROPERTIES": _VIEW_READS,
    "TABLE_LIST": _READS | {"TABLE_CREATE", "TABLE_READ_DATA", "TABLE_READ_PROPERTIES"},
    "TABLE_READ_PROPERTIES": _READS | {"TABLE_READ_DATA"},
    "TABLE_READ_DATA": frozenset({"TABLE_WRITE_DATA"}),
    "TABLE_CREATE": frozenset({"TABLE_FULL_METADATA", "CATALOG_MANAGE_METADATA"}),
    "TABLE_DROP": frozenset({"TABLE_FULL_METADATA", "CATALOG_MANAGE_METADATA"}),
}
"""A privilege and those that include it (Apache Polaris 1.7, PolarisAuthorizerImpl, SUPER_PRIVILEGES)."""


@dataclass(frozen=True, slots=True)
class WantedAccess:
    """The principal of the service with its two roles, and the grants of the catalog's role."""

    catalog: str
    principal: str
    principal_role: str
    catalog_role: str
    grants: tuple[PolarisGrant, ...]


@dataclass(frozen=True, slots=True)
class FoundAccess:
    """What Polaris has of it."""

    principal: bool
    principal_role: bool
    is_assigned: bool
    catalog_role: bool
    is_used: bool
    grants: frozenset[PolarisGrant]


class SetupKind(StrEnum):
    """What a step does."""

    PRINCIPAL = "create-principal"
    SECRET = "reset-secret"  # noqa: S105 - a name
    PRINCIPAL_ROLE = "create-principal-role"
    ASSIGN = "assign-principal-role"
    CATALOG_ROLE = "create-catalog-role"
    USE = "assign-catalog-role"
    GRANT = "grant"
    NAMESPACE = "create-namespace"
    CALLERS_ROLE = "create-callers-role"
    CALLERS_GRANT = "grant-to-callers"
    CALLERS_USE = "assign-callers-role"
    VIEWS = "let-views-be-dropped"


@dataclass(frozen=True, slots=True)
class SetupStep:
    """One change in Polaris; `place` is the namespace to create, `principal_role` that of callers."""

    kind: SetupKind
    text: str
    grant: PolarisGrant | None = None
    place: tuple[str, ...] = ()
    principal_role: str = ""


def wanted_grants(namespaces: Iterable[tuple[str, ...]], *, whole_index: bool) -> tuple[PolarisGrant, ...]:
    """Return the grants for purging in these namespaces, in the whole catalog without any.

    With `whole_index` the reference index and upkeep may read the whole catalog; it is needed unless
    `delegation.purge.references` is `namespace`.
    """
    places = list(namespaces) or [()]
    privileges = (*INDEX_PRIVILEGES, *UPKEEP_PRIVILEGES) if whole_index else ()
    index = [PolarisGrant(privilege) for privilege in privileges]
    return (*index, *(PolarisGrant(PURGE_PRIVILEGE, place) for place in places))


def gives(granted: PolarisGrant, needed: PolarisGrant) -> bool:
    """Return whether a grant gives what is needed.

    One on a catalog or a namespace counts for all namespaces below, and a privilege for those that it includes.
    """
    places = granted.namespace == needed.namespace[: len(granted.namespace)]
    including = _INCLUDED_IN.get(needed.privilege, frozenset()) | _EVERYTHING | {needed.privilege}
    return places and granted.privilege in including


def find(polaris: PolarisManagement, wanted: WantedAccess) -> FoundAccess:
    """Return what Polaris has; raises the errors of its management API."""
    return FoundAccess(
        principal=polaris.client_id_of(wanted.principal) is not None,
        principal_role=polaris.has_principal_role(wanted.principal_role),
        is_assigned=wanted.principal_role in polaris.principal_roles_of(wanted.principal),
        catalog_role=polaris.has_catalog_role(wanted.catalog, wanted.catalog_role),
        is_used=wanted.catalog_role in polaris.catalog_roles_of(wanted.principal_role, wanted.catalog),
        grants=polaris.grants_of(wanted.catalog, wanted.catalog_role),
    )


def steps_to(wanted: WantedAccess, found: FoundAccess, *, new_secret: bool = False) -> list[SetupStep]:
    """Return what is to be changed, in an order in which each step finds what it needs; nothing is taken away."""
    role, catalog = wanted.principal_role, wanted.catalog
    steps = []
    if not found.principal:
        steps.append(SetupStep(SetupKind.PRINCIPAL, f"create the principal {wanted.principal}"))
    elif new_secret:
        steps.append(SetupStep(SetupKind.SECRET, f"give the principal {wanted.principal} a new secret"))
    if not found.principal_role:
        steps.append(SetupStep(SetupKind.PRINCIPAL_ROLE, f"create the principal role {role}"))
    if not found.is_assigned:
        steps.append(SetupStep(SetupKind.ASSIGN, f"give the principal {wanted.principal} the role {role}"))
    if not found.catalog_role:
        steps.append(SetupStep(SetupKind.CATALOG_ROLE, f"create the role {wanted.catalog_role} of catalog {catalog}"))
    if not found.is_used:
        steps.append(
            SetupStep(SetupKind.USE, f"give the role {role} the role {wanted.catalog_role} of catalog {catalog}")
        )
    # Exactly the documented grants, even where another one gives them: that one may be meant for something else.
    missing = [grant for grant in wanted.grants if grant not in found.grants]
    return steps + [SetupStep(SetupKind.GRANT, f"grant {grant} to {wanted.catalog_role}", grant) for grant in missing]


def apply(polaris: PolarisManagement, wanted: WantedAccess, step: SetupStep) -> ClientCredentials | None:
    """Carry out a step; return the credentials that it made. Raises the errors of the management API."""
    match step.kind:
        case SetupKind.PRINCIPAL:
            return polaris.create_principal(wanted.principal)
        case SetupKind.SECRET:
            return polaris.reset_secret(wanted.principal)
        case SetupKind.PRINCIPAL_ROLE:
            polaris.create_principal_role(wanted.principal_role)
        case SetupKind.ASSIGN:
            polaris.assign_principal_role(wanted.principal, wanted.principal_role)
        case SetupKind.CATALOG_ROLE:
            polaris.create_catalog_role(wanted.catalog, wanted.catalog_role)
        case SetupKind.USE:
            polaris.assign_catalog_role(wanted.principal_role, wanted.catalog, wanted.catalog_role)
        case SetupKind.GRANT if step.grant is not None:
            polaris.grant(wanted.catalog, wanted.catalog_role, step.grant)
    return None


SERVICE_PRIVILEGES: Final = ("TABLE_WRITE_DATA", "TABLE_DROP")
"""What the service needs on the tombstone namespace: to purge a table there, and to drop or rename it afterwards."""
RENAME_INTO: Final = "TABLE_CREATE"
"""What a rename needs on the namespace of the new name: there of callers, where tables are restored of the service."""


@dataclass(frozen=True, slots=True)
class WantedTombstones:
    """The tombstone namespace, and the principal roles that get a role of the catalog with RENAME_INTO there."""

    catalog: str
    namespace: tuple[str, ...]
    callers: tuple[str, ...]
    callers_role: str

    @property
    def grant(self) -> PolarisGrant:
        """The only grant of the callers' role."""
        return PolarisGrant(RENAME_INTO, self.namespace)


@dataclass(frozen=True, slots=True)
class FoundTombstones:
    """What Polaris has of it: which namespaces on the way to it are missing, its role, and who has that."""

    missing: tuple[tuple[str, ...], ...]
    role: bool
    users: frozenset[str]
    grants: frozenset[PolarisGrant]
    unknown: tuple[str, ...] = ()


def service_grants(namespace: tuple[str, ...], purged: Iterable[tuple[str, ...]]) -> tuple[PolarisGrant, ...]:
    """Return the service's grants for tombstones of tables in the namespaces `purged`, of all without any.

    RENAME_INTO where tables are purged lets it restore them to their names.
    """
    places = list(purged) or [()]
    on_tombstones = [PolarisGrant(privilege, namespace) for privilege in SERVICE_PRIVILEGES]
    return (*on_tombstones, *(PolarisGrant(RENAME_INTO, place) for place in places))


def find_tombstones(polaris: PolarisManagement, client: PolarisClient, wanted: WantedTombstones) -> FoundTombstones:
    """Return what Polaris has; raises the errors of its two APIs."""
    catalog, role, levels = wanted.catalog, wanted.callers_role, wanted.namespace
    paths = [levels[: number + 1] for number in range(len(levels))]
    users = (each for each in wanted.callers if role in polaris.catalog_roles_of(each, catalog))
    return FoundTombstones(
        missing=tuple(path for path in paths if not client.has_namespace(catalog, path)),
        role=polaris.has_catalog_role(catalog, role),
        users=frozenset(users),
        grants=polaris.grants_of(catalog, role),
        unknown=tuple(each for each in wanted.callers if not polaris.has_principal_role(each)),
    )


def namespace_steps(wanted: WantedTombstones, found: FoundTombstones) -> list[SetupStep]:
    """Return the namespaces to create, before anything is granted on them."""
    return [
        SetupStep(SetupKind.NAMESPACE, f"create the namespace {'.'.join(path)} of catalog {wanted.catalog}", place=path)
        for path in found.missing
    ]


def caller_steps(wanted: WantedTombstones, found: FoundTombstones) -> list[SetupStep]:
    """Return what lets the callers rename tables into the tombstone namespace; nothing without callers."""
    role, steps = wanted.callers_role, []
    if not wanted.callers:
        return []
    if not found.role:
        text = f"create the role {role} of catalog {wanted.catalog}"
        steps.append(SetupStep(SetupKind.CALLERS_ROLE, text))
    if wanted.grant not in found.grants:
        steps.append(SetupStep(SetupKind.CALLERS_GRANT, f"grant {wanted.grant} to {role}", wanted.grant))
    for caller in wanted.callers:
        if caller not in found.users:
            text = f"give the role {caller} the role {role} of catalog {wanted.catalog}"
            steps.append(SetupStep(SetupKind.CALLERS_USE, text, principal_role=caller))
    return steps


def apply_tombstones(
    polaris: PolarisManagement, client: PolarisClient, wanted: WantedTombstones, step: SetupStep
) -> None:
    """Carry out a step of this module; raises the errors of the two APIs."""
    match step.kind:
        case SetupKind.NAMESPACE:
            client.create_namespace(wanted.catalog, step.place)
        case SetupKind.CALLERS_ROLE:
            polaris.create_catalog_role(wanted.catalog, wanted.callers_role)
        case SetupKind.CALLERS_GRANT:
            polaris.grant(wanted.catalog, wanted.callers_role, wanted.grant)
        case SetupKind.CALLERS_USE:
            polaris.assign_catalog_role(step.principal_role, wanted.catalog, wanted.callers_role)
        case _:
            raise ValueError(step.kind)


class TombstoneSetup:
    """The steps for tombstones, `before` the service's grants and `after` them; raises CommandError."""

    def __init__(self, api: PolarisManagement, client: PolarisClient, wanted: WantedTombstones) -> None:
        found = find_tombstones(api, client, wanted)
        if found.unknown:
            raise CommandError(
                f"Polaris has no principal role {', '.join(found.unknown)}; nothing was changed",
                "Name with --callers a role that the principals who drop tables have, or create it in Polaris first.",
                code="UNKNOWN_PRINCIPAL_ROLE",
            )
        self._api, self._client, self._wanted = api, client, wanted
        self.before = namespace_steps(wanted, found)
        self.after = caller_steps(wanted, found)

    def apply(self, step: SetupStep) -> None:
        """Carry out one of the steps."""
        apply_tombstones(self._api, self._client, self._wanted, step)


PURGES_VIEWS: Final = "polaris.config.purge-view-metadata-on-drop"
MAY_PURGE: Final = "polaris.config.drop-with-purge.enabled"


def are_droppable(properties: Mapping[str, str]) -> bool:
    """Whether a catalog with these properties lets views be dropped; the first is on by default, the second off."""
    return properties.get(PURGES_VIEWS, "true").lower() == "false" or properties.get(MAY_PURGE, "").lower() == "true"


def steps_to_drop_views(polaris: PolarisManagement, catalog: str) -> list[SetupStep]:
    """Return the step that lets views be dropped, none if they can be; their metadata files then stay."""
    if are_droppable(polaris.properties_of(catalog)):
        return []
    return [SetupStep(SetupKind.VIEWS, f"set {PURGES_VIEWS} = false for catalog {catalog}")]


def apply_to_views(polaris: PolarisManagement, catalog: str) -> None:
    """Let views of a catalog be dropped."""
    polaris.set_property(catalog, PURGES_VIEWS, "false")
