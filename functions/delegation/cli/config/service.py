"""The settings of a deployment, of its properties and of its processes, as service.json describes them."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from delegation.configuration.problems import FieldProblem, SettingsInvalid
from polaris_common.errors import counted

PREFIX: Final = "delegation:"
PROPERTIES: Final = "delegation:properties"
DEFAULT: Final = "default"
REQUIRED: Final = "required"
"""What service.json has instead of the default of a setting that has none."""
_PLACE: Final = re.compile(r"TYPE|NAME")


@dataclass(frozen=True, slots=True)
class ServiceSetting:
    """A setting: its name, its default as text (None without one), one sentence, and an older name that is taken."""

    name: str
    default: str | None
    meaning: str
    former: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The name, and the older one if there is one."""
        return (self.name,) if self.former is None else (self.name, self.former)


@dataclass(frozen=True, slots=True)
class Shown:
    """A setting with its value and where that comes from; `value` is None if nothing sets it."""

    setting: ServiceSetting
    name: str
    value: str | None
    source: str | None


@cache
def described() -> Mapping[str, tuple[ServiceSetting, ...]]:
    """Return the settings by group: `deployment`, `properties`, `variables`."""
    text = files("delegation.cli.config").joinpath("service.json").read_text(encoding="utf-8")
    groups: dict[str, dict[str, dict[str, str | None]]] = json.loads(text)
    return {
        group: tuple(
            ServiceSetting(f"{prefix}{name}", each.get("default"), each["meaning"], former and f"{prefix}{former}")
            for name, each in settings.items()
            for former in [each.get("former")]
            if each["meaning"] is not None
        )
        for group, settings in groups.items()
        for prefix in [PREFIX if group == "deployment" else ""]
    }


def context_of(path: Path) -> dict[str, Any]:
    """Return the context of a cdk.json, or the settings of a stage file; raises SettingsInvalid."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        problem = FieldProblem(str(path), f"cannot be read: {error.strerror}")
        raise SettingsInvalid(str(path), [problem], "Name a file that exists.") from None
    except ValueError:
        problem = FieldProblem(str(path), "is not JSON")
        raise SettingsInvalid(str(path), [problem], "Correct the file.") from None
    found = document.get("context", document) if isinstance(document, dict) else None
    if not isinstance(found, dict):
        raise SettingsInvalid(str(path), [FieldProblem(str(path), "is not an object")], "Correct the file.")
    return {name: value for name, value in found.items() if name.startswith(PREFIX)}


def shown_deployment(layers: Mapping[str, Mapping[str, Any]]) -> list[Shown]:
    """Return each setting of the deployment with its value; later `layers`, by the name of their file, precede."""
    found: list[Shown] = []
    for setting in described()["deployment"]:
        given = [
            (file, context[name])
            for file, context in layers.items()
            for name in setting.names
            if context.get(name) not in (None, "")
        ]
        source, value = given[-1] if given else (None, None)
        if setting.name == PROPERTIES and value is not None:
            found.append(
                Shown(setting, setting.name, f"{counted(len(value), 'property', 'properties')}, below", source)
            )
        elif value is not None:
            found.append(Shown(setting, setting.name, as_text(value), source))
        else:
            found.append(_unset(setting))
    return found


def shown_properties(layers: Mapping[str, Mapping[str, Any]]) -> list[Shown]:
    """Return each property of the service with its value; of a name for types or names, one for each that is set."""
    sources = [(name, context[PROPERTIES]) for name, context in layers.items() if context.get(PROPERTIES)]
    source, given = sources[-1] if sources else (None, {})
    found: list[Shown] = []
    for setting in described()["properties"]:
        names = [name for name in given if any(pattern_of(each).fullmatch(name) for each in setting.names)]
        found += [Shown(setting, name, as_text(given[name]), source) for name in names]
        if not names:
            found.append(_unset(setting))
    return found


def shown_variables(environ: Mapping[str, str]) -> list[Shown]:
    """Return each variable of the service's processes that no setting is, with its value in this environment."""
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
