"""`delegation config …`: the settings in force, where each comes from, and whether all of them can be used."""

from pathlib import Path
from typing import Any, Final

import typer
from pydantic import ValidationError
from rich.console import Console
from rich.table import Table
from rich.text import Text

from delegation.cli.config.current import settings_of
from delegation.cli.config.settings import SETTINGS, CommandSettings, Setting
from delegation.cli.config.validation import problems_of
from delegation.cli.errors import FieldProblem, SettingsInvalid
from delegation.cli.misuse import WordGroup
from delegation.cli.options import JsonOption
from delegation.cli.output import open_output, print_json
from delegation.client.settings import ClientSettings

app = typer.Typer(cls=WordGroup, no_args_is_help=True, help="Show and check the command's own settings.")
_HIDDEN: Final = "(set)"


@app.command("show")
def show_command(ctx: typer.Context, *, as_json: JsonOption = False) -> None:
    """Show each setting with its value and where it comes from; secrets are not shown."""
    open_output(ctx, as_json=as_json)
    settings = settings_of(ctx)
    if as_json:
        shown = {setting.name: _document(setting, settings) for setting in SETTINGS if setting.name in settings.values}
        print_json({**_place(settings), "settings": shown})
        return
    console = Console(highlight=False)
    console.print(_place_text(settings), soft_wrap=True)
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("setting", no_wrap=True)
    table.add_column("value", overflow="fold")
    table.add_column("from", overflow="fold")
    for setting in SETTINGS:
        found = settings.values.get(setting.name)
        if found is None:
            table.add_row(Text(setting.name, style="dim"), Text("not set", style="dim"), Text(setting.variable, "dim"))
        else:
            table.add_row(setting.name, _HIDDEN if setting.secret else Text(found.text), Text(found.source))
    console.print(table)


@app.command("check")
def check_command(ctx: typer.Context, *, as_json: JsonOption = False) -> None:
    """Read the configuration file and every setting, and name each one that is missing or wrong."""
    open_output(ctx, as_json=as_json)
    settings = settings_of(ctx)
    problems = find_problems(settings)
    if problems:
        where = f"the settings of profile {settings.profile}" if settings.profile else "the settings"
        raise SettingsInvalid(where, problems, "Correct each; `delegation config show` has where its value comes from.")
    if as_json:
        print_json({**_place(settings), "problems": []})
    else:
        Console(highlight=False).print(f"{_place_text(settings)} All settings can be used.", soft_wrap=True)


def find_problems(settings: CommandSettings) -> list[FieldProblem]:
    """Return what is wrong with the settings; without `edge_url` those of the connection may be missing."""
    found: list[FieldProblem] = []
    if settings.get("edge_url") is not None:
        try:
            ClientSettings.model_validate(settings.variables())
        except ValidationError as error:
            found += problems_of(error)
    found += [
        FieldProblem(f"{setting.name} ({setting.variable})", f"the file {value.text} does not exist")
        for setting in SETTINGS
        if setting.is_path and (value := settings.values.get(setting.name)) and not Path(value.text).is_file()
    ]
    for name in ("polaris_credential", "polaris_service_credential", "polaris_admin_credential"):
        text = settings.get(name)
        if text is not None and not all(text.partition(":")):
            found.append(FieldProblem(f"{name} (DELEGATION_{name.upper()})", "is not of the form id:secret"))
    found += [
        FieldProblem(
            f"profiles.{profile}", f"has a secret, and others may read the file: chmod 600 {settings.file.path}"
        )
        for profile in settings.exposed_secrets()
    ]
    return found


def _document(setting: Setting, settings: CommandSettings) -> dict[str, Any]:
    found = settings.values[setting.name]
    return {"value": None if setting.secret else found.text, "secret": setting.secret, "from": found.source}


def _place(settings: CommandSettings) -> dict[str, Any]:
    exists = settings.file.path.is_file()
    profiles = list(settings.file.profiles)
    return {"file": str(settings.file.path) if exists else None, "profile": settings.profile, "profiles": profiles}


def _place_text(settings: CommandSettings) -> str:
    if not settings.file.path.is_file():
        return f"There is no file {settings.file.path}; the settings are those of the environment."
    return f"{settings.file.path}, profile {settings.profile or 'none'}."
