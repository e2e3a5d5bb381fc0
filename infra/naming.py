"""Names that contain the stage, so that two stages in one account and region share no API, metric, alarm or log.

CloudFormation names everything else after its stack, whose name has the stage.
"""

from typing import Final

from infra.environment.resources import SERVICE_NAME

DIMENSION: Final = "service"
"""The only dimension of every metric, from POWERTOOLS_SERVICE_NAME."""


def service_name(stage: str) -> str:
    """Return the service's name in metrics, logs, traces and API Gateway, such as `polaris-delegation-prod`."""
    return f"{SERVICE_NAME}-{stage}"


def resource_name(stage: str, part: str) -> str:
    """Return the name of an alarm, a dashboard, a query or a machine, such as `polaris-delegation-prod-purge`."""
    return f"{service_name(stage)}-{part}"


def metric_dimensions(stage: str) -> dict[str, str]:
    """Return the dimensions by which CloudWatch finds the metrics of one stage."""
    return {DIMENSION: service_name(stage)}
