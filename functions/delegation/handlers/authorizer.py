"""The authorizer (Amazon API Gateway, Lambda authorizer of type REQUEST)."""

from functools import cache
from typing import Any, Final

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext

from delegation.edge.errors import Unauthorized
from delegation.wiring import authorizer as wiring

logger: Final = Logger()
authorizer = cache(wiring.authorizer)


# log_event overrides POWERTOOLS_LOGGER_LOG_EVENT: the event contains the token.
@logger.inject_lambda_context(log_event=False, clear_state=True)
def handler(event: dict[str, Any], _context: LambdaContext) -> dict[str, Any]:
    """Return the policy for one request; raises Unauthorized, which API Gateway answers as 401."""
    try:
        verdict = authorizer().decide(event)
    except Unauthorized as refused:
        logger.info("unauthorized", extra={"action": "authorize", "reason": refused.reason})
        raise
    if verdict.refusal is not None:
        extra = {"action": "authorize", "error_code": verdict.refusal.code, "reason": str(verdict.refusal)}
        logger.info("forbidden", extra=extra)
    return verdict.policy
