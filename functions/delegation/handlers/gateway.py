"""The gateway in front of an unmodified catalog (Amazon API Gateway, Lambda proxy integration)."""

import gc
from functools import cache
from typing import Any, Final

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext

from delegation.wiring.gateway import EventHandler, gateway

logger: Final = Logger()


@cache
def _gateway() -> EventHandler:
    made = gateway()
    # What is loaded by now (above all botocore's descriptions of services) lives as long as the process. A collection
    # that searches it takes 60 ms, in every fortieth commit to a table of a thousand snapshots.
    gc.freeze()
    return made


# log_event overrides POWERTOOLS_LOGGER_LOG_EVENT: requests contain tokens, and answers credentials.
@logger.inject_lambda_context(log_event=False, clear_state=True, correlation_id_path="requestContext.requestId")
def handler(event: dict[str, Any], _context: LambdaContext) -> dict[str, Any]:
    return _gateway()(event)
