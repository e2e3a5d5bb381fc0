"""`delegation deploy-check`: compare what is deployed with what is synthesized, and refuse what would do harm."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console
from rich.text import Text

from delegation.cli.deploying.changes import Danger, Template, dangers_of, dangers_of_change_set
from delegation.cli.errors import CommandError
from delegation.cli.options import JsonOption
from delegation.cli.output import open_output, print_json
from polaris_common.errors import counted

if TYPE_CHECKING:
    from delegation.cli.deploying.deployed import DeployedStacks

_MANIFEST: Final = "manifest.json"
_STACK: Final = "aws:cloudformation:stack"


def deploy_refused(count: int) -> CommandError:
    """Return the error: the deployment would do harm."""
    text = counted(count, "change")
    return CommandError(
        f"{text} must not be deployed", "Do what is said beside each; nothing was deployed.", code="DEPLOY_REFUSED"
    )


def deploy_check_command(
    ctx: typer.Context,
    *,
    folder: Annotated[
        Path, typer.Option("--app", metavar="FOLDER", help="The templates that `cdk synth` wrote.")
    ] = Path("cdk.out"),
    change_set: Annotated[
        str | None,
        typer.Option(
            "--change-set",
            metavar="NAME",
            show_default=False,
            help="Read the change sets of this name too, which `cdk deploy --method prepare-change-set` makes.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check before a deployment that it replaces and removes nothing that holds data; changes nothing.

    What is deployed is compared with the synthesized templates: tables, buckets,
    keys, secrets, queues, subnets, exports in use, Spark applications.
    """
    from delegation.cli.deploying.deployed import DeployedStacks  # noqa: PLC0415 - loads boto3

    open_output(ctx, as_json=as_json)
    found = check(synthesized(folder), DeployedStacks.connect(), change_set)
    if as_json:
        print_json({"refused": [{**asdict(one), "advice": one.advice} for one in found]})
    else:
        show(found)
    if found:
        raise deploy_refused(len(found))


def synthesized(folder: Path) -> dict[str, Template]:
    """Return the templates in a cloud assembly by stack name; raises CommandError (NOT_SYNTHESIZED)."""
    try:
        artifacts = json.loads((folder / _MANIFEST).read_bytes()).get("artifacts", {})
        stacks = {
            one.get("properties", {}).get("stackName", name): one["properties"]["templateFile"]
            for name, one in artifacts.items()
            if one["type"] == _STACK
        }
        return {name: json.loads((folder / file).read_bytes()) for name, file in stacks.items()}
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise CommandError(
            f"{folder} has no synthesized templates",
            "Run `cdk synth` first, or name its folder.",
            code="NOT_SYNTHESIZED",
        ) from error


def check(new: Mapping[str, Template], deployed: "DeployedStacks", change_set: str | None) -> list[Danger]:
    """Return what must not be deployed; a stack that is not deployed yet holds nothing."""
    former = {name: template for name in new if (template := deployed.template(name)) is not None}
    found = dangers_of(former, new, deployed.imports, deployed.identity)
    if change_set is not None:
        known = {(one.stack, one.name) for one in found}
        for name in former:
            more = dangers_of_change_set(name, deployed.changes(name, change_set))
            found += [one for one in more if (one.stack, one.name) not in known]
    return found


def show(found: list[Danger], console: Any = None) -> None:
    """Print each change that is refused, and what to do instead."""
    console = console or Console(highlight=False)
    if not found:
        console.print("Nothing that holds data is replaced or removed.")
    for one in found:
        console.print(Text.assemble(("✗ ", "bold red"), (f"{one.stack} {one.name}", "bold")), soft_wrap=True)
        console.print(Text(f"  {one.reason}. {one.advice}"))
