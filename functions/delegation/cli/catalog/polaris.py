"""`delegation polaris …`: what the service and drops through the gateway need in Polaris, and how it is added."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer
from pydantic import SecretStr
from rich.text import Text

from delegation.cli.calls import Call, argument, command, defaulted, group, optional, switch
from delegation.cli.connection import Connection, polaris_as, polaris_tokens
from delegation.cli.deployment.files import write_secret
from delegation.cli.errors import CommandError
from delegation.cli.output import Output
from delegation.configuration import FieldProblem, SettingsInvalid
from delegation.polaris.client import PolarisClient
from delegation.polaris.management import PolarisGrant, PolarisManagement, management_url
from delegation.polaris.requests import DEFAULT_SCOPE, ClientCredentials
from delegation.polaris.transport import Transport

INDEX_PRIVILEGES: Final = ("NAMESPACE_LIST", "TABLE_LIST", "TABLE_READ_PROPERTIES", "TABLE_READ_DATA")
"""What the reference index needs on the whole catalog (docs/architecture/trust.md, Privileges)."""
UPKEEP_PRIVILEGES: Final = ("NAMESPACE_READ_PROPERTIES", "VIEW_LIST", "VIEW_READ_PROPERTIES")
"""What upkeep also needs there: the policies and locations of namespaces, and where views are. Its commits need
TABLE_WRITE_PROPERTIES, which PURGE_PRIVILEGE includes."""
PURGE_PRIVILEGE: Final = "TABLE_WRITE_DATA"
"""What a purge needs where the tables are; it includes reading and listing them."""
_EVERYTHING: Final = frozenset({"CATALOG_MANAGE_CONTENT"})
_READS: Final = frozenset(
    {"TABLE_WRITE_PROPERTIES", "TABLE_FULL_METADATA", "CATALOG_MANAGE_METADATA", "TABLE_WRITE_DATA"}
)
_NAMESPACE_READS: Final = frozenset(
    {"NAMESPACE_WRITE_PROPERTIES", "NAMESPACE_FULL_METADATA", "CATALOG_MANAGE_METADATA"}
)
_VIEW_READS: Final = frozenset({"VIEW_WRITE_PROPERTIES", "VIEW_FULL_METADATA", "CATALOG_MANAGE_METADATA"})
_INCLUDED_IN: Final[Mapping[str, frozenset[str]]] = {
    "NAMESPACE_LIST": _NAMESPACE_READS | {"NAMESPACE_CREATE", "NAMESPACE_READ_PROPERTIES"},
    "NAMESPACE_READ_PROPERTIES": _NAMESPACE_READS,
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


class SetupKind(StrEnum):
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
    """One change in Polaris; `run` makes it and returns the credentials that it made, if any."""

    kind: SetupKind
    text: str
    run: Callable[[], ClientCredentials | None]


def wanted_grants(namespaces: Iterable[tuple[str, ...]], *, whole_index: bool) -> tuple[PolarisGrant, ...]:
    """Return the grants for purging in namespaces, or everywhere; `whole_index` adds reading the whole catalog."""
    places = list(namespaces) or [()]
    privileges = (*INDEX_PRIVILEGES, *UPKEEP_PRIVILEGES) if whole_index else ()
    index = [PolarisGrant(privilege) for privilege in privileges]
    return (*index, *(PolarisGrant(PURGE_PRIVILEGE, place) for place in places))


def gives(granted: PolarisGrant, needed: PolarisGrant) -> bool:
    """Return whether a grant covers a needed one: it counts for all namespaces below, and for included privileges."""
    places = granted.namespace == needed.namespace[: len(granted.namespace)]
    including = _INCLUDED_IN.get(needed.privilege, frozenset()) | _EVERYTHING | {needed.privilege}
    return places and granted.privilege in including


def steps_to(polaris: PolarisManagement, wanted: WantedAccess, *, new_secret: bool = False) -> list[SetupStep]:
    """Return the changes, each after those that it requires; nothing is revoked."""
    catalog, principal, role, own = wanted.catalog, wanted.principal, wanted.principal_role, wanted.catalog_role
    kind = SetupKind
    exists = polaris.client_id_of(principal) is not None
    granted = polaris.grants_of(catalog, own)
    new = partial(polaris.create_principal, principal)
    again = partial(polaris.reset_secret, principal)
    made = partial(polaris.create_principal_role, role)
    given = partial(polaris.assign_principal_role, principal, role)
    steps = [
        (not exists, SetupStep(kind.PRINCIPAL, f"create the principal {principal}", new)),
        (exists and new_secret, SetupStep(kind.SECRET, f"give the principal {principal} a new secret", again)),
        (
            not polaris.has_principal_role(role),
            SetupStep(kind.PRINCIPAL_ROLE, f"create the principal role {role}", made),
        ),
        (
            role not in polaris.principal_roles_of(principal),
            SetupStep(kind.ASSIGN, f"give the principal {principal} the principal role {role}", given),
        ),
        (not polaris.has_catalog_role(catalog, own), _role_step(kind.CATALOG_ROLE, polaris, catalog, own)),
        (own not in polaris.catalog_roles_of(role, catalog), _use_step(kind.USE, polaris, role, catalog, own)),
        # Exactly the documented grants, even if another grant covers them: that one may be meant for something else.
        *((grant not in granted, _grant_step(kind.GRANT, polaris, catalog, own, grant)) for grant in wanted.grants),
    ]
    return [step for is_missing, step in steps if is_missing]


def _role_step(kind: SetupKind, polaris: PolarisManagement, catalog: str, role: str) -> SetupStep:
    return SetupStep(
        kind, f"create the catalog role {role} in {catalog}", partial(polaris.create_catalog_role, catalog, role)
    )


def _use_step(kind: SetupKind, polaris: PolarisManagement, principal_role: str, catalog: str, role: str) -> SetupStep:
    text = f"give the principal role {principal_role} the catalog role {role} of {catalog}"
    return SetupStep(kind, text, partial(polaris.assign_catalog_role, principal_role, catalog, role))


def _grant_step(kind: SetupKind, polaris: PolarisManagement, catalog: str, role: str, grant: PolarisGrant) -> SetupStep:
    return SetupStep(kind, f"grant {grant} to {role}", partial(polaris.grant, catalog, role, grant))


SERVICE_PRIVILEGES: Final = ("TABLE_WRITE_DATA", "TABLE_DROP")
"""What the service needs on the tombstone namespace: to purge a table there, and to drop or rename it afterwards."""
RENAME_INTO: Final = "TABLE_CREATE"
"""What a rename needs on the namespace of the new name: callers there, the service where tables are restored."""


def service_grants(namespace: tuple[str, ...], purged: Iterable[tuple[str, ...]]) -> tuple[PolarisGrant, ...]:
    """Return the service's grants for tombstones of tables in `purged`, where RENAME_INTO lets it restore them."""
    places = list(purged) or [()]
    on_tombstones = [PolarisGrant(privilege, namespace) for privilege in SERVICE_PRIVILEGES]
    return (*on_tombstones, *(PolarisGrant(RENAME_INTO, place) for place in places))


