"""`delegation config`: the command's own settings, and those of a deployment as service.json describes them."""

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError
from rich.text import Text

from delegation.cli.calls import Call, command, defaulted, group, optional
from delegation.cli.connection import Connection, settings_of
from delegation.cli.screens import LabelledLines, Rows
from delegation.client.settings import ClientSettings
from delegation.configuration import SETTINGS, CallerSettings, FieldProblem, Setting, SettingsInvalid, problems_of
from polaris_common.errors import counted

PREFIX: Final = "delegation:"
PROPERTIES: Final = "delegation:properties"
DEFAULT: Final = "default"
REQUIRED: Final = "required"
"""Stands in service.json for a default that does not exist."""
_PLACE: Final = re.compile(r"TYPE|NAME")


@dataclass(frozen=True, slots=True)
class ServiceSetting:
    """A setting: its name, its default as text (None without one), and one sentence."""

    name: str
    default: str | None
    meaning: str


@dataclass(frozen=True, slots=True)
class Shown:
    """A setting with its value and where that comes from; `value` is None if nothing sets it."""

    setting: ServiceSetting
    name: str
    value: str | None
    source: str | None


@cache
def described() -> Mapping[str, tuple[ServiceSetting, ...]]:
    text = files("delegation.cli.deployment").joinpath("service.json").read_text(encoding="utf-8")
    groups: dict[str, dict[str, dict[str, str | None]]] = json.loads(text)
    return {
        group: tuple(
            ServiceSetting(f"{prefix}{name}", each.get("default"), each["meaning"])
            for name, each in settings.items()
            if each["meaning"] is not None
        )
        for group, settings in groups.items()
        for prefix in [PREFIX if group == "deployment" else ""]
    }


def context_of(path: Path) -> dict[str, Any]:
    """Return the context of a cdk.json, or the settings of a stage file. Raises SettingsInvalid."""

    def unusable(reason: str, next_step: str = "Correct the file.") -> SettingsInvalid:
        return SettingsInvalid(str(path), [FieldProblem(str(path), reason)], next_step)

    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise unusable(f"cannot be read: {error.strerror}", "Name a file that exists.") from None
    except ValueError:
        raise unusable("is not JSON") from None
    context = document.get("context", document) if isinstance(document, dict) else None
    if not isinstance(context, dict):
        raise unusable("is not a JSON object")
    return {name: value for name, value in context.items() if name.startswith(PREFIX)}


def shown_deployment(layers: Mapping[str, Mapping[str, Any]]) -> list[Shown]:
    """Return each setting of the deployment with its value; later `layers`, by file name, take precedence."""
    rows: list[Shown] = []
    for setting in described()["deployment"]:
        given = [
            (file, context[setting.name])
            for file, context in layers.items()
            if context.get(setting.name) not in (None, "")
        ]
        source, value = given[-1] if given else (None, None)
        if setting.name == PROPERTIES and value is not None:
            rows.append(Shown(setting, setting.name, f"{counted(len(value), 'property', 'properties')}, below", source))
        elif value is not None:
            rows.append(Shown(setting, setting.name, as_text(value), source))
        else:
            rows.append(_unset(setting))
    return rows


def shown_properties(layers: Mapping[str, Mapping[str, Any]]) -> list[Shown]:
    """Return each property of the service with its value; a property with TYPE or NAME once for each that is set."""
    sources = [(name, context[PROPERTIES]) for name, context in layers.items() if context.get(PROPERTIES)]
    source, given = sources[-1] if sources else (None, {})
    rows: list[Shown] = []
    for setting in described()["properties"]:
        names = [name for name in given if pattern_of(setting.name).fullmatch(name)]
        rows += [Shown(setting, name, as_text(given[name]), source) for name in names]
        if not names:
            rows.append(_unset(setting))
    return rows


def shown_variables(environ: Mapping[str, str]) -> list[Shown]:
    """Return each variable of the service's processes that is not a setting, with its value in this environment."""
    return [
        Shown(each, each.name, environ.get(each.name) or None, "environment" if environ.get(each.name) else None)
        for each in described()["variables"]
    ]


def _unset(setting: ServiceSetting) -> Shown:
    has_default = setting.default not in (None, REQUIRED)
    return Shown(setting, setting.name, setting.default if has_default else None, DEFAULT if has_default else None)


def pattern_of(name: str) -> re.Pattern[str]:
    """Return the pattern of a property's name, in which TYPE and NAME stand for any."""
    return re.compile(_PLACE.sub(r"[\\w.-]+", re.escape(name)))


def as_text(value: Any) -> str:
    """Return a setting's value as it can be given on the command line."""
    return value if isinstance(value, str) else json.dumps(value)


app = group("config")
_HIDDEN: Final = "(set)"
_WIDE: Final = 110
_TITLES: Final = {
    "deployment": "The deployment (context of cdk.json; page Settings):",
    "properties": "The service's properties (`delegation:properties`):",
    "variables": "Variables of the service's processes. The deployment sets them; your own workers need them:",
}


