"""`delegation policy …`: the policies of Polaris, with the caller's own privileges there, and the rules they make."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import RenderableType
from rich.text import Text

from delegation.cli.calls import Call, IndexTableOption, argument, command, defaulted, group, option, optional, switch
from delegation.cli.deployment.limits import InsteadOption, StageFileOption, known_limits
from delegation.cli.errors import CommandError, partly_done
from delegation.cli.screens import Rows, WrappedText
from delegation.cli.submit import parse_namespace, parse_properties, parse_table
from delegation.identifiers import TableIdentifier, split_name
from delegation.items import each_item, reason_of
from delegation.polaris.answers import NoSuchNamespace, NoSuchTable, PolarisForbidden
from delegation.polaris.policies import PolicyClient, PolicyIdentifier, PolicyTarget, StoredPolicy
from delegation.upkeep.policy_file import LONGEST_FILE, PolicyFile
from delegation.upkeep.rules.model import PolicyInvalid, PolicyType, RuleStatus, RuleValue, UpkeepRule, content_of
from delegation.upkeep.rules.resolve import check_content, resolve
from polaris_common.errors import ErrorScope, counted, printable

PolicyArgument = Annotated[
    str, argument("CATALOG.NAMESPACE.POLICY", "The policy; backquotes enclose a part with a dot.")
]
TableOption = Annotated[str | None, option("--table", "The table.", "CATALOG.NAMESPACE.TABLE")]
NamespaceOption = Annotated[str | None, option("--namespace", "The namespace and all below it.", "CATALOG.NAMESPACE")]
CatalogOption = Annotated[str | None, option("--catalog", "The policy's catalog.", "CATALOG")]


def parse_policy(text: str) -> PolicyIdentifier:
    parts = split_name(text)
    if len(parts) < 3:
        raise typer.BadParameter(f"{text!r} is not CATALOG.NAMESPACE.POLICY", param_hint="CATALOG.NAMESPACE.POLICY")
    return PolicyIdentifier(parts[0], tuple(parts[1:-1]), parts[-1])


def parse_target(
    table: str | None, namespace: str | None, catalog: str | None, policy: PolicyIdentifier
) -> PolicyTarget:
    """Return the target that exactly one of three options names, in the policy's own catalog. Raises BadParameter."""
    given = {"--table": table, "--namespace": namespace, "--catalog": catalog}
    named = [option for option, text in given.items() if text is not None]
    if len(named) != 1:
        raise typer.BadParameter("give exactly one of these options", param_hint="--table, --namespace or --catalog")
    if table is not None:
        target = PolicyTarget.of(parse_table(table))
    elif namespace is not None:
        catalog_name, levels = parse_namespace(namespace, "--namespace")
        target = PolicyTarget(catalog_name, levels)
    else:
        target = PolicyTarget(str(catalog))
    if target.catalog != policy.catalog:
        raise typer.BadParameter(f"is not in the policy's catalog {policy.catalog}", param_hint=named[0])
    return target


def parse_shown(text: str) -> PolicyTarget:
    """Parse `catalog`, `catalog.level` or `catalog.level.table`, which may be a namespace too. Raises BadParameter."""
    parts = split_name(text)
    if len(parts) > 2:
        return PolicyTarget.of(parse_table(text))
    if not parts:
        raise typer.BadParameter(f"{text!r} is not CATALOG, CATALOG.NAMESPACE or a table", param_hint="NAME")
    return PolicyTarget(parts[0], tuple(parts[1:]))


def parse_type(text: str) -> PolicyType:
    """Parse a type with or without `system.`. Raises BadParameter."""
    policy_type = PolicyType.named(text)
    if policy_type is None:
        known = ", ".join(kind.short for kind in PolicyType)
        raise typer.BadParameter(f"{text!r} is not one of {known}", param_hint="--type")
    return policy_type


_LONGEST_REASON: Final = 800
_STYLES: Mapping[RuleStatus, str] = {RuleStatus.ACTIVE: "green", RuleStatus.DRY_RUN: "yellow", RuleStatus.OFF: "dim"}


def policy_list(policies: Sequence[tuple[PolicyIdentifier, StoredPolicy]]) -> RenderableType:
    rows = Rows("policy", "type", "version", "state", "description")
    for identifier, policy in policies:
        cells = (policy.type.removeprefix("system."), str(policy.version), state_of(policy))
        rows.add(str(identifier), *cells, printable(policy.description))
    return rows if policies else "No policies."


def state_of(policy: StoredPolicy) -> str:
    """Return whether a policy is enabled, unreadable, or unknown to this service."""
    type_ = PolicyType.named(policy.type)
    if type_ is None:
        return "unknown type"
    try:
        return "enabled" if content_of(type_, policy.content).enable else "disabled"
    except PolicyInvalid:
        return "invalid"


