"""What a call comes to, for properties of values that are accepted or refused."""

from collections.abc import Callable
from typing import TypeVar

V = TypeVar("V")
E = TypeVar("E", bound=Exception)


def outcome(call: Callable[[], V], refusal: type[E]) -> V | E:
    """Return what the call returns, or the error of this class that it raises; any other is raised."""
    try:
        return call()
    except refusal as error:
        return error
