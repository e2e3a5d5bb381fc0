"""Rotates the service's client secret in Polaris (AWS Secrets Manager, Lambda rotation function)."""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext

from delegation.polaris.rotation import RotationEvent
from delegation.wiring import rotation as wiring
from polaris_common.errors import DelegationError

logger: Final = Logger()
secret_rotation = cache(wiring.secret_rotation)


def handler(event: Mapping[str, Any], _context: LambdaContext) -> None:
    """Perform one step; an error is logged by its code and raised, so that Secrets Manager repeats the step."""
    fields = {"action": "rotate secret", "step": event.get("Step"), "version": event.get("ClientRequestToken")}
    try:
        secret_rotation().perform(RotationEvent.of(event))
    except DelegationError as error:
        logger.error("not rotated", extra={**fields, "error_code": error.code, "reason": str(error)})  # noqa: TRY400
        raise
    logger.info("rotated", extra=fields)
