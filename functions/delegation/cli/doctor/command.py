"""`delegation doctor`: checks each part that the service needs, and states how to repair it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import typer
from pydantic import SecretStr

from delegation.cli.calls import Call, command, defaulted, optional, switch
from delegation.cli.catalog.polaris import (
    as_administrator,
    connect_management,
    parse_namespace,
    polaris_url,
    realm_of,
    service_grants,
    wanted_grants,
)
from delegation.cli.connection import Connection, emulated_identity, find_task_table, polaris_as
from delegation.cli.doctor.catalog import (
    GRANTS,
    CatalogCheck,
    GrantCheck,
    TombstoneCheck,
    ViewCheck,
    polaris_failure,
    unknown_catalog,
    what_lacks,
)
from delegation.cli.doctor.checks import CheckResult, failed, findings_screen, is_healthy, not_checked, report
from delegation.cli.doctor.service import ServiceCheck
from delegation.cli.errors import CommandError
from delegation.cli.output import next_step
from delegation.configuration import SettingsInvalid
from delegation.edge.api import VERSION
from delegation.polaris.answers import PolarisError
from delegation.polaris.management import PolarisGrant
from delegation.polaris.requests import DEFAULT_SCOPE
from polaris_common.errors import DelegationError

_PARTS = ("tasks_table", "idempotency_table", "references_table", "queue_url", "plan_bucket")


@command()
def doctor_command(
    call: Call,
    *,
    namespace: str | None = optional(
        "--namespace",
        "Also check what a purge in this namespace or catalog needs.",
        "CATALOG.LEVEL",
    ),
    principal: str = defaulted("--principal", "The service's principal in Polaris.", "delegation"),
    only_namespaces: bool = switch(
        "--only-namespaces", "Expect no grant on the whole catalog, as for delegation.purge.references=namespace."
    ),
    tombstones: str | None = optional(
        "--tombstones",
        "Also check this namespace of tombstones, for drops through the gateway.",
        "CATALOG.LEVEL",
    ),
    callers: list[str] | None = optional(
        "--callers", "With --tombstones: a role that may drop tables; may be repeated.", "PRINCIPAL_ROLE"
    ),
    deployed: bool = switch("--deployed", "Check the deployed stacks on AWS instead."),
    stage: str = defaulted("--stage", "With --deployed: the stage.", "prod"),
) -> None:
    """Check everything that the service needs, and show how to repair it.

    With credentials for AWS and Polaris, it checks more. Exit status 1: a check failed.
    """
    wanted = wanted_of(namespace, tombstones, callers or (), principal, whole_index=not only_namespaces)
    if deployed:
        findings = list(deployed_findings(stage))
    else:
        parts = (
            service_findings(call.connection),
            aws_findings(call.connection),
            catalog_findings(call.connection, wanted),
        )
        findings = list(dict.fromkeys(finding for part in parts for finding in _with_settings(part)))
    call.output.result(report(findings, VERSION), lambda: findings_screen(findings))
    if not is_healthy(findings):
        raise typer.Exit(1)


def _with_settings(findings: Iterator[CheckResult]) -> Iterator[CheckResult]:
    """Yield the findings of a part, or what is wrong with the settings that it needs."""
    try:
        yield from findings
    except SettingsInvalid as error:
        for problem in error.problems:
            yield failed("settings", f"{problem.setting}: {problem.reason}", error.next_step)


def service_findings(connection: Connection) -> Iterator[CheckResult]:
    try:
        settings = connection.operator_settings()
    except CommandError as error:
        yield failed("settings", str(error), error.next_step)
        return
    yield from ServiceCheck(settings).findings()


def aws_findings(connection: Connection) -> Iterator[CheckResult]:
    """Yield the checks with AWS credentials; of a local stack only the task table, which is found by its key."""
    names = {part: connection.settings.get(part) for part in _PARTS}
    if not connection.uses_stack() and not any(names.values()):
        yield not_checked("AWS", f"set {', '.join(_PARTS)} to check them from here; the service's checks are above")
        return
    try:
        import boto3  # noqa: PLC0415 - installed where the service is

        from delegation.cli.doctor.aws import AwsCheck  # noqa: PLC0415
    except ModuleNotFoundError as error:
        yield not_checked("AWS", f"the module {error.name} is not installed")
        return
    try:
        endpoints = _endpoints(connection)
        client = _clients(boto3.client, endpoints)
        if endpoints and names["tasks_table"] is None:
            names["tasks_table"] = find_task_table(client("dynamodb"))
    except DelegationError as error:
        yield failed("tasks table", str(error), next_step(error))
        return
    yield from AwsCheck(names, client).findings()


def deployed_findings(stage: str) -> Iterator[CheckResult]:
    try:
        import boto3  # noqa: PLC0415 - installed where the service is

        from delegation.cli.doctor.aws import DeployedCheck  # noqa: PLC0415
    except ModuleNotFoundError as error:
        yield not_checked("AWS", f"the module {error.name} is not installed")
        return
    yield from DeployedCheck(stage, _clients(boto3.client, {})).findings()


def _endpoints(connection: Connection) -> Mapping[str, str]:
    if not connection.uses_stack():
        return {}
    stack = connection.stack()
    return {"dynamodb": stack.dynamodb_endpoint, "sqs": stack.aws_endpoint, "s3": stack.s3_endpoint}


def _clients(make: Callable[..., Any], endpoints: Mapping[str, str]) -> Callable[[str], Any]:

    @cache
    def client(service: str) -> Any:
        endpoint = endpoints.get(service)
        if endpoint is None:
            return make(service)
        return make(service, endpoint_url=endpoint, **emulated_identity(endpoint))

    return client


@dataclass(frozen=True, slots=True)
class CatalogOptions:
    """What to check in Polaris: a catalog, a namespace of tables, and the namespace of tombstones."""

    catalog: str | None
    levels: tuple[str, ...]
    principal: str
    whole_index: bool
    tombstones: tuple[str, ...] | None = None
    callers: tuple[str, ...] = ()

    def needed(self) -> tuple[PolarisGrant, ...]:
        places = [self.levels] if self.levels else []
        grants = wanted_grants(places, whole_index=self.whole_index)
        more = () if self.tombstones is None else service_grants(self.tombstones, places)
        return tuple(dict.fromkeys((*grants, *more)))


def wanted_of(
    namespace: str | None, tombstones: str | None, callers: Sequence[str], principal: str, *, whole_index: bool
) -> CatalogOptions:
    """Return the checks that the options request. Raises BadParameter for options that exclude each other."""
    catalog, levels = _place(namespace, "--namespace")
    if tombstones is None:
        if callers:
            raise typer.BadParameter("needs --tombstones CATALOG.LEVEL", param_hint="--callers")
        return CatalogOptions(catalog, levels, principal, whole_index)
    of_tombstones, place = _place(tombstones, "--tombstones")
    if not place or catalog not in {None, of_tombstones}:
        reason = "must be CATALOG.LEVEL, with the catalog of --namespace"
        raise typer.BadParameter(reason, param_hint="--tombstones")
    return CatalogOptions(of_tombstones, levels, principal, whole_index, place, tuple(callers))


def catalog_findings(connection: Connection, wanted: CatalogOptions) -> Iterator[CheckResult]:
    try:
        url, realm = polaris_url(connection), realm_of(connection)
    except CommandError:
        yield not_checked("Polaris", "polaris_url (DELEGATION_POLARIS_URL) is not set")
        return
    try:
        reached = tuple(_reached(connection, url, realm, wanted.catalog, wanted.levels))
        yield from reached
        if lacking := what_lacks(reached):
            yield not_checked(GRANTS, f"needs {lacking}")
        elif wanted.catalog is None:
            yield not_checked(GRANTS, "name a namespace with --namespace CATALOG.LEVEL")
        elif connection.admin_credential() is None:
            yield not_checked(GRANTS, "polaris_admin_credential is not set; it reads principals and grants")
        else:
            yield from _granted(connection, url, wanted.catalog, wanted)
    except CommandError as error:
        yield failed("Polaris", str(error), error.next_step)


def _granted(connection: Connection, url: str, catalog: str, wanted: CatalogOptions) -> Iterator[CheckResult]:
    management = connect_management(connection)
    try:
        exists = management.has_catalog(catalog)
    except PolarisError as error:
        yield polaris_failure(GRANTS, url, "polaris_admin_credential", error)
        return
    if not exists:
        yield unknown_catalog(GRANTS, catalog)
        return
    if wanted.tombstones is not None:
        client = as_administrator(connection)
        yield from TombstoneCheck(management, client, url, catalog, wanted.tombstones, wanted.callers).findings()
    yield from ViewCheck(management, url, catalog).findings()
    yield from GrantCheck(management, url, catalog, wanted.principal, wanted.needed(), wanted.tombstones).findings()


def _reached(
    connection: Connection, url: str, realm: str | None, catalog: str | None, levels: tuple[str, ...]
) -> Iterable[CheckResult]:
    credentials = ("polaris_service_credential", "polaris_credential")
    name = None
    if connection.named_polaris():
        name = next((each for each in credentials if connection.settings.get(each)), None)
    scope = connection.settings.get("polaris_scope") or DEFAULT_SCOPE
    if name is not None:
        client = polaris_as(
            url, SecretStr(connection.settings.get(name) or ""), scope=scope, realm=realm, http=connection.http()
        )
    elif not connection.named_polaris():
        name, client = "polaris_credential of stack.json", connection.catalog()
    else:
        return [not_checked("Polaris", f"neither {credentials[0]} nor {credentials[1]} is set")]
    return CatalogCheck(client, url, name, catalog, levels).findings()


def _place(text: str | None, option: str) -> tuple[str | None, tuple[str, ...]]:
    if text is None:
        return None, ()
    catalog, *levels = parse_namespace(text, option)
    return catalog, tuple(levels)
