"""The settings of the call that is running."""

from typing import Final

import typer

from delegation.configuration.settings import CallerSettings

_KEY: Final = "delegation.settings"
PROFILE_KEY: Final = "delegation.profile"


def settings_of(ctx: typer.Context) -> CallerSettings:
    """Return the settings with the profile that the call names; they are read once in a call.

    Raises SettingsInvalid.
    """
    meta = ctx.meta  # shared by the contexts of one call
    if _KEY not in meta:
        meta[_KEY] = CallerSettings.load(meta.get(PROFILE_KEY))
    found: CallerSettings = meta[_KEY]
    return found
