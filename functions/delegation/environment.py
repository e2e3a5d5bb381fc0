"""Settings from environment variables, from an object with more of them, and from files of properties."""

import json
import os
from collections.abc import Callable, Mapping
from functools import cache
from typing import Final, Self

from pydantic import BaseModel, ConfigDict

SETTINGS_OBJECT: Final = "DELEGATION_SETTINGS_OBJECT"
"""The variable with the URL of a JSON object of further variables, for which the environment has no room."""
_fetchers: Final[dict[str, Callable[[str], str]]] = {}


class StoredSettingsError(ValueError):
    """The object that DELEGATION_SETTINGS_OBJECT names cannot be used, so the process does not start."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"{SETTINGS_OBJECT}: {url} {reason}")


def fetch_with(scheme: str, fetch: Callable[[str], str]) -> None:
    """Register `fetch` for URLs of a scheme, such as `s3`; it returns their text or raises StoredSettingsError."""
    _fetchers[scheme] = fetch


@cache
def stored_variables(url: str) -> Mapping[str, str]:
    """Return the variables in an object, fetched once in a process. Raises StoredSettingsError."""
    scheme = url.partition("://")[0]
    if scheme not in _fetchers:
        raise StoredSettingsError(url, f"has none of the schemes {', '.join(sorted(_fetchers))}")
    try:
        variables = json.loads(_fetchers[scheme](url))
    except json.JSONDecodeError:
        raise StoredSettingsError(url, "is not JSON") from None
    if not isinstance(variables, dict) or not all(isinstance(value, str) for value in variables.values()):
        raise StoredSettingsError(url, "must be a JSON object whose values are strings")
    return variables


class EnvironmentSettings(BaseModel):
    """Base of frozen settings whose fields have a variable's name as alias; an empty variable counts as not set.

    An absent variable may be in the object that SETTINGS_OBJECT names. pydantic-settings is not used because its import
    lengthens a Lambda cold start.
    """

    # Validators are built at the first read: a function reads only some of the settings that its modules define.
    model_config = ConfigDict(
        frozen=True, populate_by_name=True, extra="ignore", hide_input_in_errors=True, defer_build=True
    )

    @classmethod
    def read(cls) -> Self:
        """Read the environment. Raises StoredSettingsError for an unusable object of variables, and pydantic's
        ValidationError, which names the variable and not its value."""
        aliases = (field.alias for field in cls.model_fields.values() if field.alias)
        url = os.environ.get(SETTINGS_OBJECT)
        given: Mapping[str, str] = {**stored_variables(url), **os.environ} if url else os.environ
        return cls.model_validate({alias: value for alias in aliases if (value := given.get(alias))})


def parse_properties(text: str) -> dict[str, str]:
    """Parse lines `name=value` or `name: value` (`#`, `!`: comment). ValueError names the line."""
    properties: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if not stripped or stripped[0] in "#!":
            continue
        at = min((stripped.index(mark) for mark in "=:" if mark in stripped), default=0)
        if at == 0:
            raise ValueError(f"line {number} is not name=value")
        properties[stripped[:at].strip()] = stripped[at + 1 :].strip()
    return properties
