"""What tests ask of an error that has a code of its own and no class."""

from collections.abc import Callable

from delegation.errors import DelegationError


def coded(code: str) -> Callable[[DelegationError], bool]:
    """Return what `pytest.raises(…, check=…)` asks: whether the error has this code."""
    return lambda error: error.code == code
