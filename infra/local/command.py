"""The commands `delegation local …`, which run the whole system on this machine."""

import contextlib
import json
import logging
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from pydantic import SecretStr
from rich.console import Console
from rich.table import Table
from rich.text import Text

from delegation.cli.calls import JsonOption
from delegation.cli.errors import CommandError
from delegation.cli.output import open_output
from delegation.cli.submit import parse_properties
from infra.local.demo.commands import plant_orphans_command, tables_command
from infra.local.errors import LocalStackError, PolarisUnusable

if TYPE_CHECKING:
    from infra.local.options import StackOptions
    from infra.local.supervisor import LocalStack, Part

app = typer.Typer(help="Run the whole system on this machine.", no_args_is_help=True)
_CHECK_SECONDS = 1.0
_WIDE = 120
"""From so many columns on the note of a part is beside its address."""


@app.callback()
def local() -> None:
    """Run the whole system on this machine."""


PolarisUrl = Annotated[
    str | None,
    typer.Option(show_default=False, help="URL of a real Polaris (…/api/catalog), used instead of the stand-in."),
]
PolarisClientId = Annotated[
    str | None,
    typer.Option(show_default=False, help="Client id of a principal there that owns the tables."),
]
PolarisClientSecret = Annotated[
    str | None,
    typer.Option(
        show_default=False, envvar="DELEGATION_POLARIS_CLIENT_SECRET", help="Client secret of that principal."
    ),
]
PolarisServiceClientId = Annotated[
    str | None,
    typer.Option(show_default=False, help="Client id of the service's principal there; the owner's by default."),
]
PolarisServiceClientSecret = Annotated[
    str | None,
    typer.Option(
        show_default=False,
        envvar="DELEGATION_POLARIS_SERVICE_CLIENT_SECRET",
        help="Client secret of the service's principal.",
    ),
]
PolarisScope = Annotated[str, typer.Option(help="Scope of the principals' tokens.")]
PolarisServiceScope = Annotated[
    str | None, typer.Option(show_default=False, help="Scope of the service's tokens, if it is another.")
]
PolarisRealm = Annotated[str, typer.Option(help="Realm, there and of the service.")]
S3Endpoint = Annotated[
    str | None,
    typer.Option(show_default=False, help="S3 endpoint to use instead of the stack's; keys from the AWS variables."),
]
DynamoDbEndpoint = Annotated[
    str | None,
    typer.Option(show_default=False, help="DynamoDB endpoint instead of the stack's; keys from the AWS variables."),
]
VersionedOption = Annotated[
    bool, typer.Option("--versioned", help="Have the tables' bucket keep versions: what is deleted can be restored.")
]
CatalogOption = Annotated[
    Literal["memory", "persistence"],
    typer.Option(
        help="Where the stand-in of Polaris keeps its catalog: in memory, or in the NoSQL persistence "
        "(docs/persistence.md)."
    ),
]
InlineMaxFiles = Annotated[
    int | None, typer.Option(show_default=False, help="Spark purges the tables with more files than this.", min=0)
]
GatewayOption = Annotated[
    bool, typer.Option("--gateway", help="Start the gateway in front of the catalog, too (docs/gateway-rule.md).")
]
PolarisPublicKey = Annotated[
    Path | None,
    typer.Option(show_default=False, help="PEM file that verifies the tokens of a real Polaris, for --gateway."),
]
Properties = Annotated[
    list[str] | None,
    typer.Option("--property", metavar="NAME=VALUE", help="Set a property of the service that differs from cdk.json."),
]