def rule_screens(name: str, rules: Sequence[UpkeepRule], note: str, unreadable: str | None) -> Iterator[RenderableType]:
    for rule in rules:
        yield from _rule(rule)
    if not any(rule.policy or rule.findings for rule in rules):
        yield f"No policy applies to {name}, so the service does not maintain it."
    if unreadable is not None:
        yield WrappedText(Text(printable(unreadable, _LONGEST_REASON), "yellow"))
    yield WrappedText(Text(note, "dim"))


def _rule(rule: UpkeepRule) -> Iterator[RenderableType]:
    if rule.policy is None and not rule.findings:
        return
    yield WrappedText(Text.assemble((rule.type.short, "bold"), "  ", (rule.status.value, _STYLES[rule.status])))
    if rule.reason is not None:
        yield WrappedText(f"  {rule.reason}")
    if rule.values:
        rows = Rows("value", "", "from")
        for key, value in rule.values.items():
            rows.add(f"  {key}", value.text, _origin(value))
        yield rows
    for finding in rule.findings:
        yield WrappedText(Text(f"  {finding.code.value} {finding.subject}: {finding.text}", "yellow"))


def _origin(value: RuleValue) -> str:
    asked = f"; replaces the looser value {value.asked} of the {value.asked_by}" if value.asked is not None else ""
    return f"{value.origin}{asked}"


_MOST_SHOWN: Final = 50


@command()
def simulate_command(
    call: Call,
    catalog: Annotated[str, argument("CATALOG", "The catalog's name.")],
    *,
    days: int = defaulted("--days", "The days to simulate.", 7, min=1, max=60),
    most: int = defaulted("--limit", "The number of runs to print; --json prints all.", _MOST_SHOWN, min=1),
    policy_file: Path | None = optional("--policy-file", "The deployment's policy file.", "FILE"),
    index_table: IndexTableOption = None,
    cdk: InsteadOption = None,
    stage_file: StageFileOption = None,
) -> None:
    """Show what a catalog's policies would run and when, with cost and freed space; run nothing.

    Needs CATALOG_READ_PROPERTIES and NAMESPACE_READ_PROPERTIES.
    """
    from delegation.cli.catalog.simulation import show_simulation  # noqa: PLC0415 - it needs the extra `service`

    show_simulation(
        call,
        catalog,
        days=days,
        most=most,
        policy_file=policy_file,
        index_table=index_table,
        cdk=cdk,
        stage_file=stage_file,
    )


app = group("policy")


def policy_file_unreadable(path: Path, reason: str) -> CommandError:
    return CommandError(f"{path} cannot be read: {reason}", "Name an existing text file.", code="FILE_UNREADABLE")


@command(app, "create")
def create_command(
    call: Call,
    name: PolicyArgument,
    *,
    type_: Annotated[str, option("--type", "The type, such as snapshot-expiry.", "TYPE")],
    values: list[str] | None = optional(
        "--set", "A value of the policy's config, such as max_snapshot_age_days=7; may be repeated.", "NAME=VALUE"
    ),
    content: Path | None = optional("--content", "A file with the policy's content, instead of --set.", "FILE"),
    disabled: bool = switch("--disabled", "Create the policy disabled."),
    description: str = option("--description", "The policy's purpose.", default=""),
) -> None:
    """Create a policy in a namespace of Polaris.

    Needs POLICY_CREATE.
    """
    identifier, kind = parse_policy(name), parse_type(type_)
    if content is not None and (values or disabled):
        raise typer.BadParameter("cannot be combined with --set or --disabled", param_hint="--content")
    if content is not None:
        text = _read(content)
    else:
        config = {key: _scalar(value) for key, value in parse_properties(values or []).items()}
        text = json.dumps({"version": "2025-02-03", "enable": not disabled, "config": config})
    for finding in check_content(kind, text):
        typer.echo(f"Warning: {finding.text}", err=True)
    made = _policies(call).create(identifier, kind.value, text, description)
    call.output.result(
        {"policy": str(identifier), "type": made.type, "version": made.version, "content": made.content},
        f"Created the policy {identifier}. Attach it: delegation policy attach {name} --table|--namespace NAME",
    )


@command(app, "delete")
def delete_command(
    call: Call,
    name: PolicyArgument,
    *,
    detach_all: bool = switch("--detach-all", "Detach the policy from all targets first."),
) -> None:
    """Delete an unattached policy. Needs POLICY_DROP."""
    identifier = parse_policy(name)
    _policies(call).delete(identifier, detach_all=detach_all)
    call.output.result({"policy": str(identifier), "deleted": True}, f"Deleted the policy {identifier}.")


def _add(name: str, does: str, then: str, joined: str) -> None:
    """Add the command that attaches policies, or the one that detaches them."""

    def run(
        call: Call,
        name: PolicyArgument,
        *,
        table: TableOption = None,
        namespace: NamespaceOption = None,
        catalog: CatalogOption = None,
    ) -> None:
        identifier = parse_policy(name)
        target = parse_target(table, namespace, catalog, identifier)
        policies, attached = _policies(call), joined == "to"
        (policies.attach if attached else policies.detach)(identifier, target)
        document = {"policy": str(identifier), "target": str(target), "attached": attached}
        call.output.result(document, f"{does}ed the policy {identifier} {joined} {target}.")

    run.__doc__ = f"""{does} a policy {joined} a table, namespace or catalog.{then}

    Needs POLICY_{does.upper()}, and TABLE_, NAMESPACE_ or CATALOG_{does.upper()}_POLICY on the target.
    """
    command(app, name)(run)


