"""The authorizer (Amazon API Gateway, Lambda authorizer of type REQUEST)."""

from datetime import datetime, timedelta
from functools import cache
from typing import Any, Final

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext

from delegation.edge.errors import Unauthorized
from delegation.metrics import CERTIFICATE_DAYS_LEFT, MetricLines
from delegation.wiring import authorizer as wiring

logger: Final = Logger()
authorizer = cache(wiring.authorizer)
_MEASURED_EVERY: Final = timedelta(hours=1)
_measured: dict[str, datetime] = {}
"""When the metric of each certificate's subject was last printed; the settings bound their number."""


# log_event overrides POWERTOOLS_LOGGER_LOG_EVENT: the event contains the token.
@logger.inject_lambda_context(log_event=False, clear_state=True)
def handler(event: dict[str, Any], _context: LambdaContext) -> dict[str, Any]:
    """Return the policy for one request. Raises Unauthorized, which API Gateway answers as 401."""
    try:
        verdict = authorizer().decide(event)
    except Unauthorized as refused:
        logger.info("unauthorized", extra={"action": "authorize", "reason": refused.reason})
        raise
    if verdict.refusal is not None:
        extra = {"action": "authorize", "error_code": verdict.refusal.code, "reason": str(verdict.refusal)}
        logger.info("forbidden", extra=extra)
    elif verdict.expires is not None:
        _measure(verdict.policy["context"]["certificate_subject"], verdict.expires, wiring.now())
    return verdict.policy


def _measure(subject: str, expires: datetime, now: datetime) -> None:
    """Print for how many days an admitted certificate is still valid, once an hour."""
    last = _measured.get(subject)
    if last is not None and now < last + _MEASURED_EVERY:
        return
    _measured[subject] = now
    days = (expires - now) / timedelta(days=1)
    MetricLines.of_environment().put({CERTIFICATE_DAYS_LEFT: round(days, 2)}, certificate_subject=subject)