@app.command()
def up(
    ctx: typer.Context,
    *,
    polaris_url: PolarisUrl = None,
    polaris_client_id: PolarisClientId = None,
    polaris_client_secret: PolarisClientSecret = None,
    polaris_service_client_id: PolarisServiceClientId = None,
    polaris_service_client_secret: PolarisServiceClientSecret = None,
    polaris_scope: PolarisScope = "PRINCIPAL_ROLE:ALL",
    polaris_service_scope: PolarisServiceScope = None,
    polaris_realm: PolarisRealm = "POLARIS",
    warehouse: Annotated[str, typer.Option(help="The catalog's name in Polaris.")] = "lake",
    catalog: CatalogOption = "memory",
    s3_endpoint: S3Endpoint = None,
    dynamodb_endpoint: DynamoDbEndpoint = None,
    port: Annotated[int, typer.Option(help="Port of the HTTPS front; 0 picks a free one.", min=0, max=65535)] = 0,
    state_dir: Annotated[Path, typer.Option(help="Folder for stack.json, certificates and logs.")] = Path(".local"),
    versioned: VersionedOption = False,
    inline_max_files: InlineMaxFiles = None,
    gateway: GatewayOption = False,
    polaris_public_key: PolarisPublicKey = None,
    properties: Properties = None,
    sweep_seconds: Annotated[float, typer.Option(help="Seconds between two runs of the sweeper.", min=1)] = 60,
    as_json: JsonOption = False,
) -> None:
    """Start the whole system, write stack.json when it is ready, and run until Ctrl-C or SIGTERM."""
    from infra.local.options import StackOptions  # noqa: PLC0415  loads what only this command needs

    open_output(ctx, as_json=as_json)
    overrides = parse_properties(properties or ())
    # Both stop the stack, also during the start and where a shell's `&` made it ignore SIGINT.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    with _reported(state_dir):
        options = StackOptions(
            state_dir=state_dir,
            port=port,
            polaris_url=polaris_url,
            polaris_client_id=polaris_client_id,
            polaris_client_secret=_secret(polaris_client_secret),
            polaris_service_client_id=polaris_service_client_id,
            polaris_service_client_secret=_secret(polaris_service_client_secret),
            polaris_scope=polaris_scope,
            polaris_service_scope=polaris_service_scope,
            polaris_realm=polaris_realm,
            warehouse=warehouse,
            catalog=catalog,
            s3_endpoint=s3_endpoint,
            dynamodb_endpoint=dynamodb_endpoint,
            versioned=versioned,
            inline_max_files=inline_max_files,
            gateway=gateway,
            polaris_public_key=polaris_public_key,
            sweep_seconds=sweep_seconds,
            properties=overrides,
        )
        _run(options, as_json=as_json)


app.command("tables")(tables_command)
app.command("plant-orphans")(plant_orphans_command)


def _secret(text: str | None) -> SecretStr | None:
    return SecretStr(text) if text else None


@contextlib.contextmanager
def _reported(state_dir: Path) -> Iterator[None]:
    """Turn Ctrl-C into a line of output, and a failure of the stack into a command error with a next step."""
    try:
        yield
    except KeyboardInterrupt:
        Console(stderr=True).print("Stopped.")
    except PolarisUnusable as exc:
        raise CommandError(exc.problem, f"{exc.advice[0].upper()}{exc.advice[1:]}.", code="LOCAL_STACK_FAILED") from exc
    except LocalStackError as exc:
        logs = state_dir / "logs"
        next_step = f"Read the logs in {logs}, then run the same command again."
        if not logs.is_dir():
            next_step = "Name a folder that this user may write: --state-dir."
        raise CommandError(str(exc), next_step, code="LOCAL_STACK_FAILED") from exc


def _run(options: "StackOptions", *, as_json: bool) -> None:
    """Start a stack and check it until a signal interrupts; stop it in any case."""
    from infra.local.supervisor import LocalStack  # noqa: PLC0415  loads moto and pyspark, which takes seconds

    stack = LocalStack(options)
    console = Console(stderr=True, highlight=False)
    started = time.monotonic()
    try:
        with console.status("Starting the delegation service on this machine…"):
            stack.start()
            logging.basicConfig(
                filename=stack.logs / "stack.log", format="%(asctime)s %(levelname)s %(name)s %(message)s"
            )
        _print_summary(console, stack, time.monotonic() - started, as_json=as_json)
        while True:
            time.sleep(_CHECK_SECONDS)
            stack.check()
    finally:
        # A second Ctrl-C must not interrupt the stop.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        stack.stop()


def _print_summary(console: Console, stack: "LocalStack", seconds: float, *, as_json: bool) -> None:
    if as_json:
        ready = {"stack_json": str(stack.path), "seconds": round(seconds, 1), "parts": [asdict(p) for p in stack.parts]}
        sys.stdout.write(json.dumps(ready, ensure_ascii=False) + "\n")
        sys.stdout.flush()
        return
    console.print(Text("The delegation service on this machine", "bold"))
    console.print(parts_table(stack.parts, console.width))
    console.print(
        f"Ready after {seconds:.1f} s. Addresses and credentials are in {stack.path}.\n"
        "In another terminal, `delegation local tables` writes tables to purge. Press Ctrl-C here to stop.",
        soft_wrap=True,
    )


def parts_table(parts: Sequence["Part"], width: int) -> Table:
    """Return a table of the parts with their addresses, which are copied and so not broken; notes go where room is."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    wide = width >= _WIDE
    table.add_column(no_wrap=True, min_width=max(len(part.name) for part in parts))
    table.add_column(no_wrap=wide, overflow="fold")
    if wide:
        table.add_column(style="dim", overflow="fold")
    for part in parts:
        table.add_row(part.name, part.where, *([part.note] if wide else []))
        if not wide:
            table.add_row("", Text(part.note, "dim"))
    return table