_add("attach", "Attach", " Of each type, only the nearest policy applies.", "to")
_add("detach", "Detach", "", "from")


@command(app, "list")
def list_command(
    call: Call,
    namespace: Annotated[str, argument("CATALOG.NAMESPACE", "The namespace.")],
    *,
    type_: str | None = optional("--type", "Only policies of this type.", "TYPE"),
) -> None:
    """List a namespace's policies with version and state.

    Needs POLICY_LIST and POLICY_READ.
    """
    catalog, levels = parse_namespace(namespace)
    wanted = None if type_ is None else parse_type(type_).value
    client = _policies(call)
    listed = sorted(client.list_policies(catalog, levels, wanted))
    tried = list(
        each_item(listed, client.load, name="policies.listed", stops=ErrorScope.CATALOG, most_wasted=timedelta.max)
    )
    loaded = [(attempt.item, attempt.result) for attempt in tried if attempt.result is not None]
    documents = [
        {
            "policy": str(identifier),
            "type": stored.type,
            "version": stored.version,
            "state": state_of(stored),
            "description": stored.description,
            "content": stored.content,
        }
        for identifier, stored in loaded
    ]
    call.output.result({"policies": documents}, lambda: policy_list(loaded))
    failed = {str(attempt.item): reason_of(attempt.error) for attempt in tried if attempt.error is not None}
    if failed:
        raise partly_done(failed, counted(len(listed), "policy", "policies"), "read")


@command(app, "show")
def show_command(
    call: Call,
    name: Annotated[
        str,
        argument("CATALOG[.NAMESPACE[.TABLE]]", "A table, namespace or catalog; backquotes enclose a part with a dot."),
    ],
    *,
    policy_file: Path | None = optional(
        "--policy-file",
        "The deployment's policy file. It replaces the Polaris policies of the catalogs that it names.",
        "FILE",
    ),
    cdk: InsteadOption = None,
    stage_file: StageFileOption = None,
) -> None:
    """Show a table's policies with the origin of each value, and settings without effect.

    For a namespace or catalog, show what its tables inherit. Needs TABLE_, NAMESPACE_ or CATALOG_READ_PROPERTIES.
    """
    target = parse_shown(name)
    file = None if policy_file is None else PolicyFile.parse(_read(policy_file))
    known = known_limits(call.connection, cdk, stage_file)
    known.require_file_for(target.catalog, policy_file)
    client = call.connection.catalog()
    properties: Mapping[str, str] = {}
    if target.table is not None:
        try:
            table = TableIdentifier(target.catalog, target.namespace, target.table)
            properties = client.load_table(table, vend=False, snapshots="refs").properties
        except (NoSuchTable, NoSuchNamespace):
            target = PolicyTarget(target.catalog, (*target.namespace, target.table))
            if not client.has_namespace(target.catalog, target.namespace):
                raise
    unreadable: str | None = None
    if file is not None and target.catalog in file.catalogs:
        source, applicable = str(policy_file), file.applicable(target)
    else:
        policies = PolicyClient(client.requests)
        source, applicable = "catalog", policies.applicable(target)
        unreadable = _why_unreadable(policies, target) if target.table is not None else None
    # Limits name catalogs and namespaces; the table's name does not matter.
    about = TableIdentifier(target.catalog, target.namespace or ("*",), target.table or "*")
    rules = list(resolve(about, applicable, properties, known.limits).values())
    document = {
        "table" if target.table is not None else str(target.document()["type"]): str(target),
        "policies_from": source,
        "limits_from": known.source,
        "rules": [rule.document() for rule in rules],
        "unreadable": unreadable,
    }
    call.output.result(document, rule_screens(str(target), rules, known.note, unreadable))


def _why_unreadable(policies: PolicyClient, table: PolicyTarget) -> str | None:
    """Return why the policies of a table's namespace, which upkeep also reads, cannot be read."""
    namespace = PolicyTarget(table.catalog, table.namespace)
    try:
        policies.applicable(namespace)
    except PolarisForbidden as error:
        return (
            f"the policies of {namespace} cannot be read with this credential ({error}). The service needs the same "
            "privilege. Without it, the service executes no policy of the namespace"
        )
    return None


app.command("simulate")(simulate_command)


def _policies(call: Call) -> PolicyClient:
    return PolicyClient(call.connection.catalog().requests)


def _scalar(text: str) -> str | int | float | bool:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, bool | int | float) else text


def _read(path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            return file.read(LONGEST_FILE + 1)
    except OSError as error:
        raise policy_file_unreadable(path, error.strerror or type(error).__name__) from None
    except UnicodeDecodeError:
        raise policy_file_unreadable(path, "it is not UTF-8") from None
