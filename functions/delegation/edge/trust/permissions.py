"""What an identity may do, and the methods that need none; shared by the authorizer and the API."""

from enum import StrEnum
from typing import Final


class Permission(StrEnum):
    READ = "read"
    SUBMIT = "submit"
    MANAGE = "manage"
    """Cancel and retry tasks, pause and resume; restore, purge and dismiss tombstones."""
    APPROVE = "approve"
    """Approve plans that others requested; only operators have it."""


ALL: Final = frozenset(Permission)
OF_POLARIS: Final = frozenset({Permission.READ, Permission.SUBMIT})
"""What Polaris' identity may do; a setting adds MANAGE. It requests the work whose plans are approved."""
OPEN_METHODS: Final = frozenset({"GET/v1/health", "GET/openapi.json", "GET/docs"})
"""Methods that need no token: whether the service is up, and the description of the API."""
