"""What a command is about: names of policies, and of what they are attached to."""

from typing import Annotated

import typer

from delegation.cli.submit import parse_table
from delegation.identifiers import split_name
from delegation.polaris.policies import PolicyIdentifier, PolicyTarget
from delegation.upkeep.rules.types import PolicyType

PolicyArgument = Annotated[
    str,
    typer.Argument(
        metavar="CATALOG.NAMESPACE.POLICY",
        show_default=False,
        help="The policy; a part with a dot is between backquotes.",
    ),
]
TableOption = Annotated[
    str | None, typer.Option("--table", metavar="CATALOG.NAMESPACE.TABLE", show_default=False, help="The table.")
]
NamespaceOption = Annotated[
    str | None,
    typer.Option(
        "--namespace", metavar="CATALOG.NAMESPACE", show_default=False, help="The namespace, with all that is below it."
    ),
]
CatalogOption = Annotated[
    str | None, typer.Option("--catalog", metavar="CATALOG", show_default=False, help="The catalog of the policy.")
]


def parse_policy(text: str) -> PolicyIdentifier:
    """Parse `catalog.level.policy`; raises BadParameter."""
    parts = split_name(text)
    if len(parts) < 3:
        raise typer.BadParameter(f"{text!r} is not CATALOG.NAMESPACE.POLICY", param_hint="CATALOG.NAMESPACE.POLICY")
    return PolicyIdentifier(parts[0], tuple(parts[1:-1]), parts[-1])


def parse_target(
    table: str | None, namespace: str | None, catalog: str | None, policy: PolicyIdentifier
) -> PolicyTarget:
    """Return what exactly one of three options names, in the policy's own catalog; raises BadParameter."""
    given = {
        "--table": table,
        "--namespace": namespace,
        "--catalog": catalog,
    }
    named = [option for option, text in given.items() if text is not None]
    if len(named) != 1:
        raise typer.BadParameter("name one of them", param_hint="--table, --namespace or --catalog")
    if table is not None:
        target = PolicyTarget.of(parse_table(table))
    elif namespace is not None:
        catalog_name, levels = parse_namespace(namespace)
        target = PolicyTarget(catalog_name, levels)
    else:
        target = PolicyTarget(str(catalog))
    if target.catalog != policy.catalog:
        raise typer.BadParameter(f"is not in the policy's catalog {policy.catalog}", param_hint=named[0])
    return target


def parse_shown(text: str) -> PolicyTarget:
    """Parse `catalog`, `catalog.level` or `catalog.level.table`, which may be a namespace too; raises BadParameter."""
    parts = split_name(text)
    if len(parts) > 2:
        return PolicyTarget.of(parse_table(text))
    if not parts:
        raise typer.BadParameter(f"{text!r} is not CATALOG, CATALOG.NAMESPACE or a table", param_hint="NAME")
    return PolicyTarget(parts[0], tuple(parts[1:]))


def parse_namespace(text: str, hint: str = "--namespace") -> tuple[str, tuple[str, ...]]:
    """Parse `catalog.level.level`; raises BadParameter."""
    parts = split_name(text)
    if len(parts) < 2:
        raise typer.BadParameter(f"{text!r} is not CATALOG.NAMESPACE", param_hint=hint)
    return parts[0], tuple(parts[1:])


def parse_type(text: str) -> PolicyType:
    """Parse a type with or without `system.`; raises BadParameter."""
    found = PolicyType.named(text)
    if found is None:
        known = ", ".join(one.short for one in PolicyType)
        raise typer.BadParameter(f"{text!r} is not one of {known}", param_hint="--type")
    return found