def tombstone_steps(
    polaris: PolarisManagement,
    client: PolarisClient,
    catalog: str,
    namespace: tuple[str, ...],
    *,
    callers: Sequence[str],
    role: str,
) -> tuple[list[SetupStep], list[SetupStep]]:
    """Return the steps before the service's grants (the namespace), and those after (a role for the callers)."""
    paths = [namespace[: number + 1] for number in range(len(namespace))]
    before = [
        SetupStep(
            SetupKind.NAMESPACE,
            f"create the namespace {'.'.join(path)} in {catalog}",
            partial(client.create_namespace, catalog, path),
        )
        for path in paths
        if not client.has_namespace(catalog, path)
    ]
    if unknown := [each for each in callers if not polaris.has_principal_role(each)]:
        raise CommandError(
            f"Polaris has no principal role {', '.join(unknown)}; nothing was changed",
            "With --callers, name a principal role of the users who drop tables. If the role does not exist, "
            "create it in Polaris first.",
            code="UNKNOWN_PRINCIPAL_ROLE",
        )
    after = []
    grant = PolarisGrant(RENAME_INTO, namespace)
    if callers and not polaris.has_catalog_role(catalog, role):
        after.append(_role_step(SetupKind.CALLERS_ROLE, polaris, catalog, role))
    if callers and grant not in polaris.grants_of(catalog, role):
        after.append(_grant_step(SetupKind.CALLERS_GRANT, polaris, catalog, role, grant))
    lacking = [caller for caller in callers if role not in polaris.catalog_roles_of(caller, catalog)]
    return before, after + [_use_step(SetupKind.CALLERS_USE, polaris, caller, catalog, role) for caller in lacking]


