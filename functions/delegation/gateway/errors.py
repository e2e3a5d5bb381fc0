"""Errors of the gateway."""

from typing import ClassVar

from delegation.errors import DelegationError


class GatewayError(DelegationError):
    """Base class of this package's errors."""

    code: ClassVar[str] = "GATEWAY_ERROR"


class CatalogUnavailable(GatewayError):
    """The catalog behind the gateway was not reached; nothing was done."""

    code: ClassVar[str] = "CATALOG_UNAVAILABLE"
    retryable: ClassVar[bool] = True


class CatalogOutcomeUnknown(GatewayError):
    """The catalog behind the gateway gave no answer to a request that it may have performed."""

    code: ClassVar[str] = "CATALOG_OUTCOME_UNKNOWN"
    retryable: ClassVar[bool] = True
