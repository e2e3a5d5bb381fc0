"""The EMR Serverless application that purges large tables, and the role of its jobs."""

import hashlib
import json
from typing import Any

from aws_cdk import Aws, RemovalPolicy, Stack
from aws_cdk import aws_emrserverless as emr
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3_assets as assets
from constructs import Construct

from infra.constructs.code import Code, reading
from infra.constructs.logs import LogKeeping
from infra.constructs.security.grants import OF_THIS_ACCOUNT, DataGrants, allow, service_role
from infra.constructs.security.nag import acknowledge_finding
from infra.environment.resources import packaged_job
from infra.settings import Settings


class SparkApplication(Construct):
    """An application with a maximum capacity that starts with a job and stops when idle, so that it costs nothing.

    EMR changes an application only while it is stopped, so that a changed setting would fail while a job runs. The
    logical id has a digest of the settings instead: a change makes a new application beside the former one, which is
    kept, because its jobs may run; `delegation:emr-former-application-ids` lets the functions watch them to their end.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: Settings,
        code: Code,
        data: DataGrants,
        keeping: LogKeeping,
        stored: assets.Asset,
        network: emr.CfnApplication.NetworkConfigurationProperty | None,
    ) -> None:
        """`network` is where jobs reach Polaris; `stored` has their properties."""
        super().__init__(scope, construct_id)
        self.log = keeping.group(self)
        self.former_application_ids = settings.emr_former_application_ids
        self.application = self._build_application(settings, keeping, network)
        self.job_role = self._build_job_role(settings, [code.archive, code.entry_point, stored], data)
        self.entry_point = code.entry_point.s3_object_url
        self.spark_parameters = packaged_job(code.archive.s3_object_url)

    @property
    def application_id(self) -> str:
        return self.application.attr_application_id

    @property
    def application_arn(self) -> str:
        return self.application.attr_arn

    @property
    def every_application_arn(self) -> tuple[str, ...]:
        applications = f"arn:{Aws.PARTITION}:emr-serverless:{Aws.REGION}:{Aws.ACCOUNT_ID}:/applications"
        return (self.application_arn, *(f"{applications}/{former}" for former in self.former_application_ids))

    @property
    def job_runs_arns(self) -> tuple[str, ...]:
        """The ARN patterns of all job runs of these applications, for policy statements."""
        return tuple(f"{arn}/jobruns/*" for arn in self.every_application_arn)

    def _build_application(
        self, settings: Settings, keeping: LogKeeping, network: emr.CfnApplication.NetworkConfigurationProperty | None
    ) -> emr.CfnApplication:
        # AWS keeps a copy of the logs with a key of its own, for the Spark UI, unless that is off.
        copies = emr.CfnApplication.ManagedPersistenceMonitoringConfigurationProperty(enabled=keeping.key is None)
        properties: dict[str, Any] = {
            "type": "SPARK",
            "release_label": settings.emr_release_label,
            "architecture": settings.architecture.upper(),
            "auto_start_configuration": emr.CfnApplication.AutoStartConfigurationProperty(enabled=True),
            "auto_stop_configuration": emr.CfnApplication.AutoStopConfigurationProperty(
                enabled=True, idle_timeout_minutes=settings.emr_idle_minutes
            ),
            "maximum_capacity": emr.CfnApplication.MaximumAllowedResourcesProperty(
                cpu=f"{settings.emr_max_vcpu} vCPU", memory=f"{settings.emr_max_memory_gb} GB"
            ),
            "scheduler_configuration": emr.CfnApplication.SchedulerConfigurationProperty(
                max_concurrent_runs=settings.emr_max_runs, queue_timeout_minutes=settings.emr_queue_minutes
            ),
            "monitoring_configuration": emr.CfnApplication.MonitoringConfigurationProperty(
                managed_persistence_monitoring_configuration=copies,
                cloud_watch_logging_configuration=emr.CfnApplication.CloudWatchLoggingConfigurationProperty(
                    enabled=True, log_group_name=self.log.log_group_name
                ),
            ),
        }
        if network is not None:
            properties["network_configuration"] = network
        application = emr.CfnApplication(self, "Application", **properties)
        application.apply_removal_policy(RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE)
        resolved = json.dumps(Stack.of(self).resolve(properties), sort_keys=True)
        digest = hashlib.sha256(resolved.encode()).hexdigest()[:8].upper()
        application.override_logical_id(f"SparkApplication{digest}")
        return application

    def _build_job_role(self, settings: Settings, objects: list[assets.Asset], data: DataGrants) -> iam.Role:
        logging = ["logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"]
        statements = [
            *data.purge(),
            *data.tombstones(),
            *data.unfinished(),
            data.admission(),
            *reading(*objects, key_arn=settings.bootstrap_key_arn),
            *_reading_jars(settings),
            allow(logging, self.log.log_group_arn),
            allow(["logs:DescribeLogGroups"], "*"),
        ]
        role = service_role(self, "JobRole", "emr-serverless", statements, StringEquals=OF_THIS_ACCOUNT)
        acknowledge_finding(role, "IAM5[Resource::*]", "EMR Serverless finds its log group by listing all log groups.")
        return role


def _reading_jars(settings: Settings) -> list[iam.PolicyStatement]:
    """Allow reading the jars that the operator keeps in S3."""
    stored = [jar.removeprefix("s3://") for jar in settings.emr_jars if jar.startswith("s3://")]
    return [allow(["s3:GetObject"], *(f"arn:{Aws.PARTITION}:s3:::{name}" for name in stored))] if stored else []
