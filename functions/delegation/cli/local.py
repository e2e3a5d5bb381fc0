"""`delegation local …`: a command group of a checkout, which the checkout's pyproject.toml names."""

import sys
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Final

import typer

import delegation
from delegation.cli.errors import CommandError

CHECKOUT: Final = Path(str(delegation.__file__)).resolve().parents[2]


def _target() -> str:
    """Return the module and the attribute of the group. Raises CommandError (NO_CHECKOUT)."""
    project = CHECKOUT / "pyproject.toml"
    tools = tomllib.loads(project.read_text(encoding="utf-8")).get("tool", {}) if project.is_file() else {}
    target = tools.get("delegation", {}).get("commands", {}).get("local")
    if not isinstance(target, str):
        raise CommandError(
            "`delegation local` is part of the source code and not of the installed package",
            "Check out the source of this release, run `make venv` there and `.venv/bin/delegation local up`.",
            code="NO_CHECKOUT",
        )
    return target


module, _, attribute = _target().partition(":")
sys.path.append(str(CHECKOUT))
app: typer.Typer = getattr(import_module(module), attribute)