PURGES_VIEWS: Final = "polaris.config.purge-view-metadata-on-drop"
MAY_PURGE: Final = "polaris.config.drop-with-purge.enabled"


def are_droppable(properties: Mapping[str, str]) -> bool:
    """Return whether a catalog lets views be dropped: the first property is on by default, the second off."""
    return properties.get(PURGES_VIEWS, "true").lower() == "false" or properties.get(MAY_PURGE, "").lower() == "true"


def steps_to_drop_views(polaris: PolarisManagement, catalog: str) -> list[SetupStep]:
    """Return the step that lets views be dropped, none if they can be; their metadata files then stay."""
    if are_droppable(polaris.properties_of(catalog)):
        return []
    change = partial(polaris.set_property, catalog, PURGES_VIEWS, "false")
    return [SetupStep(SetupKind.VIEWS, f"set {PURGES_VIEWS} = false for {catalog}", change)]


app = group("polaris")


@app.callback()
def polaris() -> None:
    """Prepare Polaris for the service."""


@command(app, "setup")
def setup_command(
    call: Call,
    catalog: Annotated[str, argument("CATALOG", "The catalog of the tables.")],
    *,
    namespace: list[str] | None = optional(
        "--namespace",
        "A namespace with tables to purge; may be repeated. Default: the whole catalog.",
        "LEVEL.LEVEL",
    ),
    only_namespaces: bool = switch(
        "--only-namespaces",
        "Grant nothing on the whole catalog, for delegation.purge.references=namespace.",
    ),
    principal: str = defaulted("--principal", "The name of the service's principal.", "delegation"),
    principal_role: str = defaulted("--principal-role", "The service's principal role.", "delegation"),
    catalog_role: str = defaulted("--catalog-role", "The service's catalog role.", "delegation"),
    tombstones: str | None = optional(
        "--tombstones",
        "Also prepare drops through the gateway: create this namespace of tombstones, and its grants.",
        "LEVEL.LEVEL",
    ),
    callers: list[str] | None = optional(
        "--callers",
        "With --tombstones: a principal role that may drop tables; may be repeated.",
        "PRINCIPAL_ROLE",
    ),
    callers_role: str = defaulted(
        "--callers-role", "The catalog role that the roles in --callers receive.", "delegation_callers"
    ),
    drop_views: bool = switch("--drop-views", "Also allow drops of views. Their metadata files stay."),
    secret_file: Path | None = optional(
        "--secret-file", "Write client id and secret to this new file instead of printing them."
    ),
    new_secret: bool = switch("--new-secret", "Give an existing principal a new secret; the old secret stops working."),
    dry_run: bool = switch("--dry-run", "Only show what would change."),
    management_api: str | None = optional(
        "--management-url",
        "The URL of Polaris' management API. Default: /api/management/v1 on the server of polaris_url.",
    ),
) -> None:
    """Create the missing principal, roles and grants of the service in Polaris.

    With --tombstones, also prepare drops through the gateway.

    Safe to repeat. A new principal's secret is printed once, or written to --secret-file.
    """
    _check_options(namespace, only_namespaces, tombstones, callers)
    if secret_file is not None and secret_file.exists():
        raise CommandError(
            f"{secret_file} exists; nothing was changed",
            "Name another file, or remove it first.",
            code="FILE_NOT_WRITTEN",
        )
    purged = list(map(parse_namespace, namespace or ()))
    grants = wanted_grants(purged, whole_index=not only_namespaces)
    api = connect_management(call.connection, management_api)
    if not api.has_catalog(catalog):
        raise CommandError(
            f"Polaris has no catalog {catalog}",
            "Check the name, or create the catalog in Polaris first.",
            code="UNKNOWN_CATALOG",
        )
    why = api.why_unsupported(catalog)
    if why is not None:
        raise CommandError(
            f"{catalog}: {why}", "Choose an INTERNAL catalog whose storage is S3.", code="CATALOG_UNSUPPORTED"
        )
    before: list[SetupStep] = []
    after: list[SetupStep] = []
    if tombstones is not None:
        place = parse_namespace(tombstones, "--tombstones")
        administrator = as_administrator(call.connection)
        before, after = tombstone_steps(api, administrator, catalog, place, callers=callers or (), role=callers_role)
        grants = tuple(dict.fromkeys((*grants, *service_grants(place, purged))))
    wanted = WantedAccess(catalog, principal, principal_role, catalog_role, grants)
    steps = [*before, *steps_to(api, wanted, new_secret=new_secret)]
    steps += [*(steps_to_drop_views(api, catalog) if drop_views else ()), *after]
    _carry_out(call.output, steps, secret_file, dry_run=dry_run)


