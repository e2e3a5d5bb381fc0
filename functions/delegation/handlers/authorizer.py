"""Admits the one Polaris identity with a token of the right scope (API Gateway Lambda authorizer, REQUEST)."""

from functools import cache
from typing import Any, Final

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext

from delegation.edge.errors import Unauthorized
from delegation.wiring import authorizer as wiring

logger: Final = Logger()
authorizer = cache(wiring.authorizer)


# log_event is False whatever the environment says: the event carries the token.
@logger.inject_lambda_context(log_event=False, clear_state=True)
def handler(event: dict[str, Any], _context: LambdaContext) -> dict[str, Any]:
    """The policy for one request; raises Unauthorized for API Gateway's 401."""
    try:
        verdict = authorizer().decide(event)
    except Unauthorized as refused:
        logger.info("unauthorized", extra={"action": "authorize", "reason": refused.reason})
        raise
    if verdict.refusal is not None:
        extra = {"action": "authorize", "error_code": verdict.refusal.code, "reason": str(verdict.refusal)}
        logger.info("forbidden", extra=extra)
    return verdict.policy
