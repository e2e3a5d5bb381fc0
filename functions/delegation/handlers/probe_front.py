"""Requests the service's health through its front end once a minute, with a client certificate."""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext

from delegation.metrics import PROBES_SUCCEEDED, MetricLines
from delegation.wiring.probe import FrontProbe, front_probe

logger: Final = Logger()


@cache
def _probe() -> FrontProbe:
    return front_probe()


def handler(_event: Mapping[str, Any], _context: LambdaContext) -> dict[str, bool]:
    """Probe once; a failed request is a metric and a log line, not an error of the function."""
    probe = _probe().perform()
    if probe.problem is not None:
        logger.error("the probe failed", extra={"action": "probe", "reason": probe.problem})
    succeeded = probe.problem is None
    MetricLines.of_environment().put(
        {PROBES_SUCCEEDED: int(succeeded)}, action="probe", seconds=round(probe.seconds, 3)
    )
    return {"succeeded": succeeded}
