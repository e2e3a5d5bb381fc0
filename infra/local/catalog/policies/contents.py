"""What Polaris accepts as the content of a policy: a JSON document in a string, of the type's own schema.

Source: Apache Polaris 1.7.0, PolicyValidators, BaseMaintenancePolicyContent and its subclasses.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from infra.local.catalog.errors import RestError

VERSION: Final = "2025-02-03"
_COMMON: Final = frozenset({"version", "enable", "config"})
_ORPHANS: Final = "system.orphan-file-removal"
_MEMBERS: Final[Mapping[str, frozenset[str]]] = {
    "system.data-compaction": _COMMON,
    "system.metadata-compaction": _COMMON,
    "system.snapshot-expiry": _COMMON,
    _ORPHANS: _COMMON | {"max_orphan_file_age_in_days", "locations"},
}
TYPES: Final = frozenset(_MEMBERS)
"""The predefined types; each is inheritable."""


def check_content(type_: str, content: object) -> None:
    """Raise RestError 400 for a content that Polaris does not store."""
    if not isinstance(content, str) or not content:
        raise _invalid("Policy is empty")
    try:
        document = json.loads(content)
    except ValueError as error:
        raise _invalid(f"Unrecognized token: {error}") from None
    if not isinstance(document, dict):
        raise _invalid("Cannot construct an instance of the policy's content")
    for name in document.keys() - _MEMBERS[type_]:
        raise _invalid(f'Unrecognized field "{name}"')
    # Jackson reads these texts as a boolean.
    if not isinstance(document.get("enable"), bool) and document.get("enable") not in ("true", "false"):
        raise _invalid("Missing required creator property 'enable', or it is no boolean")
    if (document.get("version") or VERSION) != VERSION:
        raise _invalid(f"Invalid policy version: {document['version']}")
    _check_config(document.get("config"))
    if type_ == _ORPHANS:
        _check_orphans(document)


def _check_config(config: Any) -> None:
    if config is None:
        return
    if not isinstance(config, dict) or any(isinstance(value, dict | list) for value in config.values()):
        raise _invalid("Cannot deserialize value of type `java.lang.String` in config")


def _check_orphans(document: Mapping[str, Any]) -> None:
    age, locations = document.get("max_orphan_file_age_in_days") or 0, document.get("locations") or []
    if isinstance(age, bool) or not isinstance(age, int | float):
        raise _invalid("Cannot deserialize value of type `int` of max_orphan_file_age_in_days")
    if age < 0:
        raise _invalid(f"Invalid max_orphan_file_age_in_days: {age}. It must be greater than or equal to 0")
    if not isinstance(locations, list) or not all(isinstance(location, str) for location in locations):
        raise _invalid("Cannot deserialize value of type `java.util.ArrayList` of locations")


def _invalid(reason: str) -> RestError:
    return RestError(400, "InvalidPolicyException", reason)
