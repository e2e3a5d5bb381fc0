"""The names of one deployment's resources, for tests of the dashboards."""

from infra.environment.functions import FUNCTIONS
from infra.environment.resources import service_name
from infra.operations.alarms import RESOURCES_ALARMS, USERS_ALARMS
from infra.operations.boards import BoardNames

SERVICE = service_name("prod")
ALARM = f"arn:aws:cloudwatch:eu-central-1:123456789012:alarm:{SERVICE}-"
NAMES = BoardNames(
    region="eu-central-1",
    balancer="app/polaris-delegation/0a1b2c3d4e5f6071",
    targets="targetgroup/polaris-delegation/1b2c3d4e5f607182",
    probes=True,
    service=SERVICE,
    api=SERVICE,
    api_stage="live",
    queue=f"{SERVICE}-dispatch",
    dead_letters=f"{SERVICE}-dead-letters",
    machine_arn=f"arn:aws:states:eu-central-1:123456789012:stateMachine:{SERVICE}-purge",
    application_id="00fexample",
    lease_hours=19,
    functions={name: f"{SERVICE}-{name}" for name in FUNCTIONS},
    tables={name: f"{SERVICE}-{name}" for name in ("tasks", "idempotency", "references")},
    users_alarms=[f"{ALARM}{rule.name}" for rule in USERS_ALARMS],
    resources_alarms=[f"{ALARM}{rule.name}" for rule in RESOURCES_ALARMS],
)
