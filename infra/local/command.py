"""`delegation local …`: the system on this machine."""

import json
import logging
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import SecretStr
from rich.console import Console
from rich.table import Table

from delegation.cli.errors import CommandError
from delegation.cli.options import JsonOption
from delegation.cli.output import open_output
from delegation.cli.submit import parse_properties
from infra.local.errors import LocalStackError

if TYPE_CHECKING:
    from infra.local.supervisor import LocalStack

app = typer.Typer(help="Run the whole system on this machine.", no_args_is_help=True)
_CHECK_SECONDS = 1.0


class LocalStackFailed(CommandError):
    """The stack did not start, or a part of it ended."""

    code = "LOCAL_STACK_FAILED"


@app.callback()
def local() -> None:
    """Run the whole system on this machine."""


@app.command()
def up(
    ctx: typer.Context,
    *,
    polaris_url: Annotated[
        str | None,
        typer.Option(show_default=False, help="A real Polaris (…/api/catalog) instead of the stand-in."),
    ] = None,
    polaris_client_id: Annotated[
        str | None, typer.Option(show_default=False, help="A principal there that owns the tables and may purge.")
    ] = None,
    polaris_client_secret: Annotated[
        str | None, typer.Option(show_default=False, envvar="DELEGATION_POLARIS_CLIENT_SECRET", help="Its secret.")
    ] = None,
    warehouse: Annotated[str, typer.Option(help="The catalog's name, as in Polaris.")] = "lake",
    s3_endpoint: Annotated[
        str | None, typer.Option(show_default=False, help="S3 instead of the stack's own; keys from the AWS variables.")
    ] = None,
    dynamodb_endpoint: Annotated[
        str | None,
        typer.Option(show_default=False, help="DynamoDB instead of the stack's own; keys from the AWS variables."),
    ] = None,
    port: Annotated[int, typer.Option(help="Of the HTTPS front; 0 for a free one.", min=0, max=65535)] = 0,
    state_dir: Annotated[Path, typer.Option(help="Where stack.json, certificates and logs go.")] = Path(".local"),
    inline_max_files: Annotated[
        int | None, typer.Option(show_default=False, help="Tables with more files are purged by Spark.", min=0)
    ] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option(
            "--property", metavar="NAME=VALUE", help="A property of the service, instead of its value in cdk.json."
        ),
    ] = None,
    sweep_seconds: Annotated[float, typer.Option(help="How often the sweeper runs.", min=1)] = 60,
    as_json: JsonOption = False,
) -> None:
    """Start everything, write stack.json when it is ready, and stay until Ctrl-C or SIGTERM."""
    # Imported here: moto and pyspark take seconds, which no other command should wait for.
    from infra.local.options import StackOptions  # noqa: PLC0415
    from infra.local.supervisor import LocalStack  # noqa: PLC0415

    open_output(ctx, as_json=as_json)
    overrides = parse_properties(properties or ())
    # SIGTERM ends the stack the way Ctrl-C does, also while it starts.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        options = StackOptions(
            state_dir=state_dir,
            port=port,
            polaris_url=polaris_url,
            polaris_client_id=polaris_client_id,
            polaris_client_secret=SecretStr(polaris_client_secret) if polaris_client_secret else None,
            warehouse=warehouse,
            s3_endpoint=s3_endpoint,
            dynamodb_endpoint=dynamodb_endpoint,
            inline_max_files=inline_max_files,
            sweep_seconds=sweep_seconds,
            properties=overrides,
        )
        _run(LocalStack(options), as_json=as_json)
    except KeyboardInterrupt:
        Console(stderr=True).print("Stopped.")
    except LocalStackError as exc:
        next_step = f"The logs in {state_dir / 'logs'} may tell more; then start it again."
        raise LocalStackFailed(str(exc), next_step) from exc


def _run(stack: "LocalStack", *, as_json: bool) -> None:
    """Start the stack and watch it until a signal interrupts; it is stopped in any case."""
    console = Console(stderr=True, highlight=False)
    started = time.monotonic()
    try:
        with console.status("Starting the delegation service on this machine…"):
            stack.start()
            logging.basicConfig(
                filename=stack.logs / "stack.log", format="%(asctime)s %(levelname)s %(name)s %(message)s"
            )
        _summarise(console, stack, time.monotonic() - started, as_json=as_json)
        while True:
            time.sleep(_CHECK_SECONDS)
            stack.check()
    finally:
        # A second Ctrl-C must not leave half of it running.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        stack.stop()


def _summarise(console: Console, stack: "LocalStack", seconds: float, *, as_json: bool) -> None:
    if as_json:
        ready = {"stack_json": str(stack.path), "seconds": round(seconds, 1), "parts": [asdict(p) for p in stack.parts]}
        sys.stdout.write(json.dumps(ready, ensure_ascii=False) + "\n")
        sys.stdout.flush()
        return
    table = Table(title="The delegation service on this machine", title_justify="left", box=None, header_style="bold")
    table.add_column("part", no_wrap=True)
    table.add_column("where", overflow="fold")
    table.add_column("", style="dim", overflow="fold")
    for part in stack.parts:
        table.add_row(part.name, part.where, part.note)
    console.print(table)
    console.print(f"Ready after {seconds:.1f} s. {stack.path} has all addresses and credentials. Ctrl-C ends it.")