def _check_options(
    namespace: list[str] | None, only_namespaces: bool, tombstones: str | None, callers: list[str] | None
) -> None:
    if only_namespaces and not namespace:
        raise typer.BadParameter("needs at least one --namespace", param_hint="--only-namespaces")
    if tombstones is None and callers:
        raise typer.BadParameter(
            "needs --tombstones, the namespace into which drops rename tables", param_hint="--callers"
        )
    if tombstones is not None and only_namespaces:
        reason = (
            "cannot be combined with --tombstones: the purge of a tombstone searches the whole catalog for tables at "
            "its location"
        )
        raise typer.BadParameter(reason, param_hint="--only-namespaces")


def _carry_out(output: Output, steps: Sequence[SetupStep], secret_file: Path | None, *, dry_run: bool) -> None:
    """Print each step when it is done, and a secret at once; as JSON one document at the end."""
    done: list[dict[str, str]] = []
    shown: dict[str, str] = {}
    mark = Text("would ", "yellow") if dry_run else Text("✓ ", "green")
    try:
        for step in steps:
            made = None if dry_run else step.run()
            done.append({"step": step.kind.value, "text": step.text})
            output.say(Text.assemble(mark, step.text))
            if made is not None:
                shown = _kept(made, secret_file)
                for name, value in shown.items():
                    output.say(f"  {name}: {value}")
                if secret_file is None:
                    output.show(Text("  This secret is not shown again.", "yellow"))
    finally:  # a secret that exists by now cannot be read again
        output.result({"dry_run": dry_run, "steps": done, "complete": len(done) == len(steps), **shown})
        if not steps:
            output.say("Nothing to do: the principal, its roles and its grants are complete.")


def _kept(made: ClientCredentials, file: Path | None) -> dict[str, str]:
    """Write credentials to a file in the form of AWS Secrets Manager (docs/deployment.md); return what is printed."""
    document = {"client_id": made.client_id, "client_secret": made.client_secret.get_secret_value()}
    if file is None:
        return document
    write_secret(file, json.dumps(document).encode() + b"\n")
    return {"client_id": made.client_id, "secret_file": str(file)}


def connect_management(connection: Connection, url: str | None = None) -> PolarisManagement:
    """Return a client of Polaris' management API with the administrator's credential. Raises SettingsInvalid."""
    catalog_url, realm = polaris_url(connection), realm_of(connection)
    transport = Transport(connection.http())
    tokens = polaris_tokens(
        catalog_url,
        _admin_credential(connection),
        scope=DEFAULT_SCOPE,
        realm=realm,
        transport=transport,
        setting="DELEGATION_POLARIS_ADMIN_CREDENTIAL",
    )
    return PolarisManagement(url or management_url(catalog_url), tokens, realm=realm, transport=transport)


def as_administrator(connection: Connection) -> PolarisClient:
    credential, realm = _admin_credential(connection), realm_of(connection)
    return polaris_as(polaris_url(connection), credential, scope=DEFAULT_SCOPE, realm=realm, http=connection.http())


def _admin_credential(connection: Connection) -> SecretStr:
    credential = connection.admin_credential()
    if credential is None:
        problem = FieldProblem("polaris_admin_credential (DELEGATION_POLARIS_ADMIN_CREDENTIAL)", "is not set")
        raise SettingsInvalid(
            "the connection to Polaris", [problem], "Set it to the id:secret of a Polaris administrator."
        )
    return credential


def polaris_url(connection: Connection) -> str:
    """Return the catalog's address, that of the local stack without a setting. Raises CommandError (NOT_CONNECTED)."""
    return connection.named_polaris() or connection.stack().polaris_url


def realm_of(connection: Connection) -> str | None:
    """Return the realm, that of the local stack without a setting."""
    return connection.settings.get("realm") if connection.named_polaris() else connection.stack().realm


def parse_namespace(text: str, option: str = "--namespace") -> tuple[str, ...]:
    """Parse `level.level`, the value of an option. Raises BadParameter."""
    levels = tuple(text.replace("`", "").split("."))
    if not all(levels):
        raise typer.BadParameter(f"{text!r} is not LEVEL.LEVEL", param_hint=option)
    return levels
