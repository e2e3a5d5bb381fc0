"""What the extras of the package bring: a module that lacks is reported with the extra to install."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from delegation.client.errors import ExtraMissing

SERVICE: Final = "service"


@contextmanager
def needed_by(what: str, extra: str = SERVICE) -> Iterator[None]:
    """Import here what only `extra` brings; raises ExtraMissing, which names it, for a module that is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "delegation":
            raise
        raise ExtraMissing(what, extra, error.name) from error
