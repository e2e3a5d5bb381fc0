"""Settings from environment variables: a base for frozen models whose fields have a variable's name as alias."""

import os
from typing import Self

from pydantic import BaseModel, ConfigDict


class EnvironmentSettings(BaseModel):
    """Frozen settings that a process reads once; a variable that is empty is one that was not given.

    Written here, not taken from pydantic-settings: importing that takes a function's cold start longer than reading
    every setting it has.
    """

    # Built when first read: a function reads two or three of the settings that its modules define.
    model_config = ConfigDict(
        frozen=True, populate_by_name=True, extra="ignore", hide_input_in_errors=True, defer_build=True
    )

    @classmethod
    def read(cls) -> Self:
        """Read the environment; raises pydantic's ValidationError, which names the variable and shows no value."""
        aliases = (field.alias for field in cls.model_fields.values() if field.alias)
        return cls.model_validate({alias: value for alias in aliases if (value := os.environ.get(alias))})