@command(app, "show", "")
def show_command(
    call: Call,
    *,
    cdk: Path = defaulted("--cdk", "The cdk.json of the deployment, if it exists.", Path("cdk.json"), metavar="FILE"),
    stage_file: Path | None = optional("--stage-file", "The stage's settings file, as for cdk.", "FILE"),
) -> None:
    """Show every setting with its value, origin and default. Secrets are not shown."""
    settings = settings_of(call.ctx)
    paths = [*([cdk] if cdk.is_file() else []), *([stage_file] if stage_file else [])]
    layers = {str(path): context_of(path) for path in paths}
    groups = {
        "deployment": shown_deployment(layers),
        "properties": shown_properties(layers),
        "variables": shown_variables(os.environ),
    }
    shown = {setting.name: _document(setting, settings) for setting in SETTINGS if setting.name in settings.values}
    described = {group: [_described(each) for each in rows] for group, rows in groups.items()}
    call.output.result({**_place(settings), "settings": shown, **described}, _place_text(settings))
    if call.output.width < _WIDE:
        call.output.show(lambda: LabelledLines(_own_rows(settings)))
        call.output.say("A setting's variable is DELEGATION_ with the setting's name in upper case.", dim=True)
    else:
        call.output.show(lambda: _own_table(settings))
    for title, rows in groups.items():
        call.output.say(f"\n{_TITLES[title]}")
        call.output.show(partial(_table, rows))


def _own_table(settings: CallerSettings) -> Rows:
    table = Rows("setting", "value", "from")
    for setting in SETTINGS:
        value = settings.values.get(setting.name)
        if value is None:
            table.add(Text(setting.name, style="dim"), Text("not set", style="dim"), Text(setting.variable, "dim"))
        else:
            table.add(setting.name, _HIDDEN if setting.secret else Text(value.text), Text(value.source))
    return table


def _own_rows(settings: CallerSettings) -> Iterator[tuple[str, Text]]:
    for setting in SETTINGS:
        value = settings.values.get(setting.name)
        if value is None:
            yield setting.name, Text("not set", "dim")
        else:
            yield setting.name, Text.assemble(_HIDDEN if setting.secret else value.text, (f"  ({value.source})", "dim"))


def _table(rows: list[Shown]) -> Rows:
    table = Rows("setting", "value", "from", "default", "meaning")
    for each in rows:
        value = Text(each.value) if each.value is not None else Text("not set", style="dim")
        cells = (each.name, each.source or "", each.setting.default or "", each.setting.meaning)
        table.add(cells[0], value, *cells[1:])
    return table


def _described(shown: Shown) -> dict[str, Any]:
    setting = shown.setting
    described = {"default": setting.default, "meaning": setting.meaning}
    return {"name": shown.name, "value": shown.value, "from": shown.source, **described}


@command(app, "check", "")
def check_command(call: Call) -> None:
    """List missing and wrong settings.

    Fails if neither edge_url is set nor a stack.json exists.
    """
    settings = settings_of(call.ctx)
    problems = find_problems(settings)
    if problems:
        where = f"the settings of profile {settings.profile}" if settings.profile else "the settings"
        raise SettingsInvalid(
            where, problems, "Correct these settings. `delegation config show` shows where each value comes from."
        )
    connection = _connection_text(Connection(None, settings))
    text = f"{_place_text(settings)} {connection} All settings are valid. `delegation doctor` tests the connection."
    call.output.result({**_place(settings), "problems": [], "connection": connection}, text)


def _connection_text(connection: Connection) -> str:
    """Return which service the commands call. Raises CommandError if none is set and there is no stack.json."""
    if not connection.uses_stack():
        return f"The service is at {connection.settings.get('edge_url')}."
    if connection.named_polaris() is not None:
        return "edge_url (DELEGATION_EDGE_URL) is not set, so only Polaris can be used."
    return f"The service is the local stack at {connection.stack().edge_url}."


def find_problems(settings: CallerSettings) -> list[FieldProblem]:
    """Return what is wrong with the settings; without `edge_url` those of the connection may be missing."""
    problems: list[FieldProblem] = []
    if settings.get("edge_url") is not None:
        try:
            ClientSettings.model_validate(settings.variables())
        except ValidationError as error:
            problems += problems_of(error)
    problems += [
        FieldProblem(f"{setting.name} ({setting.variable})", f"the file {value.text} does not exist")
        for setting in SETTINGS
        if setting.is_path and (value := settings.values.get(setting.name)) and not Path(value.text).is_file()
    ]
    for name in ("polaris_credential", "polaris_service_credential", "polaris_admin_credential"):
        text = settings.get(name)
        if text is not None and not all(text.partition(":")):
            problems.append(FieldProblem(f"{name} (DELEGATION_{name.upper()})", "is not of the form id:secret"))
    problems += [
        FieldProblem(
            f"profiles.{profile}", f"has a secret, and others may read the file: chmod 600 {settings.file.path}"
        )
        for profile in settings.exposed_secrets()
    ]
    return problems


def _document(setting: Setting, settings: CallerSettings) -> dict[str, Any]:
    value = settings.values[setting.name]
    return {"value": None if setting.secret else value.text, "secret": setting.secret, "from": value.source}


def _place(settings: CallerSettings) -> dict[str, Any]:
    exists = settings.file.path.is_file()
    profiles = list(settings.file.profiles)
    return {"file": str(settings.file.path) if exists else None, "profile": settings.profile, "profiles": profiles}


def _place_text(settings: CallerSettings) -> str:
    if not settings.file.path.is_file():
        return f"There is no file {settings.file.path}; the settings come from the environment."
    return f"{settings.file.path}, profile {settings.profile or 'none'}."
