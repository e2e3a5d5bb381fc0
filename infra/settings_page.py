"""docs/settings.md, and the defaults in service.json: `make regenerate` writes both."""

import json
from enum import Enum
from pathlib import Path
from typing import Any, Final

from delegation.cli.deployment import config as service
from delegation.wiring.types import TYPES
from infra.environment.context import ROOT
from infra.settings import Settings

DESCRIBED: Final = Path(service.__file__).parent / "service.json"
PAGE: Final = ROOT / "docs" / "settings.md"
_INTRODUCTION: Final = """# Settings

    delegation config show                            # each setting with its origin
    cdk deploy -c delegation:file=stages/test.json    # settings of one stage

A stage's file is a JSON object with the same names. It overrides `cdk.json`, and `-c NAME=VALUE` overrides both. `cdk
synth` checks all settings.
"""
_TITLES: Final = {
    "deployment": "Deployment (context of cdk.json)",
    "properties": "Properties of the service (`delegation:properties`)",
}
_VARIABLES: Final = """
## Variables

The deployment sets the variables of its processes. `delegation config show` lists them;
[workers](workers.md#variables) has those of a worker.
"""


def default_text(value: Any) -> str | None:
    """Return a default as it would be given in cdk.json, None if it is absent or empty."""
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, tuple):
        return ",".join(str(each) for each in value) or None
    return None if value is None else service.as_text(value)


def with_defaults(document: dict[str, Any]) -> dict[str, Any]:
    """Return service.json with the settings' model's defaults and the task types' options; a required one is marked."""
    own = dict(document["deployment"])
    for name, field in Settings.model_fields.items():
        key = name.replace("_", "-")
        default = service.REQUIRED if field.is_required() else default_text(field.get_default())
        own[key] = {"default": default, "meaning": None} | own.get(key, {}) | {"default": default}
    return {**document, "deployment": own, "properties": {**document["properties"], **_of_options()}}


def _of_options() -> dict[str, dict[str, str]]:
    """Return the properties of the options of all task types."""
    settings = [setting for form in TYPES.forms for setting in form.options.settings()]
    return {setting.name: {"default": setting.default, "meaning": setting.meaning} for setting in settings}


def page(document: dict[str, Any]) -> str:
    """Return the page of a service.json."""
    parts = [_INTRODUCTION]
    for group, title in _TITLES.items():
        parts.append(f"\n## {title}\n\n| setting | default | meaning |\n|---|---|---|")
        for name, each in document[group].items():
            full = f"{service.PREFIX}{name}" if group == "deployment" else name
            default = each["default"]
            shown = "" if default is None else default if default == service.REQUIRED else f"`{default}`"
            parts.append(f"| `{full}` | {shown} | {each['meaning']} |")
    return "\n".join([parts[0].rstrip("\n"), *parts[1:]]) + "\n" + _VARIABLES


def files() -> dict[Path, str]:
    document = with_defaults(json.loads(DESCRIBED.read_text(encoding="utf-8")))
    return {DESCRIBED: json.dumps(document, indent=1, ensure_ascii=False) + "\n", PAGE: page(document)}
