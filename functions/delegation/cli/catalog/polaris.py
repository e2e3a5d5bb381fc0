"""`delegation polaris …`: what an operator does in Polaris for the service."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from pydantic import SecretStr
from rich.text import Text

from delegation.cli.calls import Call, argument, command, defaulted, group, optional, switch
from delegation.cli.catalog.polaris_setup import (
    SetupStep,
    WantedAccess,
    service_grants,
    steps_to,
    steps_to_drop_views,
    tombstone_steps,
    wanted_grants,
)
from delegation.cli.connection import Connection, polaris_as, polaris_tokens
from delegation.cli.deployment.files import write_secret
from delegation.cli.errors import CommandError
from delegation.cli.output import Output
from delegation.configuration import FieldProblem, SettingsInvalid
from delegation.polaris.client import PolarisClient
from delegation.polaris.management import PolarisManagement, management_url
from delegation.polaris.requests import DEFAULT_SCOPE, ClientCredentials
from delegation.polaris.transport import Transport

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
        "Grant nothing on the catalog (delegation.purge.references=namespace).",
    ),
    principal: str = defaulted("--principal", "The name of the service's principal.", "delegation"),
    principal_role: str = defaulted("--principal-role", "The principal's role.", "delegation"),
    catalog_role: str = defaulted("--catalog-role", "The catalog's role.", "delegation"),
    tombstones: str | None = optional(
        "--tombstones",
        "Also prepare drops through the gateway: the namespace of tombstones, and its grants.",
        "LEVEL.LEVEL",
    ),
    callers: list[str] | None = optional(
        "--callers",
        "With --tombstones: a principal role that may drop tables; may be repeated.",
        "PRINCIPAL_ROLE",
    ),
    callers_role: str = defaulted("--callers-role", "The catalog's role for those callers.", "delegation_callers"),
    drop_views: bool = switch("--drop-views", "Also let views be dropped; their metadata files stay."),
    secret_file: Path | None = optional(
        "--secret-file", "Write client id and secret to this new file instead of printing them."
    ),
    new_secret: bool = switch("--new-secret", "Give an existing principal a new secret; the former one ends."),
    dry_run: bool = switch("--dry-run", "Only show what would change."),
    management_api: str | None = optional(
        "--management-url", "The management API of Polaris. Default: /api/management/v1 beside the polaris_url."
    ),
) -> None:
    """Create the missing principal, roles and grants of the service in Polaris.

    With --tombstones, prepare drops through the gateway too.

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
            "Check the name; catalogs are made in Polaris itself.",
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
        raise typer.BadParameter("needs --tombstones, the namespace into which callers rename", param_hint="--callers")
    if tombstones is not None and only_namespaces:
        reason = "a tombstone's purge looks for a table at the same location in the whole catalog; leave it out"
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
            output.say("Nothing to do: principal, roles and grants are as they should be.")


def _kept(made: ClientCredentials, file: Path | None) -> dict[str, str]:
    """Write credentials to a file, as AWS Secrets Manager has them (docs/deployment.md); return what is printed."""
    document = {"client_id": made.client_id, "client_secret": made.client_secret.get_secret_value()}
    if file is None:
        return document
    write_secret(file, json.dumps(document).encode() + b"\n")
    return {"client_id": made.client_id, "secret_file": str(file)}


def connect_management(connection: Connection, url: str | None = None) -> PolarisManagement:
    """Return a client of Polaris' management API with the administrator's credential; raises SettingsInvalid."""
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
        raise SettingsInvalid("the connection to Polaris", [problem], "Set it to id:secret of an administrator.")
    return credential


def polaris_url(connection: Connection) -> str:
    """Return the catalog's address, that of the local stack without a setting; raises CommandError (NOT_CONNECTED)."""
    return connection.named_polaris() or connection.stack().polaris_url


def realm_of(connection: Connection) -> str | None:
    """Return the realm, that of the local stack without a setting."""
    return connection.settings.get("realm") if connection.named_polaris() else connection.stack().realm


def parse_namespace(text: str, option: str = "--namespace") -> tuple[str, ...]:
    """Parse `level.level`, the value of an option; raises BadParameter."""
    levels = tuple(text.replace("`", "").split("."))
    if not all(levels):
        raise typer.BadParameter(f"{text!r} is not LEVEL.LEVEL", param_hint=option)
    return levels
