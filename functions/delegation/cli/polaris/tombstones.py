"""What dropping tables through the gateway needs in Polaris: a namespace for tombstones, and who may rename into it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from delegation.cli.errors import CommandError
from delegation.cli.polaris.setup import SetupKind, SetupStep
from delegation.polaris.client import PolarisClient
from delegation.polaris.management import PolarisGrant, PolarisManagement

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
