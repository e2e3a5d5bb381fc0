"""Settings from environment variables and from files of properties."""

import os
from typing import Self

from pydantic import BaseModel, ConfigDict


class EnvironmentSettings(BaseModel):
    """Base of frozen settings whose fields have a variable's name as alias; an empty variable counts as not set.

    pydantic-settings is not used because its import lengthens a Lambda cold start.
    """

    # Validators are built at the first read: a function reads only some of the settings that its modules define.
    model_config = ConfigDict(
        frozen=True, populate_by_name=True, extra="ignore", hide_input_in_errors=True, defer_build=True
    )

    @classmethod
    def read(cls) -> Self:
        """Read the environment; raises pydantic's ValidationError, which names the variable and not its value."""
        aliases = (field.alias for field in cls.model_fields.values() if field.alias)
        return cls.model_validate({alias: value for alias in aliases if (value := os.environ.get(alias))})


def parse_properties(text: str) -> dict[str, str]:
    """Parse lines `name=value` or `name: value` (`#`, `!`: comment); raises ValueError, which names the line."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if not stripped or stripped[0] in "#!":
            continue
        at = min((stripped.index(mark) for mark in "=:" if mark in stripped), default=0)
        if at == 0:
            raise ValueError(f"line {number} is not name=value")
        found[stripped[:at].strip()] = stripped[at + 1 :].strip()
    return found
