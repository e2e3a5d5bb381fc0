"""`delegation local …`: starts the whole system on this machine; only in a checkout of the source code."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Final

import typer

import delegation
from delegation.cli.errors import CommandError

CHECKOUT: Final = Path(str(delegation.__file__)).resolve().parents[2]


if not (CHECKOUT / "infra" / "local" / "command.py").is_file():
    raise CommandError(
        "`delegation local` is part of the source code and not of the installed package",
        "Check out the source of this release, run `make venv` there and `.venv/bin/delegation local up`.",
        code="NO_CHECKOUT",
    )
sys.path.append(str(CHECKOUT))
app: typer.Typer = import_module("infra.local.command").app
