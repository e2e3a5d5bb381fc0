"""The API (Amazon API Gateway, Lambda proxy integration)."""

from functools import cache
from typing import Any, Final

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext

from delegation.edge.api.app import ApiHandler
from delegation.wiring import api as wiring

logger: Final = Logger()


@cache
def _api() -> ApiHandler:
    return wiring.api(logger)


# log_event overrides POWERTOOLS_LOGGER_LOG_EVENT: bodies contain credentials.
@logger.inject_lambda_context(log_event=False, clear_state=True)
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    return _api()(event, context)
