"""`delegation ui`: a status page on this machine, from the service's API with the operator's identity."""

import tempfile
import webbrowser
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from delegation.cli.connection import Connection
from delegation.cli.errors import CommandError
from delegation.cli.options import JsonOption, StackOption
from delegation.cli.output import open_output, print_json
from delegation.cli.ui.pages import OperatorReads, answer
from delegation.cli.ui.server import StatusServer
from delegation.timestamps import utc_now


def ui_command(
    ctx: typer.Context,
    *,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65_535, show_default=False, help="The port. Default: any free one.")
    ] = 0,
    browser: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in the browser.")] = False,
    stack: StackOption = None,
    as_json: JsonOption = False,
) -> None:
    """Serve a status page on this machine until Ctrl-C: the tasks, one task's timeline, progress and receipt.

    It only reads, with your identity as an operator. A user of this machine who has
    the printed address can read it too, so keep the address to yourself.
    """
    open_output(ctx, as_json=as_json)
    # The page asks again by itself every few seconds: it shows a failure at once, and repeats nothing.
    connection = Connection.of(ctx, stack)
    client = connection.operator_client().without_repeats()
    try:
        server = StatusServer(lambda target: answer(client, target, utc_now, operator_reads(connection)), port)
    except OSError as error:
        raise CommandError(
            f"port {port} cannot be used: {error.strerror or type(error).__name__}",
            "Give another --port, or none for any free one.",
            code="PORT_TAKEN",
        ) from error
    with server:
        if as_json:
            print_json({"url": server.url})
        else:
            Console(highlight=False, markup=False).print(f"{server.url}\nCtrl-C ends it.", soft_wrap=True)
        with redirecting(server.url) as page:
            if browser:
                webbrowser.open(page)
            server.serve_forever()


def operator_reads(connection: Connection) -> OperatorReads:
    """Return what reads the stores with the operator's own credentials, each time it is asked."""

    def audit(catalog: str) -> Mapping[str, Any]:
        from delegation.cli.audit.commands import audit_of  # noqa: PLC0415 - nobody else waits for its imports
        from delegation.cli.audit.reading import KnownPlans  # noqa: PLC0415

        return audit_of(connection, catalog, KnownPlans(None)).document()

    def upkeep(name: str) -> Mapping[str, Any]:
        from delegation.cli.health.documents import upkeep_of  # noqa: PLC0415 - as above

        return upkeep_of(connection, name)

    return OperatorReads(audit, upkeep)


@contextmanager
def redirecting(url: str) -> Iterator[str]:
    """Give the address of a file that leads a browser to `url`, until the end of the block.

    A browser is started with an address among its arguments, which every user of the machine can list; only the owner
    can read the file.
    """
    with tempfile.TemporaryDirectory(prefix="delegation-ui-") as folder:  # of mode 0700
        file = Path(folder) / "open.html"
        file.write_text(f'<!doctype html><meta http-equiv="refresh" content="0; url={url}">\n', encoding="utf-8")
        yield file.as_uri()
