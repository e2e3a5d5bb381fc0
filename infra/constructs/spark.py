"""The EMR Serverless application that purges large tables, and the role of its jobs."""

from typing import Final

from aws_cdk import Aws, RemovalPolicy
from aws_cdk import aws_emrserverless as emr
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.constructs.code import Code
from infra.constructs.security.grants import DataGrants, allow
from infra.constructs.security.nag import acknowledge_finding
from infra.package import PYTHON_VERSION
from infra.settings import Settings

_PYTHON: Final = f"/usr/bin/python{PYTHON_VERSION}"
_UNPACKED: Final = "package"


class SparkApplication(Construct):
    """An application with a maximum capacity that starts with a job and stops when idle, so that it costs nothing."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: Settings,
        code: Code,
        data: DataGrants,
        log_retention: logs.RetentionDays,
    ) -> None:
        super().__init__(scope, construct_id)
        self.log = logs.LogGroup(self, "Log", retention=log_retention, removal_policy=RemovalPolicy.RETAIN)
        self.application = self._build_application(settings)
        self.job_role = self._build_job_role(code, data)
        self.entry_point = code.entry_point.s3_object_url
        self.spark_parameters = _spark_parameters(code)

    @property
    def application_id(self) -> str:
        """The application's id, for StartJobRun."""
        return self.application.attr_application_id

    @property
    def application_arn(self) -> str:
        """The application's ARN, for policy statements."""
        return self.application.attr_arn

    @property
    def job_runs_arn(self) -> str:
        """The ARN pattern of all job runs of this application, for policy statements."""
        return f"{self.application_arn}/jobruns/*"

    def _build_application(self, settings: Settings) -> emr.CfnApplication:
        network = None
        if settings.emr_subnet_ids:
            network = emr.CfnApplication.NetworkConfigurationProperty(
                subnet_ids=list(settings.emr_subnet_ids), security_group_ids=list(settings.emr_security_group_ids)
            )
        return emr.CfnApplication(
            self,
            "Application",
            type="SPARK",
            release_label=settings.emr_release_label,
            architecture="X86_64",
            auto_start_configuration=emr.CfnApplication.AutoStartConfigurationProperty(enabled=True),
            auto_stop_configuration=emr.CfnApplication.AutoStopConfigurationProperty(
                enabled=True, idle_timeout_minutes=settings.emr_idle_minutes
            ),
            maximum_capacity=emr.CfnApplication.MaximumAllowedResourcesProperty(
                cpu=f"{settings.emr_max_vcpu} vCPU", memory=f"{settings.emr_max_memory_gb} GB"
            ),
            monitoring_configuration=emr.CfnApplication.MonitoringConfigurationProperty(
                cloud_watch_logging_configuration=emr.CfnApplication.CloudWatchLoggingConfigurationProperty(
                    enabled=True, log_group_name=self.log.log_group_name
                )
            ),
            network_configuration=network,
        )

    def _build_job_role(self, code: Code, data: DataGrants) -> iam.Role:
        role = iam.Role(
            self,
            "JobRole",
            assumed_by=iam.ServicePrincipal(
                "emr-serverless.amazonaws.com", conditions={"StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID}}
            ),
            inline_policies={
                "Own": iam.PolicyDocument(
                    statements=[
                        *data.purge(),
                        allow(
                            ["s3:GetObject"],
                            *[
                                asset.bucket.arn_for_objects(asset.s3_object_key)
                                for asset in (code.archive, code.entry_point)
                            ],
                        ),
                        allow(
                            ["logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"],
                            self.log.log_group_arn,
                        ),
                        allow(["logs:DescribeLogGroups"], "*"),
                    ]
                )
            },
        )
        acknowledge_finding(role, "IAM5[Resource::*]", "EMR Serverless finds its log group by listing all log groups.")
        return role


def _spark_parameters(code: Code) -> str:
    """Return settings that unpack the package for driver and executors, and forbid speculative copies of a task."""
    settings = {
        "spark.archives": f"{code.archive.s3_object_url}#{_UNPACKED}",
        "spark.emr-serverless.driverEnv.PYTHONPATH": f"./{_UNPACKED}",
        "spark.executorEnv.PYTHONPATH": f"./{_UNPACKED}",
        "spark.emr-serverless.driverEnv.PYSPARK_PYTHON": _PYTHON,
        "spark.executorEnv.PYSPARK_PYTHON": _PYTHON,
        "spark.speculation": "false",
    }
    return " ".join(f"--conf {name}={value}" for name, value in settings.items())
